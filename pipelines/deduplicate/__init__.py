"""Near-duplicates of a corpus: the job that finds them, and what it leaves."""
