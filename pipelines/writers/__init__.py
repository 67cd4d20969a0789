"""Writers of shards and metadata files, and their atomic publication."""
