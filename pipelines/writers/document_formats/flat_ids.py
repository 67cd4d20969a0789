"""Documents one after another, told apart only by the ids that each of them begins or ends with."""

import os

import numpy as np

from pipelines.rows.ragged import Ragged
from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema


def refuse_without_edges(name: str, schema: Schema) -> None:
    """Raises UsageError if nothing tells documents apart."""
    if not schema.parameters["prefix_ids"] and not schema.parameters["suffix_ids"]:
        raise UsageError(
            f"--no_eos: nothing would tell documents apart in a file of {name}; leave the flag "
            "out, or give --bos"
        )


def map_documents(path: str, dtype: str, schema: Schema, *, head: int = 0) -> Ragged:
    """The ids of a file, mapped, cut behind each eos, or before each bos if there is no eos.

    A text that spells such a token itself is cut there too.

    Args:
      path: of the file.
      dtype: of its ids.
      schema: of the set.
      head: bytes before the ids.

    Raises:
      DataError: it has no whole number of ids.
    """
    size = os.path.getsize(path) - head
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} has {size:,} bytes of ids of {dtype}: it was cut or changed")
    ids = np.memmap(path, dtype, "r", head) if size else np.zeros(0, dtype)
    [[edge], after] = next(
        (found, step)
        for found, step in (
            (schema.parameters["suffix_ids"], 1),
            (schema.parameters["prefix_ids"], 0),
        )
        if found
    )
    cuts = np.flatnonzero(ids == edge) + after
    return Ragged(ids, np.unique(np.concatenate(([0], cuts, [len(ids)]))))
