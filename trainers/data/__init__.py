"""Shard sets as batches: the reader, mixtures, the order of rows. Knows no framework."""
