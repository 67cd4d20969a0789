"""The contract between the pipelines that write shards and the trainers that read them.

Standard library and numpy only, Python 3.8 syntax: any trainer host can read a shard set.
"""
