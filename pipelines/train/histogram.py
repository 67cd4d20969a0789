"""How often each word occurs: tables of counts, and the histogram of a text as a file.

A table of counts is (word: large_binary, count: int64), each word once, in any order; words are raw
bytes. `word_counter` makes them. histogram.parquet is one sorted by word. Its metadata says how the
words were cut, so that another vocabulary can be trained without the text, and never from other
words.
"""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pipelines.encoding.splitting.patterns import GPT2, PATTERNS
from pipelines.host.arrow import parquet, pc
from pipelines.storage import store
from schemas.errors import DataError, UsageError
from schemas.typed_json import from_json, parse_json

NO_NORMALIZER = "none"
NORMALIZERS = {  # and what `tokenizers` calls them
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
_REMEDY = "give the histogram.parquet of an earlier run, or the text itself with --input"


@dataclass(frozen=True)
class Cutting:
    """What is done to a document, in this order.

    Attributes:
      normalizer: names of NORMALIZERS, separated by commas, one applied after another.
      add_prefix_space: put a space before a document that does not begin with one.
      pattern: the regular expression by which it is cut: what it matches is a word, and what lies
        between two matches is one.
    """

    pattern: str = PATTERNS[GPT2]
    normalizer: str = NO_NORMALIZER
    add_prefix_space: bool = False

    def __post_init__(self) -> None:
        """Refuses normalizers that are not known."""
        if unknown := [name for name in self._names() if name not in NORMALIZERS]:
            raise DataError(f"normalizer {unknown[0]!r} is none of {', '.join(NORMALIZERS)}")

    @property
    def normalizers(self) -> tuple[str, ...]:
        """As `tokenizers` calls them, one by one; none for "none"."""
        return tuple(NORMALIZERS[name] for name in self._names())

    def _names(self) -> list[str]:
        return [] if self.normalizer == NO_NORMALIZER else self.normalizer.split(",")


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
    parquet.write_table(
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
        table = parquet.read_table(pa.BufferReader(store.read(path)))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet ({reason}); {_REMEDY}") from error
    try:
        origin = _origin((table.schema.metadata or {})[_KEY], path)
        histogram = Histogram(table.replace_schema_metadata().cast(SCHEMA), origin)
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
    there = table_bytes(counts)
    if not is_sound(counts) or not least <= there <= most:
        raise DataError(
            f"{path} is damaged: its words are not sorted, or not as many bytes as its metadata "
            f"says; {_REMEDY}"
        )


# ---- tables of counts ----


def array_bytes(values: pa.LargeStringArray | pa.LargeBinaryArray) -> int:
    """Bytes that all arrays take together."""
    return pc.sum(pc.binary_length(values)).as_py() or 0


def table_bytes(counts: pa.Table) -> int:
    """Bytes of all occurrences of all words."""
    lengths = pc.binary_length(counts["word"])
    return pc.sum(pc.multiply(lengths, counts["count"])).as_py() or 0


def is_sound(counts: pa.Table) -> bool:
    """Whether a table is sorted by word, each word there once and counted at least once."""
    words, numbers = counts["word"].combine_chunks(), counts["count"]
    if words.null_count or numbers.null_count:
        return False
    if not len(words):
        return True
    ascending = pc.less(words[:-1], words[1:]).to_numpy(zero_copy_only=False)
    return bool(ascending.all()) and words[0].as_py() != b"" and pc.min(numbers).as_py() > 0


def to_bytes(counts: pa.Table) -> bytes:
    """A table of counts for the way between workers (Arrow IPC)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(counts)
    return sink.getvalue().to_pybytes()


def from_bytes(data: bytes) -> pa.Table:
    """Reads back what `to_bytes` gave."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
