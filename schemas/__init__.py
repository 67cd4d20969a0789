"""The contract between the pipelines that write shards and the trainers that read them.

Standard library and numpy only, Python 3.8 syntax: any trainer host can read a shard set.

- What a row is: features, task_rules, codec, records, array_record.
- What lies beside the rows: sidecar, manifest, statistics, drops, agreement; typed_json and kinds
  read and check them.
- Where a set lies: set_files, set_cache, and of stores store and store_credentials.
- What both halves need besides: errors, missing (packages), entry, memory and terminal (how an
  entry ends, and what it prints), flag_file (--config), template (what a prompt says), version;
  tokenizer_bounds, tokenizer_trial and limited_process for a tokenizer.json of unknown origin.
"""
