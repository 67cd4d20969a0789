"""Reads one shard of whole documents back, in all its formats, and tells what is wrong with it."""

import os
import threading
from collections.abc import Callable, Mapping

import numpy as np

from pipelines.inspection.checks.shard_check import ExpectedRows
from pipelines.rows.ragged import Ragged
from pipelines.writers.document_formats.document_format import document_format, open_documents
from schemas.errors import DataError
from schemas.manifest import ManifestFile


class DocumentCheck:
    """Reads one shard.

    Attributes:
      problems: what is wrong with it; each names a file.
      rows: documents that were read; of a shard in several formats, once.
      tokens: in them.
      examples: none, as documents have no line in evaluation.jsonl.
    """

    def __init__(
        self,
        name: str,
        files: list[ManifestFile],
        expected: ExpectedRows,
        on_bytes: Callable[[int], None],
    ):
        """Prepares to read the shard, when `run` is called; arguments as those of `ShardCheck`."""
        self.problems: list[str] = []
        self.examples: list[np.ndarray] = []
        self.rows = self.tokens = 0
        self._name, self._files = name, files
        self._expected, self._on_bytes = expected, on_bytes

    def run(self, stop: threading.Event, located: Mapping[str, str]) -> None:
        """Reads the shard, unless `stop` is set; see `ShardCheck.run`."""
        schema, first = self._expected.schema, None
        due = {file.path: file.bytes for file in self._files}
        whole = {path for path, at in located.items() if os.path.getsize(at) == due[path]}
        for file_format in schema.file_formats:
            paths = [f"{self._name}.{ending}" for ending in schema.endings(file_format)]
            if stop.is_set() or not whole >= set(paths):
                continue  # hashing told of what is not there, or has another size
            try:
                documents = open_documents(schema, paths[0], located.__getitem__)
            except DataError as error:
                self.problems.append(str(error))
                continue
            self._check(file_format, documents)
            if first is None:
                first = file_format, documents.values
                self.tokens = len(documents.values)
            else:
                self._compare(first, (file_format, documents.values))
        for file in self._files:
            self._on_bytes(file.bytes)

    def _check(self, file_format: str, documents: Ragged) -> None:
        """What one format holds is what the manifest, stats.json and the schema say."""
        place, schema = f"{self._name} as {file_format}", self._expected.schema
        ids, rows = documents.values, self._files[0].rows or 0
        self.rows = rows
        found, exact = len(documents.offsets) - 1, document_format(file_format).TELLS_DOCUMENTS
        if found != rows and (exact or found < rows):
            self.problems.append(
                f"{place} holds {found:,} documents, where the manifest says {rows:,}"
            )
        stats = self._expected.stats.get(self._name)
        if stats and len(ids) != stats.tokens_in_rows:
            self.problems.append(
                f"{place}: tokens_in_rows is {stats.tokens_in_rows:,} in stats.json, but "
                f"{len(ids):,} in the files"
            )
        if len(ids) and int(ids.max()) >= schema.vocab_size:
            self.problems.append(
                f"{place} has an id {int(ids.max())}, not below the vocabulary's "
                f"{schema.vocab_size}"
            )
        # Pieces of a document begin and end anywhere, but the first and the last of a shard.
        bounds = documents.offsets if exact else documents.offsets[[0, -1]]
        if len(ids):
            self._check_edges(place, ids, bounds)

    def _check_edges(self, place: str, ids: np.ndarray, bounds: np.ndarray) -> None:
        parameters = self._expected.schema.parameters
        for name, at, what in (
            ("prefix_ids", bounds[:-1], "begins"),
            ("suffix_ids", bounds[1:] - 1, "ends"),
        ):
            for due in parameters[name]:
                odd = np.flatnonzero(ids[at] != due)
                if len(odd):
                    self.problems.append(
                        f"{place}: document {int(odd[0])} {what} with id {int(ids[at[odd[0]]])}, "
                        f"not {due}"
                    )

    def _compare(self, one: tuple[str, np.ndarray], two: tuple[str, np.ndarray]) -> None:
        common = min(len(one[1]), len(two[1]))
        differ = one[1][:common] != two[1][:common]
        if differ.any() or len(one[1]) != len(two[1]):
            place = int(differ.argmax()) if differ.any() else common
            self.problems.append(
                f"{self._name}: token {place:,} is another as {two[0]} than as {one[0]}"
            )
