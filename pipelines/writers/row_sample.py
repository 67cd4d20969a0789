"""The first rows of each split, chosen by content alone: examples, and what is measured on them."""

from collections.abc import Callable, Iterable

import numpy as np

from pipelines.writers.document_formats.document_format import open_documents
from pipelines.writers.document_formats.document_rows import document_rows
from schemas.manifest import ManifestFile
from schemas.records import open_rows
from schemas.sidecar import Schema

SAMPLE_ROWS = 1024  # a split; a thousand rows of 128 are 20,000 masked tokens


def sample_rows(
    schema: Schema, files: Iterable[ManifestFile], locate: Callable[[ManifestFile], str]
) -> dict[str, dict[str, np.ndarray]]:
    """Split to the columns of the first SAMPLE_ROWS rows of its first shard that has rows.

    Rows lie in a shard in the order of a hash of their content, so that these are a fair sample and
    the same ones for any way to run.

    Args:
      schema: the contract.
      files: of the set; others than shards are ignored.
      locate: a file of the set -> its path on this machine.

    Raises:
      DataError: a shard is damaged.
    """
    suffix = "." + schema.read_ending
    files = sorted(files, key=lambda file: file.path)
    named = {file.path: file for file in files}
    sampled: dict[str, dict[str, np.ndarray]] = {}
    for file in files:
        if not file.split or not file.rows or file.split in sampled:
            continue
        if not file.path.endswith(suffix):
            continue
        rows = range(min(file.rows, SAMPLE_ROWS))
        if schema.holds_documents:
            documents = open_documents(schema, file.path, lambda path: locate(named[path]))
            _, sampled[file.split] = next(document_rows(documents, rows))
            continue
        codec = schema.codec()
        reader = open_rows(locate(file), codec.stride)
        try:
            sampled[file.split] = codec.decode(reader.read_range(0, len(rows)))
        finally:
            reader.close()
    return sampled
