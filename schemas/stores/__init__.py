"""Files in directories and object stores, and the cache of those that were fetched."""
