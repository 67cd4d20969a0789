"""The segments of packed rows: the ids of each piece of a document, masks undone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.features import unmask
from textmill.schemas.format.records import open_rows

Ids = tuple[int, ...]


def segments(columns: dict[str, np.ndarray]) -> Iterator[Ids]:
    """Every segment of every row, with its special ids."""
    for ids, numbers in zip(unmask(columns), columns["segment_ids"], strict=True):
        for number in range(1, int(numbers.max()) + 1):
            yield tuple(ids[numbers == number].tolist())


def segments_of(directory: str | Path, *splits: str) -> Iterator[Ids]:
    """Every segment of a dataset, or of some of its splits."""
    info = read_dataset(str(directory))
    codec = info.schema.codec()
    for file in info.manifest.files:
        if file.is_shard and (file.split in splits or not splits):
            rows = open_rows(f"{directory}/{file.path}", codec.stride)
            yield from segments(codec.decode(rows.read_range(0, file.rows or 0)))
