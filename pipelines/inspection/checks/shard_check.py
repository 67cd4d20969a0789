"""Reads one shard back, in all its formats, and tells what is wrong with it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.inspection.checks.row_checks import (
    COUNTED,
    Columns,
    count,
    example_names,
    row_problems,
)
from pipelines.tasks.task import task_class
from pipelines.writers.highway_hash import highway_hash
from schemas.errors import DataError
from schemas.features import unmask
from schemas.manifest import ManifestFile
from schemas.records import RowReader, open_rows
from schemas.sidecar import Schema
from schemas.statistics import ShardStatistics

_BATCH_ROWS = 2048  # some hundred KB a column, which stay in the cache


@dataclass(frozen=True)
class ExpectedRows:
    """What rows are checked against.

    Attributes:
      schema: of the set.
      stats: counts by shard; empty where stats.json cannot be trusted.
      prefix: ids that the tokenizer puts before a text.
      suffix: ids that it puts after one.
      evaluation: uint64, names of the lines of evaluation.jsonl; None where there is nothing to
        hold against.
    """

    schema: Schema
    stats: dict[str, ShardStatistics]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    evaluation: np.ndarray | None = None


class ShardCheck:
    """Reads one shard.

    Attributes:
      files: the shard in each of its formats.
      problems: what is wrong with it; each names file, row and value.
      rows: read; of a shard in two formats, once.
      tokens: in them, padding not counted.
      examples: uint64, the lines of evaluation.jsonl that its rows name, a batch each.
    """

    def __init__(
        self,
        name: str,
        files: list[ManifestFile],
        expected: ExpectedRows,
        on_bytes: Callable[[int], None],
    ):
        """Prepares to read the shard, when `run` is called.

        Args:
          name: of the shard: "train-00000-of-00004".
          files: the shard in each of its formats.
          expected: what its rows are checked against.
          on_bytes: called with numbers of bytes as they are done.
        """
        self.problems: list[str] = []
        self.examples: list[np.ndarray] = []
        self.files = files
        self._name = name
        self._expected = expected
        self._codec = expected.schema.codec()
        self._on_bytes = on_bytes
        self._counts: Counter[str] = Counter()
        self._labels: Counter[str] = Counter()
        self._row_hashes: list[np.ndarray] = []
        self._all_counted = True

    @property
    def rows(self) -> int:
        """The number of rows that were read so far."""
        return self._counts["rows"]

    @property
    def tokens(self) -> int:
        """The number of tokens in the rows that were read."""
        return self._counts["tokens_in_rows"]

    def run(self, stop: threading.Event, located: Mapping[str, str]) -> None:
        """Reads the shard, unless `stop` is set before or meanwhile.

        Args:
          stop: set by who wants no more.
          located: where its files lie on this machine, by path; others are passed over.
        """
        readers = self._open(located)
        try:
            rows = max((len(reader) for reader in readers.values()), default=0)
            for start in range(0, rows, _BATCH_ROWS):
                if stop.is_set():
                    return
                self._check_batch(self._read(readers, start), start)
            if readers and self._all_counted:
                self._check_counts()
                self._check_copies()
        finally:
            for reader in readers.values():
                reader.close()

    def _open(self, located: Mapping[str, str]) -> dict[str, RowReader]:
        """Path to reader, of the files that open."""
        readers: dict[str, RowReader] = {}
        for file in self.files:
            if file.path not in located:
                continue  # hashing told of it
            path = located[file.path]
            try:
                reader = readers[file.path] = open_rows(path, self._codec.stride, highway_hash)
            except DataError as error:
                self.problems.append(str(error))
                continue
            if len(reader) != file.rows:
                self.problems.append(
                    f"{file.path} holds {len(reader):,} rows, where the manifest says {file.rows:,}"
                )
        return readers

    def _read(self, readers: dict[str, RowReader], start: int) -> dict[str, np.ndarray]:
        """Encoded rows by path; a file that cannot be read on leaves `readers`."""
        batches = {}
        for path, reader in list(readers.items()):
            stop = min(start + _BATCH_ROWS, len(reader))
            try:
                batches[path] = reader.read_range(min(start, stop), stop)
            except DataError as error:
                self.problems.append(str(error))
                readers.pop(path).close()
        return batches

    def _check_batch(self, batches: dict[str, np.ndarray], start: int) -> None:
        """Checks the rows of one format, and that the other has the same."""
        first: tuple[str, np.ndarray] | None = None
        for path, rows in batches.items():
            self._on_bytes(rows.size)
            if first is not None:
                self._compare(first, (path, rows), start)
                continue
            try:
                columns = self._codec.decode(rows, first_row=start)
            except DataError as error:
                self.problems.append(f"{path}: {error}")
                continue
            first = path, rows
            self._check_rows(path, columns, start)
        self._all_counted &= first is not None

    def _compare(
        self, one: tuple[str, np.ndarray], two: tuple[str, np.ndarray], start: int
    ) -> None:
        common = min(len(one[1]), len(two[1]))
        differ = (one[1][:common] != two[1][:common]).any(axis=1)
        if differ.any():
            row = start + int(differ.argmax())
            self.problems.append(f"{two[0]}: row {row} is another than in {one[0]}")

    def _check_rows(self, path: str, columns: Columns, start: int) -> None:
        expected = self._expected
        problems = row_problems(
            columns,
            expected.schema,
            split=self._name.rsplit("-", 3)[0],
            prefix=expected.prefix,
            suffix=expected.suffix,
            evaluation=expected.evaluation,
        )
        self.problems += [f"{path}: row {start + p.row}: {p.message}" for p in problems]
        self._counts.update(count(columns))
        if task_class(expected.schema.task).chooses_tokens:
            self._counts["trained"] += int(columns["loss_weights"].sum())
        if "label" in columns:
            self._labels.update(_count_labels(columns, expected.schema))
        if expected.evaluation is not None:
            self.examples.append(example_names(columns))
        if expected.schema.mask_copies > 1 and not problems:
            self._row_hashes.append(_hash_rows(unmask(columns)))

    def _check_counts(self) -> None:
        """What was counted is what stats.json says."""
        if self._name not in self._expected.stats:
            return
        stats = self._expected.stats[self._name]
        for name, due in stats.labels.items():
            if self._labels[name] != due:
                self.problems.append(
                    f"{self._name}: {due:,} documents are labelled {name!r} in stats.json, but "
                    f"{self._labels[name]:,} in the rows"
                )
        for name in (*COUNTED, "trained"):
            if self._counts[name] != getattr(stats, name):
                self.problems.append(
                    f"{self._name}: {name} is {getattr(stats, name):,} in stats.json, but "
                    f"{self._counts[name]:,} in the rows"
                )

    def _check_copies(self) -> None:
        """Without its masks, each row is there `mask_copies` times."""
        copies = self._expected.schema.mask_copies
        if not self._row_hashes or self.problems:
            return
        hashes = np.concatenate(self._row_hashes)
        rows, times = np.unique(hashes, return_counts=True)
        odd = times % copies != 0
        if odd.any():
            row = int(np.flatnonzero(hashes == rows[odd.argmax()])[0])
            self.problems.append(
                f"{self._name}: row {row} without its masks is there {times[odd.argmax()]} times, "
                f"where mask_copies is {copies}"
            )


def _hash_rows(input_ids: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row: ids times odd random numbers, added up (modulo 2**64)."""
    random = np.random.default_rng(0).integers(0, 1 << 63, input_ids.shape[1], np.uint64)
    return (input_ids.astype(np.uint64) * (random * np.uint64(2) + np.uint64(1))).sum(axis=1)


def _count_labels(columns: Columns, schema: Schema) -> dict[str, int]:
    """Rows of each class, as statistics name them."""
    classes = schema.parameters["classes"]
    counts = np.bincount(columns["label"], minlength=len(classes)).tolist()
    return dict(zip(classes, counts, strict=False))  # a label beyond them is a problem of its row
