"""Tables of words and how often they occur. Pure: pyarrow.

A table of counts is (word: large_binary, count: int64), each word once, in any order; words are raw
bytes. `word_counter` makes them.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema([("word", pa.large_binary()), ("count", pa.int64())])


def buffers_of(values: pa.LargeStringArray | pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Where values begin, int64[values + 1], in their bytes, uint8. No copy."""
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return bounds, np.frombuffer(data or b"", np.uint8)


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
