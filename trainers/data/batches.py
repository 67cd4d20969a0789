"""Random access to rows: as batches for a training loop, and as a dataset of single rows."""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import closing
from fractions import Fraction
from typing import Any, Dict, Generator, Iterator, NamedTuple, Sequence, TypeVar

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.row_order import epoch_and_row, offsets_of
from textmill.trainers.data.stages import Stages

T = TypeVar("T")
Batch = Dict[str, np.ndarray]
_BYTES_PER_READ = 2 << 20  # since a read costs as much as a hundred rows
_KEPT_BYTES = 8 * _BYTES_PER_READ  # more than all reads that are made ahead
_SECONDS_AT_EXIT = 5  # for a read that waits for a store
_ROWS_PER_ORDER = 8192  # since computing an order costs as much as a thousand rows


class RowDocument(NamedTuple):
    """A segment of a row.

    Attributes:
      row_index: of the row in the split.
      digest: the document's hash, 16 bytes.
      first: the document's token with which the segment begins.
    """

    row_index: int
    digest: bytes
    first: int


class BatchReader(ABC):
    """A dataset, or a mixture of several."""

    name: str  # its directory, for errors
    schema: Schema
    fingerprint: str  # of rows and their meaning; a resumed run compares it
    names: tuple[str, ...] = ()  # short ones of the datasets of a mixture
    stages: Stages | None = None  # of a mixture whose shares change, with starts in steps
    order_name: str = ""  # what decides the order besides seed and fingerprint, if anything does
    row_order: str = "full"  # full or window; of a mixture, those of its datasets: full,window

    @abstractmethod
    def close(self) -> None:
        """Closes the files; they open again when read."""

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, sorted."""

    @abstractmethod
    def rows(self, split: str) -> int:
        """Rows of a split, masked copies included."""

    @abstractmethod
    def read(self, split: str, row_indices: np.ndarray) -> Batch:
        """The rows with these indices, integers [n]: for every feature an array [n, *shape].

        Raises:
          DataError: a file cannot be read or has a different number of rows; names it.
          IndexError, TypeError: an index is outside of the split, or no integer.
        """

    def row_numbers(self, split: str, row_indices: Any) -> np.ndarray:
        """Indices for `read` as int64; raises like `read`."""
        given, rows = np.asarray(row_indices), self.rows(split)
        if given.size and given.dtype.kind not in "iu":
            raise TypeError(f"{self.name}: row {given.flat[0]!r} of {split!r}: give whole numbers")
        outside = given[(given < 0) | (given >= rows)]
        if len(outside):
            raise IndexError(
                f"{self.name} has no row {outside[0]} of {split!r}: it has {rows:,} rows, from 0"
            )
        return given.astype(np.int64)

    @abstractmethod
    def order(self, split: str, positions: np.ndarray, *, seed: int) -> Batch:
        """The rows at these positions, integers [n], of the endless stream of `batches`.

        Step s of batches of B has positions s * B to s * B + B - 1. Returns int64 [n] arrays:
        `row_index`, the row's index in the split, and `epoch`.
        """

    def find_positions(
        self, split: str, row_indices: Any, *, seed: int, stop: int, stream: int = 0
    ) -> Batch:
        """The inverse of `order`: where the stream reads rows, before the position `stop`.

        No position is read for it; the work grows with rows and epochs. Each `stream` that is read
        with one seed has its own order.

        Returns:
          int64 [n] arrays `position` (ascending), `row_index` and `epoch`.

        Raises:
          IndexError, TypeError: as `read`.
        """
        rows, count = self.row_numbers(split, row_indices), self.rows(split)
        found = [np.zeros((3, 0), np.int64)]
        for epoch in range(-(-stop // max(count, 1)) if len(rows) else 0):
            at = self.offsets_of(split, rows, epoch=epoch, seed=seed, stream=stream)
            found.append(np.stack([at + epoch * count, rows, np.full_like(rows, epoch)]))
        return sort_positions(np.concatenate(found, axis=1), stop)

    def offsets_of(
        self, split: str, rows: np.ndarray, *, epoch: int, seed: int, stream: int
    ) -> np.ndarray:
        """The positions of rows in an epoch of one stream of a dataset, from 0: int64 [n]."""
        return offsets_of(rows, rows=self.rows(split), epoch=epoch, seed=seed, stream=stream)

    @abstractmethod
    def documents_of(self, split: str, row_indices: Sequence[int]) -> list[RowDocument]:
        """The segments of rows with their documents, in the order of the rows given.

        From a bucket, the files with the documents of these rows are fetched now.

        Raises:
          DataError: a file cannot be read or is damaged.
          IndexError, TypeError: as `read`.
        """

    def rows_of(self, split: str, digest: bytes) -> np.ndarray:
        """The rows that hold a document, all masked copies of them: int64 [n], ascending.

        Raises:
          DataError: a file cannot be read or is damaged.
        """
        return np.array(self.find_documents(split, Digests(digest)).get(digest, []), np.int64)

    @abstractmethod
    def find_documents(self, split: str, listed: Digests) -> dict[bytes, list[int]]:
        """The rows of each listed document that the split has, as in `rows_of`.

        Each shard is searched once for all of them.

        Raises:
          DataError: a file cannot be read or is damaged.
        """

    def take_positions(
        self, split: str, positions: np.ndarray, *, seed: int, stream: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Epochs and row indices of positions in one stream of a dataset: int64 [n] each.

        Each `stream` that is read with one seed has its own order; `offsets_of` is the inverse.
        """
        return epoch_and_row(positions, rows=self.rows(split), seed=seed, stream=stream)

    def fetch_ahead(  # noqa: B027  datasets on a disk need none
        self, split: str, position: int, stop: int | None, *, seed: int | None, stream: int = 0
    ) -> None:
        """Begins to fetch what is read from a position on, if the dataset is streamed.

        Args:
          split: name of a split.
          position: in the stream of `batches`, or in stored order.
          stop: the position before which reading ends; None if it is unknown.
          seed: that of `batches`; None for stored order.
          stream: as in `take_positions`.
        """

    @abstractmethod
    def mean_tokens_per_row(self, split: str) -> float:
        """Tokens without padding in a row of `batches`, on average."""

    def rows_of_tokens(self, split: str, tokens: Fraction) -> Fraction:
        """The number of rows of `batches` that hold this many tokens, on average."""
        return tokens / Fraction(self.mean_tokens_per_row(split) or 1.0)

    def needs_download(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a bucket first."""
        return False

    def describe_passes(self, split: str, steps: int, batch_size: int) -> list[str]:
        """Lines on how often a run reads each dataset of a mixture; none for one dataset."""
        return []

    @property
    def rows_per_read(self) -> int:
        """Number of rows for one efficient read, which may make several batches."""
        return max(1, _BYTES_PER_READ // sum(feature.bytes for feature in self.schema.features))

    def batches(
        self,
        split: str,
        *,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        stop_step: int | None = None,
        stride: int = 1,
        process_index: int = 0,
        process_count: int = 1,
        prefetch: int = 2,
    ) -> Generator[Batch, None, None]:
        """This process's part of each batch from `start_step` up to, not including, `stop_step`.

        Every batch is a pure function of (seed, step): the features and the columns of `order`,
        each with batch_size / process_count rows. Steps and processes count from 0. Without a
        `stop_step` the stream is endless; a `stride` of 3 takes every third step. A background
        thread makes `prefetch` reads ahead, of one or more batches each; 0 starts no thread.

        Raises:
          DataError: as `read`.
          UsageError: the processes cannot share the batch size equally, or a step is below 0.
        """
        if start_step < 0 or stride < 1:
            raise UsageError(
                f"start_step={start_step}, stride={stride}: steps count from 0, and a stride from 1"
            )
        share, first = self._share(split, batch_size, process_index, process_count)

        last = None if stop_step is None else stop_step * batch_size

        def orders() -> Iterator[tuple[np.ndarray, Batch]]:
            width = max(1, _ROWS_PER_ORDER // share) * stride
            for start in itertools.count(start_step, width):
                stop = start + width if stop_step is None else min(start + width, stop_step)
                if start >= stop:
                    return
                steps = np.arange(start, stop, stride)
                positions = steps[:, None] * batch_size + (first + np.arange(share))
                yield steps, self.order(split, positions.ravel(), seed=seed)

        def read() -> Iterator[Batch]:
            for steps, order in orders():
                start, stop = 0, len(order["row_index"])
                while start < stop:
                    position = int(steps[start // share]) * batch_size
                    self.fetch_ahead(split, position, last, seed=seed)
                    # While files are being fetched, a batch waits only for its own rows.
                    count = 1 if self.needs_download(split) else max(1, self.rows_per_read // share)
                    some = _slice(order, start, start + count * share)
                    yield dict(self.read(split, some["row_index"]), **some)
                    start += count * share

        def batches() -> Generator[Batch, None, None]:
            # Whole reads come from the thread, since handing over takes longer than a small batch.
            with closing(read_ahead(read(), prefetch)) as reads:
                for several in reads:
                    for start in range(0, len(several["row_index"]), share):
                        yield _slice(several, start, start + share)

        return batches()

    def sequential_batches(
        self,
        split: str,
        *,
        batch_size: int,
        most: int | None = None,
        process_index: int = 0,
        process_count: int = 1,
        prefetch: int = 2,
    ) -> Generator[Batch, None, None]:
        """Every row of a split once, or the first `most`, in stored order, for evaluation.

        The last batch is padded with rows of zeros, so that shapes stay the same: `row_weights`
        (uint8) is 1 for rows of the split and 0 for those, whose `row_index` is the last row's.
        """
        share, first = self._share(split, batch_size, process_index, process_count)
        rows = self._sequential_rows(split, most)

        def read() -> Iterator[Batch]:
            for start in range(0, rows, batch_size):
                self.fetch_ahead(split, start, rows, seed=None)
                indices = np.arange(share, dtype=np.int64) + (start + first)
                real = indices < rows
                batch = self.read(split, indices[real])
                missing = share - int(real.sum())
                for name, column in batch.items() if missing else ():
                    filling = [(0, missing)] + [(0, 0)] * (column.ndim - 1)
                    batch[name] = np.pad(column, filling)
                yield dict(
                    batch,
                    row_index=np.minimum(indices, rows - 1),
                    epoch=np.zeros(share, np.int64),
                    row_weights=real.astype(np.uint8),
                )

        return read_ahead(read(), prefetch)

    def count_sequential_batches(
        self, split: str, *, batch_size: int, most: int | None = None
    ) -> int:
        """The number of batches of `sequential_batches`."""
        return -(-self._sequential_rows(split, most) // batch_size)

    def _sequential_rows(self, split: str, most: int | None) -> int:
        return min(self.rows(split), sys.maxsize if most is None else most)

    def split(self, name: str, *, seed: int | None = None, count: int | None = None) -> SplitRows:
        """One split as a dataset of single rows, in stored order or in that of `batches`.

        With a seed, row i is the row at position i of the stream, and there are `count` rows, by
        default as many as in the split. The weights of a mixture apply only with a seed.
        """
        return SplitRows(self, name, seed, count)

    def no_split(self, split: str) -> UsageError:
        """The error for an unknown split."""
        return UsageError(f"{self.name} has no split {split!r}: it has {', '.join(self.splits)}")

    def no_rows(self, split: str, field: str = "") -> DataError:
        """The error for an empty split, which a field of the options names."""
        another = f", or give another {flag(field)}" if field else ""
        return DataError(
            f"{self.name}: split {split!r} has no rows; build the dataset from more text or with "
            f"other {flag('splits')}{another}"
        )

    def _share(
        self, split: str, batch_size: int, process_index: int, process_count: int
    ) -> tuple[int, int]:
        """Number of rows that this process reads of a batch, and the first of them."""
        if batch_size < 1:
            raise UsageError(f"a batch of {batch_size} rows: give at least 1")
        if process_count < 1 or batch_size % process_count:
            raise UsageError(
                f"a batch of {batch_size} rows cannot be shared by {process_count} processes: give "
                "a batch size that is a multiple of their number"
            )
        if not 0 <= process_index < process_count:
            raise UsageError(f"process {process_index} of {process_count}: count from 0")
        if not self.rows(split):
            raise self.no_rows(split)
        share = batch_size // process_count
        return share, share * process_index


class SplitRows:
    """The rows of one split by index: a map-style dataset for PyTorch, a source for grain.

        rows = ShardSet("shards").split("train")
        len(rows), rows[0]["input_ids"]                    # uint16 [L]
        torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True, num_workers=4)
        grain.MapDataset.source(rows).shuffle(seed=0).batch(32)
        ShardSet("shards").split("train", seed=0, count=10**6)    # in the order of `batches`

    It can be pickled: each process opens files on its first read.
    """

    def __init__(
        self,
        reader: BatchReader,
        split: str,
        seed: int | None = None,
        count: int | None = None,
    ):
        """Like `BatchReader.split`; a UsageError for a count without a seed."""
        self._reader, self._split, self._seed = reader, split, seed
        self._rows = reader.rows(split)
        if seed is None and count is not None:
            raise UsageError(f"{count} rows of {self!r}: give a seed too, for their order")
        if seed is not None and not self._rows:
            raise reader.no_rows(split)
        self._rows = self._rows if count is None else count

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def __getitem__(self, index: int) -> Batch:
        """One row: for every feature an array of its shape; -1 is the last row."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """Several rows with one read; PyTorch's DataLoader calls this for a batch."""
        rows = np.asarray(indices)
        if rows.size and rows.dtype.kind not in "iu":
            raise TypeError(f"row {rows[0]!r} of {self!r}: give whole numbers")
        outside = (rows < -self._rows) | (rows >= self._rows)
        if outside.any():
            raise IndexError(f"row {rows[outside][0]} of {self!r}")
        rows = rows.astype(np.int64)
        rows = rows % max(self._rows, 1)
        if self._seed is not None:
            first = int(rows.min()) if len(rows) else 0
            self._reader.fetch_ahead(self._split, first, self._rows, seed=self._seed)
            rows = self._reader.order(self._split, rows, seed=self._seed)["row_index"]
        columns = self._reader.read(self._split, rows)
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def __iter__(self) -> Iterator[Batch]:
        """All rows in order, many with one read."""
        step = self._reader.rows_per_read
        for start in range(0, self._rows, step):
            if self._seed is None:
                self._reader.fetch_ahead(self._split, start, self._rows, seed=None)
            yield from self.__getitems__(range(start, min(start + step, self._rows)))

    def __repr__(self) -> str:
        """Identifies the rows: grain compares this on resume."""
        seed = "" if self._seed is None else f", seed {self._seed}"
        if self._seed is not None and self._reader.row_order != "full":
            seed += f", order {self._reader.row_order}"
        return f"SplitRows({self._reader.name!r}, {self._split!r}, {self._rows} rows{seed})"


def sort_positions(found: np.ndarray, stop: int) -> Batch:
    """Columns for `find_positions` of positions below `stop`, rows and epochs: int64 [3, n]."""
    found = found[:, found[0] < stop]
    found = found[:, np.argsort(found[0])]
    return dict(zip(("position", "row_index", "epoch"), found))


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next read: fresh pages cost as much as decoding.

    It returns large blocks to the system, but not those of sizes that a program freed before
    (mallopt(3), M_MMAP_THRESHOLD), so a block is allocated and freed. No page of it is touched.
    """
    _ = np.empty(_KEPT_BYTES, np.uint8)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    return {name: column[start:stop] for name, column in batch.items()}


def read_ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """The same items, computed up to `depth` ahead in a background thread; 0 starts no thread.

    An error in the thread is raised in place of its item. Closing or dropping the generator ends
    the thread.
    """
    if not depth:
        yield from items
        return
    ready = queue.Queue(depth)  # type: queue.Queue[tuple]
    stopped = threading.Event()

    def put(message: tuple) -> None:
        while not stopped.is_set():
            try:
                return ready.put(message, timeout=0.1)
            except queue.Full:
                continue

    def fill() -> None:
        try:
            for item in items:
                put(("item", item))
                if stopped.is_set():
                    return
            put(("end", None))
        except BaseException as error:  # noqa: B036  raised again in the consumer's thread
            put(("error", error))

    def end(seconds: float | None = None) -> None:
        stopped.set()
        thread.join(seconds)

    thread = threading.Thread(target=fill, name="read_ahead", daemon=True)
    thread.start()
    # An interpreter that shuts down under a thread in numpy's loops may abort (SIGABRT).
    at_exit = weakref.finalize(thread, end, _SECONDS_AT_EXIT)
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        if at_exit.detach():
            end()
