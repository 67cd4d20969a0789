"""The documents of a split's rows, in the files `.documents` beside its shards. No framework."""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.manifest import ROW_DOCUMENTS, ManifestFile
from textmill.schemas.format.row_documents import ROUTED_BY_DIGEST, RowDocuments, shards_of
from textmill.trainers.data.batches import RowDocument


class SplitDocuments:
    """The files of the documents of a split's rows, each opened when it is first needed."""

    def __init__(self, shards: Sequence[ManifestFile], locate: Callable[[str], str], *, task: str):
        """Opens nothing.

        Args:
          shards: of the split, in order.
          locate: the local path of a file of the dataset; fetches it from a bucket.
          task: of the dataset.
        """
        self._shards, self._locate, self._task = shards, locate, task
        self._ends = np.cumsum([file.rows or 0 for file in shards], dtype=np.int64)
        self._files: dict[int, RowDocuments] = {}

    def documents_of(self, rows: np.ndarray) -> list[RowDocument]:
        """The segments of rows with their documents, in the order of `rows`, int64 [n].

        Raises:
          DataError: a file cannot be read or is damaged.
        """
        found: dict[int, list[RowDocument]] = {}
        shard_of = np.searchsorted(self._ends, rows, side="right")
        for shard in np.unique(shard_of).tolist():
            documents, own = self._open(shard), np.unique(rows[shard_of == shard])
            segments = documents.documents_of(own - self._first(shard))
            for row, number, first in zip(*(values.tolist() for values in segments)):
                index = int(own[row])
                digest = documents.digests[number].tobytes()
                found.setdefault(index, []).append(RowDocument(index, digest, first))
        return [segment for row in rows.tolist() for segment in found[row]]

    def find(self, listed: Digests) -> dict[bytes, list[int]]:
        """The rows of each listed document that the split has, ascending.

        Raises:
          DataError: a file cannot be read or is damaged.
        """
        numbers: Iterable[int] = range(len(self._shards))
        if self._task in ROUTED_BY_DIGEST and self._shards:
            numbers = np.unique(shards_of(listed.digests, len(self._shards))).tolist()
        found: dict[bytes, list[int]] = {}
        for shard in numbers:
            first = self._first(shard)
            for digest, rows in self._open(shard).find_documents(listed).items():
                found.setdefault(digest, []).extend(row + first for row in rows)
        return found

    def _first(self, shard: int) -> int:
        return int(self._ends[shard]) - (self._shards[shard].rows or 0)

    def _open(self, shard: int) -> RowDocuments:
        if shard not in self._files:
            file = self._shards[shard]
            path = self._locate(f"{file.path.split('.', 1)[0]}.{ROW_DOCUMENTS}")
            documents = RowDocuments(path)
            if documents.rows != file.rows:
                raise DataError(
                    f"{documents.path} has the documents of {documents.rows:,} rows, not of the "
                    f"manifest's {file.rows:,}: copy or build the dataset again"
                )
            self._files[shard] = documents
        return self._files[shard]
