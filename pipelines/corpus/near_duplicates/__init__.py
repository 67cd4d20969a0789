"""Near-duplicates: found by MinHash, verified, and which of them stays; and the job of it."""
