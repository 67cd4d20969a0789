"""One file a format: stored bytes or tables -> documents. `sources` opens files."""
