"""Access to files in directories and object stores, and the cache of downloaded files."""
