"""Megatron-LM's IndexedDataset: ids in .bin, and the lengths and offsets of documents in .idx.

The index (megatron/core/datasets/indexed_dataset.py), little-endian: nine bytes of magic, uint64
version 1, uint8 type of the ids (8: uint16, 4: int32), uint64 sequences, uint64 documents + 1; then
int32 tokens of each sequence, int64 byte offset of each in .bin, int64 number of each document's
first sequence, and of one more. A document is one sequence here.
"""

import os
import struct
from collections.abc import Iterator, Mapping

import numpy as np

from pipelines.rows.ragged import Ragged
from schemas.errors import DataError
from schemas.features import token_dtype
from schemas.metadata import Schema

TELLS_DOCUMENTS = True
_MAGIC = b"MMIDIDX\0\0"
_HEAD = struct.Struct("<9sQBQQ")
_TYPES = {"uint16": ("<u2", 8), "uint32": ("<i4", 4)}  # ids are below 2**24


def encode(documents: Ragged, schema: Schema) -> Mapping[str, Iterator[np.ndarray | bytes]]:
    """The ids and their index."""
    dtype, code = _TYPES[token_dtype(schema.vocab_size)]
    return {
        "megatron.bin": iter((documents.values.astype(dtype, copy=False),)),
        "megatron.idx": iter((_index(documents.offsets, np.dtype(dtype).itemsize, code),)),
    }


def _index(offsets: np.ndarray, width: int, code: int) -> bytes:
    """The index of consecutive documents."""
    count = len(offsets) - 1
    return b"".join(
        (
            _HEAD.pack(_MAGIC, 1, code, count, count + 1),
            np.diff(offsets).astype("<i4").tobytes(),
            (offsets[:-1] * width).astype("<i8").tobytes(),
            np.arange(count + 1, dtype="<i8").tobytes(),
        )
    )


def decode(paths: Mapping[str, str], schema: Schema) -> Ragged:
    """Token ids of the documents; the index must equal the one that `encode` writes."""
    dtype, code = _TYPES[token_dtype(schema.vocab_size)]
    width, path = np.dtype(dtype).itemsize, paths["megatron.idx"]
    with open(path, "rb") as file:
        head = file.read(_HEAD.size)
        count = _HEAD.unpack(head)[3] if len(head) == _HEAD.size else 0
        if os.path.getsize(path) != _HEAD.size + 12 * count + 8 * (count + 1):
            raise DataError(f"{path} is not an index of {count:,} documents: it was cut or changed")
        index = head + file.read()
    lengths = np.frombuffer(index, "<i4", count, _HEAD.size).astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    if lengths.min(initial=0) < 0 or index != _index(offsets, width, code):
        raise DataError(f"{path} is not as Textmill writes it: a length or an offset differs")
    if os.path.getsize(paths["megatron.bin"]) != offsets[-1] * width:
        raise DataError(
            f"{paths['megatron.bin']} does not hold the {offsets[-1]:,} ids of its index"
        )
    if not offsets[-1]:  # an empty file cannot be mapped
        return Ragged(np.zeros(0, dtype), offsets)
    return Ragged(np.memmap(paths["megatron.bin"], dtype, "r"), offsets)
