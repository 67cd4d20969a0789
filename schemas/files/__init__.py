"""Where the files of a dataset are: a directory, an object store with a cache, the Hub."""
