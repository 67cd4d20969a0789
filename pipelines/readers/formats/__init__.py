"""One file a format: stored bytes or tables -> documents. Pure; `sources` opens and dispatches."""
