"""Shard sets as batches: the reader, mixtures, the order of rows.

Standard library, numpy and `schemas` only, Python 3.8 syntax.
"""
