"""The format of datasets, shared by the pipelines that write them and the trainers that read them.

Standard library and numpy only, Python 3.8 syntax, so that any trainer host can read a dataset.

- format: rows (features, codec, records; layouts converts them for other trainers) and metadata
  files (metadata, manifest, statistics, drops, agreement).
- files: store (a disk or an object store), set_files (a dataset, with a cache), hub.
- tokenizers: files of tokenizers and chat templates, from sources that may be untrusted.
- commands: the start and end of a command, --config, output.
- Shared by all: errors, version, typed_json (checks JSON), limited_process (a child process).
"""

from textmill.entries import share_modules

share_modules(__name__)
