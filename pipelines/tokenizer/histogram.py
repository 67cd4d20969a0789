"""Tables of word counts, and histogram.parquet, the word counts of a text.

A table of counts is (word: large_binary, count: int64), each word once, in any order; words are raw
bytes. `word_counter` makes such tables. histogram.parquet is one that is sorted by word; its
metadata records how words were cut, so that another vocabulary can be trained without the text.
"""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from textmill.pipelines.encoding.patterns import GPT2, PATTERNS
from textmill.pipelines.runtime.imports import parquet, pc
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.typed_json import from_json, parse_json

NO_NORMALIZER = "none"
NORMALIZERS = {  # to their names in `tokenizers`
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
    "strip_accents": "StripAccents",
}
SCHEMA = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])
FORMAT_VERSION = 2
_KEY = b"textmill.histogram"
_REMEDY = f"give the histogram.parquet of an earlier run, or the text itself with {flag('input')}"


@dataclass(frozen=True)
class PreTokenization:
    """The steps that turn a document into words, in this order.

    Attributes:
      normalizer: names of NORMALIZERS, separated by commas, which are applied in order.
      add_prefix_space: whether to put a space before a document that does not begin with one.
      pattern: the regular expression that cuts words: each match is a word, and so is the text
        between two matches.
    """

    pattern: str = PATTERNS[GPT2]
    normalizer: str = NO_NORMALIZER
    add_prefix_space: bool = False

    def __post_init__(self) -> None:
        """Rejects unknown normalizers."""
        if unknown := [name for name in self._names() if name not in NORMALIZERS]:
            raise DataError(f"normalizer {unknown[0]!r}: must be one of {', '.join(NORMALIZERS)}")

    @property
    def normalizers(self) -> tuple[str, ...]:
        """The names of the normalizers in `tokenizers`; empty for "none"."""
        return tuple(NORMALIZERS[name] for name in self._names())

    def _names(self) -> list[str]:
        return [] if self.normalizer == NO_NORMALIZER else self.normalizer.split(",")


@dataclass(frozen=True)
class Origin:
    """The origin of word counts.

    Attributes:
      cutting: how documents became words.
      documents: documents whose words were counted.
      bytes: UTF-8 bytes of their text.
      normalized_bytes: bytes of their text after the normalizer, without added spaces.
      format_version: the version of the file format.
    """

    cutting: PreTokenization
    documents: int
    bytes: int
    normalized_bytes: int
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Histogram:
    """Word counts and their origin.

    Attributes:
      counts: (word: large_binary, count: int64), sorted by word.
      origin: the documents and the cutting that they come from.
    """

    counts: pa.Table
    origin: Origin

    @property
    def words(self) -> pa.LargeBinaryArray:
        """The distinct words, in one array."""
        return pa.concat_arrays([pa.array([], pa.large_binary()), *self.counts["word"].chunks])


def to_parquet(histogram: Histogram) -> bytes:
    """The content of histogram.parquet; equal histograms give equal bytes."""
    metadata = {_KEY: json.dumps(asdict(histogram.origin), sort_keys=True).encode()}
    content = pa.BufferOutputStream()
    parquet.write_table(
        histogram.counts.combine_chunks().replace_schema_metadata(metadata),
        content,
        compression="zstd",
        use_dictionary=False,  # no word occurs twice
        column_encoding={"word": "DELTA_BYTE_ARRAY", "count": "PLAIN"},  # words share prefixes
    )
    return content.getvalue().to_pybytes()


def read_histogram(path: str) -> Histogram:
    """Reads and checks a histogram.parquet.

    Raises:
      UsageError: there is no such file.
      DataError: it is not a histogram, has a different version, or is damaged.
    """
    if os.path.isdir(path):
        raise UsageError(f"{flag('from_histogram', path)} is a directory; {_REMEDY}")
    if not store.exists(path):
        raise UsageError(f"{flag('from_histogram', path)}: there is no such file; {_REMEDY}")
    try:
        table = parquet.read_table(pa.BufferReader(store.read(path)))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet ({reason}); {_REMEDY}") from error
    try:
        origin = _origin((table.schema.metadata or {})[_KEY], path)
        histogram = Histogram(table.replace_schema_metadata().cast(SCHEMA), origin)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} has no word counts of train_tokenizer; {_REMEDY}") from error
    _check(path, histogram)
    return histogram


def _origin(metadata: bytes, path: str) -> Origin:
    values: dict[str, Any] = dict(parse_json(metadata, path))
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version!r}, but this Textmill reads {FORMAT_VERSION}; "
            "count the text again"
        )
    return from_json(Origin, values, path)


def _check(path: str, histogram: Histogram) -> None:
    counts, origin = histogram.counts, histogram.origin
    least = origin.normalized_bytes
    most = least + (origin.documents if origin.cutting.add_prefix_space else 0)
    there = table_bytes(counts)
    if not is_sound(counts) or not least <= there <= most:
        raise DataError(
            f"{path} is damaged: its words are not sorted, or do not have the bytes of its "
            f"metadata; {_REMEDY}"
        )


# ---- tables of counts ----


def array_bytes(values: pa.LargeStringArray | pa.LargeBinaryArray) -> int:
    """The bytes of all values together."""
    return pc.sum(pc.binary_length(values)).as_py() or 0


def table_bytes(counts: pa.Table) -> int:
    """The bytes of all occurrences of all words."""
    lengths = pc.binary_length(counts["word"])
    return pc.sum(pc.multiply(lengths, counts["count"])).as_py() or 0


def is_sound(counts: pa.Table) -> bool:
    """Whether a table is sorted, each word occurs once, and each count is at least 1."""
    words, numbers = counts["word"].combine_chunks(), counts["count"]
    if words.null_count or numbers.null_count:
        return False
    if not len(words):
        return True
    ascending = pc.less(words[:-1], words[1:]).to_numpy(zero_copy_only=False)
    return bool(ascending.all()) and words[0].as_py() != b"" and pc.min(numbers).as_py() > 0


def to_bytes(counts: pa.Table) -> bytes:
    """Serializes a table of counts (Arrow IPC)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(counts)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes) -> pa.Table:
    """Reads the result of `to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
