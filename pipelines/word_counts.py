"""Documents -> how often each word occurs. Pure: pyarrow, numpy and the two splitting engines.

A word is a pre-token of GPT-2's pattern (as in `tokenizers`' ByteLevel), as raw bytes: `it's a dog`
gives `it`, `'s`, ` a`, ` dog`. A table of counts is (word: large_binary, count: int64), each word
once, in any order.

gigatoken splits 120 MB/s on a core, forty times what `tokenizers` does; documents with a code point
that the two class differently go through `tokenizers`, which has the say.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipelines.bpe import spelt_bytes
from pipelines.unicode_guard import holds_disputed

SCHEMA = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])
BUCKETS = 64
_BETWEEN = b"\xff"  # no UTF-8 has this byte: no word can go on from one document into the next
_BINARY = pa.large_binary()
_stderr_lock = threading.Lock()


def count_words(text: pa.LargeStringArray, *, add_prefix_space: bool) -> tuple[pa.Table, int]:
    """How often each word occurs in some documents.

    Args:
        text: documents, UTF-8, no nulls.
        add_prefix_space: put a space before each document that does not begin with one.

    Returns:
        The counts, and how many documents were split by `tokenizers`.

    Raises:
        RuntimeError: the words are not the documents' bytes: a defect of an engine.
    """
    disputed = holds_disputed(text)
    texts = _prefixed(text) if add_prefix_space else text.cast(_BINARY)
    if not disputed.any():
        tables = [_count_fast(texts)]
    else:
        keep = pa.array(~disputed)
        tables = [
            _count_fast(texts.filter(keep)),
            _count_exactly(texts.filter(pc.invert(keep)).cast(pa.large_string())),
        ]
    counts = add_counts(tables)
    counted, given = table_bytes(counts), array_bytes(texts)
    if counted != given:
        raise RuntimeError(f"{given} bytes of documents became {counted} bytes of words")
    return counts, int(disputed.sum())


def add_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """The sum of tables of counts."""
    tables = list(tables)
    if len(tables) == 1:
        return tables[0]
    # One thread: workers have a core each.
    grouped = pa.concat_tables([SCHEMA.empty_table(), *tables]).group_by("word", use_threads=False)
    return grouped.aggregate([("count", "sum")]).rename_columns(SCHEMA.names).combine_chunks()


def in_buckets(counts: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Cuts a table by the hash of the word: (bucket, table), the same for a word anywhere."""
    words = counts["word"].to_pylist()
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, words), np.uint64, len(words))
    buckets = (hashes % BUCKETS).astype(np.int64)
    ordered = counts.take(pa.array(np.argsort(buckets, kind="stable")))
    sizes = np.bincount(buckets, minlength=BUCKETS)
    for bucket in np.flatnonzero(sizes).tolist():
        yield bucket, ordered.slice(int(sizes[:bucket].sum()), int(sizes[bucket]))


def array_bytes(values: pa.LargeStringArray | pa.LargeBinaryArray) -> int:
    """Bytes of all values."""
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
    """The inverse of `to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def _prefixed(text: pa.LargeStringArray) -> pa.LargeBinaryArray:
    """The documents with a space before each that does not begin with one."""
    space, nothing = pa.scalar(b" ", _BINARY), pa.scalar(b"", _BINARY)
    binary = text.cast(_BINARY)
    prefix = pc.if_else(pc.starts_with(binary, b" "), nothing, space)
    return pc.binary_join_element_wise(prefix, binary, nothing)


def _count_fast(texts: pa.LargeBinaryArray) -> pa.Table:
    """By gigatoken."""
    from gigatoken.gigatoken_rs import pretokenized_counts

    whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    joined = pc.binary_join(whole, pa.scalar(_BETWEEN, _BINARY))[0].as_py()
    with _no_stderr():
        counts = pretokenized_counts(joined, _BETWEEN)
    return _table([word for word, _ in counts], [count for _, count in counts])


def _count_exactly(text: pa.LargeStringArray) -> pa.Table:
    """By `tokenizers`."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    counts = Counter(word for document in text.to_pylist() for word, _ in split(document))
    return _table(spelt_bytes(counts), list(counts.values()))


def _table(words: list[bytes], counts: list[int]) -> pa.Table:
    return pa.table([pa.array(words, _BINARY), pa.array(counts, pa.int64())], schema=SCHEMA)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Closes the process's standard error: gigatoken 0.10 writes two lines there for each call."""
    with _stderr_lock:  # two threads would restore each other's void
        if sys.stderr:
            sys.stderr.flush()
        kept, void = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(void)
