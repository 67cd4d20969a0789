"""The first rows of each split, chosen by content alone: examples, and what is measured on them."""

from collections.abc import Callable, Iterable

import numpy as np

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
    codec = schema.codec()
    suffix = "." + sorted(schema.file_formats)[0]
    sampled: dict[str, dict[str, np.ndarray]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if not file.split or not file.rows or file.split in sampled:
            continue
        if not file.path.endswith(suffix):
            continue
        reader = open_rows(locate(file), codec.stride)
        try:
            rows = reader.read_range(0, min(file.rows, SAMPLE_ROWS))
        finally:
            reader.close()
        sampled[file.split] = codec.decode(rows)
    return sampled
