"""The contract between the pipelines that write shards and the trainers that read them.

Standard library and numpy only, Python 3.8 syntax: any trainer host can read a shard set.

- What a row is: features, codec, records.
- What lies beside the rows: metadata, manifest, statistics, drops, agreement; typed_json reads and
  checks them.
- layouts has rows as other trainers take them.
- What both halves need besides: errors, version, and in folders stores (where a set is:
  directories, object stores, the cache), commands (how an entry starts, reads --config and
  templates, prints and ends) and untrusted (limits for a tokenizer.json of unknown origin).
"""
