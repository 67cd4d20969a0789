"""Ids without a header, for numpy.memmap and ai2-olmo-core; numpy.load cannot open such files."""

from collections.abc import Iterator, Mapping

import numpy as np

from pipelines.rows.ragged import Ragged
from pipelines.writers.document_formats.document_format import map_documents, refuse_without_edges
from schemas.features import token_dtype
from schemas.metadata import Schema

TELLS_DOCUMENTS = False


def refuse(schema: Schema) -> None:
    """Raises UsageError if no token separates documents."""
    refuse_without_edges("npy", schema)


def encode(documents: Ragged, schema: Schema) -> Mapping[str, Iterator[np.ndarray | bytes]]:
    """The ids, little-endian."""
    dtype = np.dtype(token_dtype(schema.vocab_size)).newbyteorder("<")
    return {"ids.bin": iter((documents.values.astype(dtype, copy=False),))}


def decode(paths: Mapping[str, str], schema: Schema) -> Ragged:
    """Token ids, cut where documents end or begin."""
    dtype = np.dtype(token_dtype(schema.vocab_size)).newbyteorder("<").str
    return map_documents(paths["ids.bin"], dtype, schema)
