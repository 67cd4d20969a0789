"""What an export makes of a set's rows: one table, whatever the format. Pure."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipelines.inspection.row_text import sequences
from schemas.features import unmask
from schemas.layouts import LAYOUTS, check_layout
from schemas.sidecar import Schema

Columns = dict[str, np.ndarray]
CHUNK_BYTES = 4 << 20  # of rows on disk that are in memory at once; a row group of Parquet
_MASKS = ("masked_positions", "masked_ids", "masked_weights")


class RowTable:
    """What an export makes of a set's rows: one table, of the same columns for every shard.

    Attributes:
      schema: the columns' names and types. A feature [L] is a list of L numbers, a feature [] a
        number; the contract's fingerprint, task and special ids are in its metadata.
    """

    def __init__(
        self,
        contract: Schema,
        *,
        layout: str | None = None,
        unmasked: bool = False,
        tokenizer: bytes | None = None,
    ):
        """Settles the columns.

        Args:
          contract: of the set.
          layout: a name of `schemas.layouts.LAYOUTS`; None for the features as they are stored.
          unmasked: whether `input_ids` are as before masking, without the features of masks.
          tokenizer: tokenizer.json, if the text of each segment is to stand beside its ids, in a
            column `text` for input_ids and `target_text` for target_ids.

        Raises:
          UsageError: the layout cannot say what these rows say.
        """
        if layout is not None:
            check_layout(layout, contract)
        self._codec = contract.codec()
        self._unmasked, self._layout = unmasked, layout
        self._tokenizer = None if tokenizer is None else Tokenizer.from_str(tokenizer.decode())
        self._streams = sequences(contract) if self._tokenizer else {}
        empty = {f.name: np.zeros((0, *f.shape), f.dtype) for f in self._codec.features}
        fields = [(name, array.type) for name, array in self._arrays(empty).items()]
        fields += [(_text_name(ids), pa.list_(pa.string())) for ids in self._streams]
        told = {
            "textmill.fingerprint": contract.fingerprint,
            "textmill.task": contract.task,
            "textmill.special_ids": json.dumps(contract.special_ids, sort_keys=True),
        }
        self.schema = pa.schema(fields, told)

    @property
    def rows_a_chunk(self) -> int:
        """Rows of a chunk, at least one."""
        return max(1, CHUNK_BYTES // self._codec.stride)

    def batch(self, columns: Columns) -> pa.RecordBatch:
        """The table's part of these rows, as they were decoded."""
        arrays = list(self._arrays(columns).values())
        for name, segments in self._streams.items():
            ids = unmask(columns) if name == "input_ids" else columns[name]
            texts = _segment_texts(ids, columns[segments], self._tokenizer)
            arrays.append(pa.array(texts, pa.list_(pa.string())))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays(self, columns: Columns) -> dict[str, pa.Array]:
        """Columns of numbers, in the order of their names."""
        if self._unmasked:
            columns = {**columns, "input_ids": unmask(columns)}
            columns = {name: columns[name] for name in columns if name not in _MASKS}
        if self._layout is not None:
            columns = LAYOUTS[self._layout](columns)
        return {name: _array(columns[name]) for name in sorted(columns)}


def _array(column: np.ndarray) -> pa.Array:
    values = pa.array(column.reshape(-1))
    if column.ndim == 1:
        return values
    return pa.FixedSizeListArray.from_arrays(values, column.shape[1])


def _text_name(ids: str) -> str:
    """The column of text beside one of ids: input_ids -> text, target_ids -> target_text."""
    return f"{ids.removesuffix('ids')}text".removeprefix("input_")


def _segment_texts(
    ids_BxL: np.ndarray, segment_ids_BxL: np.ndarray, tokenizer: Any
) -> list[list[str]]:
    """For each row the texts of its segments, special tokens left out."""
    segments, counts = [], []
    for ids, segment_ids in zip(ids_BxL, segment_ids_BxL, strict=True):
        count = int(segment_ids.max(initial=0))
        segments += [ids[segment_ids == number + 1].tolist() for number in range(count)]
        counts.append(count)
    texts = iter(tokenizer.decode_batch(segments, skip_special_tokens=True))
    return [list(islice(texts, count)) for count in counts]
