"""The rows of a dataset as batches of an Arrow table."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.reference import Tokenizer
from textmill.pipelines.inspection.options import ExportOptions
from textmill.pipelines.inspection.read_rows import read_rows, segment_texts, sequences
from textmill.pipelines.inspection.row_text import MASKS
from textmill.pipelines.runners.console import Journal
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.features import unmask
from textmill.schemas.format.layouts import LAYOUTS, check_layout
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.typed_json import read_bounded

CHUNK_BYTES = 4 << 20  # of rows in memory at once; one row group of Parquet


class RowTable:
    """The rows of a dataset as a table with the same columns for every shard.

    Attributes:
      info: the dataset.
      schema: names and types of the columns. A feature [L] is a list of L numbers, a feature [] a
        number. The metadata holds fingerprint, task and special ids.
    """

    def __init__(self, info: DatasetInfo, options: ExportOptions):
        """Chooses the columns.

        Raises:
          UsageError: the layout or --unmask does not fit these rows.
        """
        schema = info.schema
        codec = schema.codec(info.directory)  # raises for a dataset that has no rows
        if options.unmask and not schema.static_masking:
            raise UsageError(
                f"{flag('unmask', True)}: the rows of {info.directory} have no masks to remove; "
                "omit the flag"
            )
        if options.layout is not None:
            check_layout(options.layout, schema)
        self.info, self._options, self._stride = info, options, codec.stride
        self._tokenizer: Tokenizer | None = None
        if options.text:
            content = read_bounded(info.locate("tokenizer.json"))
            self._tokenizer = Tokenizer.from_str(content.decode())
        empty = {f.name: np.zeros((0, *f.shape), f.dtype) for f in codec.features}
        metadata = {
            "textmill.fingerprint": schema.fingerprint,
            "textmill.task": schema.task,
            "textmill.special_ids": json.dumps(schema.special_ids, sort_keys=True),
        }
        arrays = self._arrays(empty)
        fields = [(name, array.type) for name, array in arrays.items()]
        self.schema = pa.schema(fields, metadata)

    def batches(self, shard: ManifestFile, journal: Journal) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a shard in batches."""
        rows = range(0, shard.rows or 0, max(1, CHUNK_BYTES // self._stride))
        for _, columns in read_rows(self.info, shard, rows):
            arrays = list(self._arrays(columns).values())
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield batch
            journal.add(bytes_read=len(batch) * self._stride, rows=len(batch))

    def _arrays(self, columns: dict[str, np.ndarray]) -> dict[str, pa.Array]:
        """Returns the columns: numbers sorted by name, then text."""
        numbers = columns
        if self._options.unmask:
            numbers = {**columns, "input_ids": unmask(columns)}
            numbers = {name: numbers[name] for name in numbers if name not in MASKS}
        if self._options.layout is not None:
            numbers = LAYOUTS[self._options.layout](numbers)
        arrays = {name: _array(numbers[name]) for name in sorted(numbers)}
        if self._tokenizer is not None:
            for ids in sequences(self.info.schema):
                name = f"{ids.removesuffix('ids')}text".removeprefix("input_")  # or target_text
                texts = segment_texts(columns, self.info.schema, self._tokenizer, ids)
                arrays[name] = pa.array(texts, pa.list_(pa.string()))
        return arrays


def _array(column: np.ndarray) -> pa.Array:
    values = pa.array(column.reshape(-1))
    if column.ndim == 1:
        return values
    return pa.FixedSizeListArray.from_arrays(values, column.shape[1])
