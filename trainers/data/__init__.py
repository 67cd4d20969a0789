"""Shard sets as batches: the reader, mixtures, the order of rows; numpy, Python 3.8 syntax."""
