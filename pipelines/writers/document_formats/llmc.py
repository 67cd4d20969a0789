"""llm.c's files of GPT-2 ids (dev/data/data_common.py), which modded-nanogpt reads too.

256 int32, little-endian: 20240520, version 1, number of ids, zeros; then the ids, uint16.
"""

import os
from collections.abc import Iterator, Mapping

import numpy as np

from pipelines.rows.ragged import Ragged
from pipelines.writers.document_formats.document_format import map_documents, refuse_without_edges
from schemas.errors import DataError, UsageError
from schemas.features import token_dtype
from schemas.metadata import Schema

TELLS_DOCUMENTS = False
_MAGIC, _VERSION = 20240520, 1
_HEAD = 256 * 4  # bytes


def refuse(schema: Schema) -> None:
    """Raises UsageError for ids of more than 16 bits, and if no token separates documents."""
    if token_dtype(schema.vocab_size) != "uint16":
        raise UsageError(
            f"--file_format=llmc holds ids of 16 bits, and the tokenizer has {schema.vocab_size:,} "
            "ids: use another format, such as npy"
        )
    refuse_without_edges("llmc", schema)


def encode(documents: Ragged, schema: Schema) -> Mapping[str, Iterator[np.ndarray | bytes]]:
    """The head and the ids."""
    count = len(documents.values)
    if count >= 1 << 31:
        raise DataError(
            f"a shard of {count:,} tokens is too large for llmc: set a higher --num_shards"
        )
    return {"llmc.bin": iter((_head(count), documents.values.astype("<u2", copy=False)))}


def _head(count: int) -> np.ndarray:
    head = np.zeros(256, "<i4")
    head[:3] = _MAGIC, _VERSION, count
    return head


def decode(paths: Mapping[str, str], schema: Schema) -> Ragged:
    """Token ids, cut where documents end or begin."""
    path = paths["llmc.bin"]
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if head != _head(max(0, os.path.getsize(path) - _HEAD) // 2).tobytes():
        raise DataError(f"{path} does not begin with the header of an llm.c file of its size")
    return map_documents(path, "<u2", schema, head=_HEAD)
