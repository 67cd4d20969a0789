"""The word counts of a corpus as a file, histogram.parquet.

Columns word (large_binary) and count (int64), sorted by word. Its metadata says how the words were
cut, so that another vocabulary can be trained without the text, and never from other words.
"""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import store
from pipelines.train import word_counts
from pipelines.train.cutting import Cutting
from schemas.errors import DataError, UsageError
from schemas.typed_json import from_json, parse_json

FORMAT_VERSION = 2
_KEY = b"textmill.histogram"
_REMEDY = "give the histogram.parquet of an earlier run, or the text itself with --input"


@dataclass(frozen=True)
class Origin:
    """Where word counts come from.

    Attributes:
      cutting: how documents became words.
      documents: that were counted.
      bytes: of their text.
      normalized_bytes: of it as the normalizer wrote it, without added spaces.
      format_version: of the file.
    """

    cutting: Cutting
    documents: int
    bytes: int
    normalized_bytes: int
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Histogram:
    """Word counts and their origin.

    Attributes:
      counts: (word: large_binary, count: int64), sorted by word.
      origin: how they were made.
    """

    counts: pa.Table
    origin: Origin

    @property
    def words(self) -> pa.LargeBinaryArray:
        """The distinct words, one after another in memory."""
        return pa.concat_arrays([pa.array([], pa.large_binary()), *self.counts["word"].chunks])


def to_parquet(histogram: Histogram) -> bytes:
    """The file's content; equal histograms give equal bytes."""
    metadata = {_KEY: json.dumps(asdict(histogram.origin), sort_keys=True).encode()}
    content = pa.BufferOutputStream()
    pq.write_table(
        histogram.counts.combine_chunks().replace_schema_metadata(metadata),
        content,
        compression="zstd",
        use_dictionary=False,  # no word occurs twice
        column_encoding={"word": "DELTA_BYTE_ARRAY", "count": "PLAIN"},  # neighbours begin alike
    )
    return content.getvalue().to_pybytes()


def read_histogram(path: str) -> Histogram:
    """Reads a file of what `to_parquet` gave.

    Raises:
      UsageError: there is no such file.
      DataError: it is no histogram, one of another version, or a damaged one.
    """
    if os.path.isdir(path):
        raise UsageError(f"--from_histogram={path} is a directory; {_REMEDY}")
    if not store.exists(path):
        raise UsageError(f"--from_histogram={path}: there is no such file; {_REMEDY}")
    try:
        table = pq.read_table(pa.BufferReader(store.read(path)))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet ({reason}); {_REMEDY}") from error
    try:
        origin = _origin((table.schema.metadata or {})[_KEY], path)
        histogram = Histogram(table.replace_schema_metadata().cast(word_counts.SCHEMA), origin)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} holds no word counts of train_tokenizer; {_REMEDY}") from error
    _check(path, histogram)
    return histogram


def _origin(metadata: bytes, path: str) -> Origin:
    values: dict[str, Any] = dict(parse_json(metadata, path))
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has the format {version!r}; this Textmill reads {FORMAT_VERSION}; count the "
            "text again"
        )
    return from_json(Origin, values, path)


def _check(path: str, histogram: Histogram) -> None:
    counts, origin = histogram.counts, histogram.origin
    least = origin.normalized_bytes
    most = least + (origin.documents if origin.cutting.add_prefix_space else 0)
    there = word_counts.table_bytes(counts)
    if not word_counts.is_sound(counts) or not least <= there <= most:
        raise DataError(
            f"{path} is damaged: its words are not sorted, or not as many bytes as its metadata "
            f"says; {_REMEDY}"
        )
