"""Shard sets as batches of numpy arrays, for any training loop.

    from trainers.reader import ShardSet

    shards = ShardSet("data/shards")          # the contract is checked, every file's sha256 too
    shards.schema.vocab_size, shards.schema.max_length, shards.rows("train")

    for batch in shards.batches("train", batch_size=32, seed=0):
        batch["input_ids"]                    # uint16 [32, L]; the features of the task
        batch["row_index"], batch["epoch"]    # int64 [32]; which row of the split, in which epoch

    for batch in shards.in_order("validation", batch_size=32):
        batch["row_weights"]                  # uint8 [32]; 0 where the last batch was filled up

Order. `batches` goes on for ever, through a new permutation of all rows in every epoch. Its order
is a pure function of (seed, step): `start_step=1000` continues exactly where step 999 ended, and
needs no saved state. A batch that reaches the end of an epoch goes on into the next one, so every
row comes exactly once an epoch and no row is ever left over.

Hosts. With `process_count=N` each process reads its own N-th part of every batch, and together they
read the batches that one process would.

Speed. A batch is read with one call per shard it touches, in a background thread (`prefetch`).
Opening with `verify=True` reads every byte of the set once (about 1 to 2 GB/s a core for sha256).

Standard library, numpy and `schemas` only, Python 3.8 syntax; `array_record` for sets in that
format.
"""

import importlib.util
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, Generator, Iterator, List, Optional, Tuple

import numpy as np

from schemas.errors import DataError, UsageError
from schemas.records import RowReader, open_rows
from schemas.sidecar import ManifestFile, SetInfo, file_sha256, read_set
from trainers.read_ahead import read_ahead
from trainers.row_order import epoch_and_row

Batch = Dict[str, np.ndarray]
ROWS_A_READ = 1024


class ShardSet:
    """A finished shard set, checked against its contract.

    May be sent to other processes: files are opened where they are first read.

    Attributes:
      directory: where it lies.
      schema: the contract (`schemas.sidecar.Schema`).
      stats: counts (`schemas.sidecar.Statistics`).
      manifest: every file (`schemas.sidecar.Manifest`).
      file_format: the format that is read: array_record if the set has it, else tfrecord.
    """

    def __init__(self, directory: str, *, verify: bool = True, file_format: Optional[str] = None):
        """Reads the sidecars; no rows yet.

        Args:
          directory: that build_shards wrote.
          verify: whether to compare the sha256 of every file with the manifest. Sizes and the
            sidecars are compared in any case.
          file_format: array_record or tfrecord; the default prefers array_record.

        Raises:
          DataError: not a finished set, or not as it was published; names the file.
          UsageError: the set has no such format, or its reader is not installed.
        """
        info = read_set(os.fspath(directory))
        self.directory, self.schema = info.directory, info.schema
        self.stats, self.manifest = info.stats, info.manifest
        self.file_format = _choose_format(info, file_format)
        if verify:
            _verify_files(info)
        self._codec = self.schema.codec()
        self._splits = {
            name: self.manifest.shards(name, self.file_format) for name in self.schema.splits
        }
        self._readers: Dict[str, RowReader] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict:
        """All but open files."""
        return dict(self.__dict__, _readers={}, _lock=None)

    def __setstate__(self, state: dict) -> None:
        """As it was, with no file open."""
        self.__dict__.update(state, _lock=threading.Lock())

    def close(self) -> None:
        """Closes the files; they open again when read."""
        with self._lock:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    def rows(self, split: str) -> int:
        """Rows of a split, masked copies included."""
        return sum(file.rows or 0 for file in self._shards(split))

    def read(self, split: str, row_indices: np.ndarray) -> Batch:
        """Rows by their index in the split, in the order asked for.

        Args:
          split: such as "train".
          row_indices: integers [n], 0 to rows(split) - 1; shards count on from one another.

        Returns:
          For every feature an array [n, *shape].

        Raises:
          DataError: a file cannot be read or holds other rows; names it.
        """
        files = self._shards(split)
        row_indices = np.asarray(row_indices, np.int64)
        ends = np.cumsum([file.rows or 0 for file in files])
        shard_of = np.searchsorted(ends, row_indices, side="right")
        encoded = np.empty((len(row_indices), self._codec.stride), np.uint8)
        with self._lock:
            for shard in np.unique(shard_of):
                here = np.flatnonzero(shard_of == shard)
                first = ends[shard] - (files[shard].rows or 0)
                reader = self._reader(files[shard])
                encoded[here] = reader.read(row_indices[here] - first)
        return self._codec.decode(encoded)

    def batches(
        self,
        split: str,
        *,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        stop_step: Optional[int] = None,
        process_index: int = 0,
        process_count: int = 1,
        prefetch: int = 2,
    ) -> Generator[Batch, None, None]:
        """This process's part of the batches of the steps from `start_step` to before `stop_step`.

        Every batch is a pure function of (seed, its step): the features, `row_index` and `epoch`,
        each with batch_size / process_count rows.

        Args:
          split: such as "train".
          batch_size: rows over all processes.
          seed: of the row order.
          start_step: first step to read, from 0 on.
          stop_step: step to end before; None goes on for ever.
          process_index: this process, from 0 on.
          process_count: divides `batch_size`.
          prefetch: batches that a background thread reads ahead; 0 reads when asked.

        Raises:
          DataError, UsageError: as `read`; the batch size cannot be shared.
        """
        share, first = self._share(split, batch_size, process_index, process_count)
        rows = self.rows(split)
        # Small batches are read several at once: an ArrayRecord call costs as much as many rows.
        steps_a_read = max(1, ROWS_A_READ // share)

        def read() -> Iterator[Batch]:
            step = start_step
            while stop_step is None or step < stop_step:
                stop = step + steps_a_read
                steps = np.arange(step, stop if stop_step is None else min(stop, stop_step))
                positions = steps[:, None] * batch_size + (first + np.arange(share))
                epochs, indices = epoch_and_row(positions.ravel(), rows=rows, seed=seed)
                several = dict(self.read(split, indices), row_index=indices, epoch=epochs)
                for start in range(0, len(indices), share):
                    yield {name: part[start : start + share] for name, part in several.items()}
                step = stop

        return read_ahead(read(), prefetch)

    def in_order(
        self,
        split: str,
        *,
        batch_size: int,
        process_index: int = 0,
        process_count: int = 1,
        prefetch: int = 2,
    ) -> Generator[Batch, None, None]:
        """Every row of a split once, in its order, for evaluation.

        The last batch is filled up with rows of zeros (all padding), so that shapes stay the same;
        `row_weights` uint8 is 1 for a row of the split and 0 for a filling one, whose `row_index`
        is that of the last row.
        """
        share, first = self._share(split, batch_size, process_index, process_count)
        rows = self.rows(split)

        def read() -> Iterator[Batch]:
            for start in range(0, rows, batch_size):
                indices = np.arange(share, dtype=np.int64) + (start + first)
                real = indices < rows
                batch = self.read(split, indices[real])
                filling = [(0, share - int(real.sum()))]
                batch = {
                    name: np.pad(column, filling + [(0, 0)] * (column.ndim - 1))
                    for name, column in batch.items()
                }
                yield dict(
                    batch,
                    row_index=np.minimum(indices, rows - 1),
                    epoch=np.zeros(share, np.int64),
                    row_weights=real.astype(np.uint8),
                )

        return read_ahead(read(), prefetch)

    def _shards(self, split: str) -> List[ManifestFile]:
        if split not in self._splits:
            raise UsageError(
                f"{self.directory} has no split {split!r}: it has {', '.join(sorted(self._splits))}"
            )
        return self._splits[split]

    def _share(
        self, split: str, batch_size: int, process_index: int, process_count: int
    ) -> Tuple[int, int]:
        """Rows of a batch that this process reads, and the first of them."""
        if batch_size < 1 or process_count < 1 or batch_size % process_count:
            raise UsageError(
                f"a batch of {batch_size} rows cannot be shared by {process_count} processes: give "
                "a batch size that is a multiple of their number"
            )
        if not 0 <= process_index < process_count:
            raise UsageError(f"process {process_index} of {process_count}: count from 0")
        if not self.rows(split):
            raise DataError(
                f"{self.directory}: split {split!r} has no rows; build the set from more text or "
                "with other --splits"
            )
        share = batch_size // process_count
        return share, share * process_index

    def _reader(self, file: ManifestFile) -> RowReader:
        if file.path not in self._readers:
            path = os.path.join(self.directory, file.path)
            reader = open_rows(path, self._codec.stride)
            if len(reader) != file.rows:
                raise DataError(
                    f"{path} holds {len(reader):,} rows where the manifest says {file.rows:,}: "
                    "copy the set again or build it anew"
                )
            self._readers[file.path] = reader
        return self._readers[file.path]


def _choose_format(info: SetInfo, wanted: Optional[str]) -> str:
    formats = info.schema.file_formats
    if wanted is not None and wanted not in formats:
        raise UsageError(f"{info.directory} has no {wanted} files: it has {', '.join(formats)}")
    if wanted is None:
        installed = importlib.util.find_spec("array_record") is not None
        usable = [name for name in formats if name != "array_record" or installed]
        if not usable:
            raise UsageError(
                f"{info.directory} holds array_record files, and the package array-record is not "
                "installed: install it, or build the set with --file_format=tfrecord"
            )
        wanted = "array_record" if "array_record" in usable else usable[0]
    return wanted


def _verify_files(info: SetInfo) -> None:
    """Compares the sha256 of every file; in threads, since hashing lets go of the interpreter."""
    published = {os.path.join(info.directory, f.path): f.sha256 for f in info.manifest.files}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hashes = {path: pool.submit(file_sha256, path) for path in published}
        for path, found in hashes.items():
            if found.result() != published[path]:
                raise DataError(
                    f"{path} was changed after the set was published: its sha256 is "
                    f"{found.result()}, where the manifest says {published[path]}. Copy "
                    "the set again or build it anew"
                )
