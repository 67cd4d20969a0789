"""Checks of shards and rows, for `pipelines.verify`."""
