"""Input formats, one file each: stored bytes or tables -> documents. `sources` opens files."""
