"""Datasets as batches: readers, mixtures, the order of rows. numpy only; Python 3.8 syntax."""
