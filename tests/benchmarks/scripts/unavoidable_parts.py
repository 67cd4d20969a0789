"""Reads a text, encodes it with gigatoken in one thread, writes as many bytes as a set has.

    python unavoidable_parts.py TEXT TOKENIZER.json BYTES OUTPUT

Prints the seconds of each part as JSON: [[wall, cpu], ...]. Not timed: imports, loading the
tokenizer, and finding where lines end. The engine is fresh: its cache of words is empty, as it is
when a run begins.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from tests.benchmarks.clock import timed
from textmill.pipelines.encoding.backends import FastBackend
from textmill.pipelines.encoding.reference import ReferenceBackend


def main(text: str, tokenizer_path: str, size: str, output: str) -> None:
    """Times each part."""
    content = Path(tokenizer_path).read_bytes()
    engine = FastBackend(content, ReferenceBackend(Tokenizer.from_buffer(content)))
    engine.encode_unguarded(pa.array(["loads the engine"], pa.large_string()))
    read, data = timed(lambda: Path(text).read_bytes())
    documents = lines(data)
    encode, _ = timed(lambda: engine.encode_unguarded(documents))
    rows = np.ones(int(size), np.uint8)
    write, _ = timed(lambda: Path(output).write_bytes(rows.data))
    print(json.dumps([read, encode, write]))


def lines(data: bytes) -> pa.LargeStringArray:
    """Documents, with their line ends."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    offsets = np.append(0, ends).astype(np.int64)
    return pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
