"""The format of datasets, shared by the pipelines that write them and the trainers that read them.

Standard library and numpy only, Python 3.8 syntax, so that any trainer host can read a dataset.

- Rows: features, codec, records; layouts converts them for other trainers.
- Metadata files: metadata, manifest, statistics, drops, agreement; typed_json checks JSON.
- Files: set_files (a directory, or an object store with a cache), object_store, hub.
- Untrusted tokenizers: tokenizer_json, limited_process.
- Shared by both sides: errors, version, and the package commands (the start and end of a command,
  --config, output).
"""

from textmill.entries import share_modules

share_modules(__name__)
