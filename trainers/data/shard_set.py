"""Datasets as batches of numpy arrays, for any training loop.

    from textmill.trainers.reader import ShardSet

    shards = ShardSet("data/shards")          # checks the schema and every file's sha256
    shards.schema.vocab_size, shards.schema.max_length, shards.rows("train")

    for batch in shards.batches("train", batch_size=32, seed=0):
        batch["input_ids"]                    # uint16 [32, L]; the features of the task
        batch["row_index"], batch["epoch"]    # int64 [32]; the row's index in the split, its epoch

    for batch in shards.sequential_batches("validation", batch_size=32):
        batch["row_weights"]                  # uint8 [32]; 0 for the padding rows of the last batch

    shards.split("train")[0]["input_ids"]     # uint16 [L]; a dataset for PyTorch, grain, ...
    shards.documents_of("train", [7])     # the documents of row 7, and where its segments begin
    shards.rows_of("train", digest)       # int64 [n]; the rows that hold a document

    ShardSet.mix({"books": 0.7, "web": 0.3})  # several datasets read as one, by weight
    ShardSet("gs://bucket/shards", cache_dir="/disk/cache")    # from a bucket, see below
    ShardSet("hf://datasets/me/shards", cache_gigabytes=1)     # larger than the cache: streamed

Order. `batches` is endless, with a new permutation of all rows in every epoch. Its order is a pure
function of (seed, step): `start_step=1000` continues exactly where step 999 ended, without saved
state. A batch may cross into the next epoch, so every epoch has each row exactly once.

With `order="window"`, an epoch permutes pieces of 1 MiB of rows, takes 128 of them at a time, and
permutes the rows of these. It is the order of a dataset at a URL that does not fit into the cache,
whose pieces are fetched ahead, checked and dropped; a local dataset may take it, too.

With `process_count=N` each process reads its N-th part of every batch; together they read the
batches that one process would. `verify=True` reads every byte of the dataset once (sha256 takes
about 1 to 2 GB/s a core). Files at a URL are fetched into a cache when their rows are first read;
the other files of the split follow in the background.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Sequence

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files.cache import CACHE_GIGABYTES, Cache, default_directory
from textmill.schemas.files.finished import DatasetInfo, read_dataset
from textmill.schemas.files.set_files import CachedFiles, LocalFiles
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.mapped_rows import MappedRows
from textmill.schemas.format.records import RowReader, open_rows
from textmill.trainers.data.batches import Batch, BatchReader, RowDocument, keep_freed_memory
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.split_documents import SplitDocuments
from textmill.trainers.data.streamed_rows import WINDOWS_AHEAD, StreamedRows
from textmill.trainers.data.turns import shares_of
from textmill.trainers.data.window_order import WINDOW_PIECES, WindowOrder

ORDERS = ("auto", "window", "full")


class ShardSet(BatchReader):
    """A dataset of rows, checked against its schema.

    It can be pickled and forked: each process opens files on its first read.

    Attributes:
      directory: directory or URL; `name` is the same.
      stats: counts (`schemas.format.statistics.Statistics`).
      manifest: every file (`schemas.format.manifest.Manifest`).
      file_format: the format to read, array_record or tfrecord.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        verify: bool = True,
        file_format: str | None = None,
        cache_dir: str | None = None,
        cache_gigabytes: float = CACHE_GIGABYTES,
        follow_links: bool = False,
        order: str = "auto",
    ):
        """Reads the metadata files, but no rows.

        Args:
          directory: output of build_shards, or a URL such as gs://bucket/shards.
          verify: whether to compare the sha256 of every file with the manifest. Sizes, metadata
            files and fetched files are always compared.
          file_format: None takes array_record if the dataset has it, else tfrecord.
          cache_dir: for files from a bucket; None is textmill in the user's cache directory
            ($XDG_CACHE_HOME or ~/.cache).
          cache_gigabytes: size limit of all datasets there, in 1e9 bytes.
          follow_links: whether to open files that are links to outside the directory.
          order: full, a permutation of all rows, for which a dataset at a URL must fit into the
            cache; window, for which a few pieces of it must fit; or auto, which is window for a
            dataset at a URL that is larger than the cache, else full.

        Raises:
          DataError: the dataset is unfinished, or a file has changed; names the file. Or a dataset
            in a bucket does not fit into the cache, or the bucket does not answer.
          UsageError: the dataset has no such format, or holds tokenized documents; the package for
            the bucket is not installed.
        """
        cache = Cache(cache_dir or default_directory(), cache_gigabytes)
        info = read_dataset(os.fspath(directory), cache, verify=verify, follow_links=follow_links)
        self.directory = self.name = info.directory
        self.schema, self.fingerprint = info.schema, info.manifest.identify_rows()
        self._codec = self.schema.codec(info.directory)
        self.stats, self.manifest = info.stats, info.manifest
        self.file_format = _choose_format(info, file_format)
        self._info, self._files = info, info.files
        if verify and isinstance(self._files, LocalFiles):
            self._files.check_bytes()
        self._splits = {
            name: self.manifest.shards(name, self.file_format) for name in self.schema.splits
        }
        self._paths = {name: [f.path for f in files] for name, files in self._splits.items()}
        self._ends = {
            name: np.cumsum([file.rows or 0 for file in files], dtype=np.int64)
            for name, files in self._splits.items()
        }
        self.row_order = self._choose_order(order)
        self.order_name = "" if self.row_order == "full" else self.row_order
        size = self._codec.piece_rows
        self._windows: dict[str, WindowOrder] = {}
        if self.row_order == "window":
            for name, files in self._splits.items():
                counts = [file.rows or 0 for file in files]
                self._windows[name] = WindowOrder(counts, size, WINDOW_PIECES)
        self._is_streamed = bool(self._windows) and isinstance(self._files, CachedFiles)
        self.cached_bytes = self._count_cached()
        self._open_nothing()

    def _choose_order(self, order: str) -> str:
        """Resolves auto."""
        if order not in ORDERS:
            raise UsageError(f"order={order!r}: give one of {', '.join(ORDERS)}")
        shards = [file for files in self._splits.values() for file in files]
        if isinstance(self._files, CachedFiles) and order != "full":
            if sum(file.bytes for file in shards) > self._files.bound:
                return "window"
        return "full" if order == "auto" else order

    def _count_cached(self) -> int:
        """The bytes of shards that the cache holds at a time; makes room for them."""
        if not isinstance(self._files, CachedFiles):
            return 0
        shards = [file for files in self._splits.values() for file in files]
        size = sum(file.bytes for file in shards)
        if not self._is_streamed:
            self._files.reserve([file.path for file in shards])
            return size
        # A window is read, one fetched ahead, and other processes fetch before they make room.
        rows = (WINDOWS_AHEAD + 1) * WINDOW_PIECES * self._codec.piece_rows
        least = min(size, rows * size // max(1, sum(file.rows or 0 for file in shards)))
        self._files.check_room(least)
        return least

    def _open_nothing(self) -> None:
        self._readers: dict[str, list[RowReader | None]] = {}
        self._mapped: dict[str, MappedRows] = {}
        self._documents: dict[str, SplitDocuments] = {}
        self._streamed: dict[str, StreamedRows] = {}
        self._lock, self._process = threading.Lock(), os.getpid()
        keep_freed_memory()

    def __getstate__(self) -> dict:
        """Everything but open files."""
        nothing = {"_readers": {}, "_mapped": {}, "_documents": {}, "_streamed": {}}
        return {**self.__dict__, **nothing, "_lock": None}

    def __setstate__(self, state: dict) -> None:
        """Restores everything but open files."""
        vars(self).update(state)
        self._open_nothing()

    def close(self) -> None:
        """Closes the files; they open again when read."""
        with self._lock:
            self._mapped.clear()
            while self._readers:
                for reader in self._readers.popitem()[1]:
                    if reader is not None:
                        reader.close()
            self._documents.clear()
            self._streamed.clear()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, sorted."""
        return tuple(sorted(self._splits))

    def rows(self, split: str) -> int:
        """Rows of a split, masked copies included."""
        self._shards(split)
        return int(self._ends[split][-1]) if len(self._ends[split]) else 0

    def read(self, split: str, row_indices: np.ndarray) -> Batch:
        """Rows by their index in the split; see `BatchReader.read`."""
        row_indices = self.row_numbers(split, row_indices)
        ends = self._ends[split]
        if self._process != os.getpid():
            # A fork shares file offsets with its parent, and a thread of the parent may hold the
            # lock.
            self._open_nothing()
        if self._is_streamed and len(row_indices):
            return self._codec.decode(self._stream(split).gather(row_indices))
        shard_of = np.searchsorted(ends, row_indices, side="right")
        self._bring(split, shard_of)
        first = np.append(0, ends)[shard_of]
        with self._lock:
            mapped = self._open(split, shard_of)
            return self._codec.decode(mapped.gather(shard_of, row_indices - first))

    def documents_of(self, split: str, row_indices: Sequence[int]) -> list[RowDocument]:
        """See `BatchReader.documents_of`."""
        rows = self.row_numbers(split, row_indices)
        return self._documents_of(split).documents_of(rows)

    def find_documents(self, split: str, listed: Digests) -> dict[bytes, list[int]]:
        """See `BatchReader.find_documents`."""
        return self._documents_of(split).find(listed)

    def paths(self, split: str) -> list[str]:
        """The files of a split in order, fetched from a bucket; for other readers of the format."""
        self._bring(split, np.arange(len(self._shards(split))))
        return [self.locate(path) for path in self._paths[split]]

    def locate(self, path: str) -> str:
        """Local path of a file such as "tokenizer.json"; a DataError if it cannot be fetched."""
        return self._info.locate(path)

    def mean_tokens_per_row(self, split: str) -> float:
        """Those of stats.json: the split's `tokens_in_rows` by its `rows`."""
        return self.stats.split(split).tokens_in_rows / max(1, self.rows(split))

    def needs_download(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a bucket first."""
        self._shards(split)
        return not (self._is_streamed or self._files.all_here(self._paths[split]))

    def decode(self, record: bytes) -> Batch:
        """One row from a record, which is a serialized tf.train.Example."""
        columns = self._codec.decode(np.frombuffer(record, np.uint8)[None])
        return {name: column[0] for name, column in columns.items()}

    def order(self, split: str, positions: np.ndarray, *, seed: int) -> Batch:
        """A new permutation of all rows in every epoch; see `BatchReader.order`."""
        epochs, rows = self.take_positions(split, positions, seed=seed)
        return {"row_index": rows, "epoch": epochs}

    def take_positions(
        self, split: str, positions: np.ndarray, *, seed: int, stream: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `BatchReader.take_positions`; in windows, if that is `row_order`."""
        if self.row_order == "full":
            return super().take_positions(split, positions, seed=seed, stream=stream)
        self._shards(split)
        return self._windows[split].epoch_and_row(positions, seed=seed, stream=stream)

    def offsets_of(
        self, split: str, rows: np.ndarray, *, epoch: int, seed: int, stream: int
    ) -> np.ndarray:
        """See `BatchReader.offsets_of`."""
        if self.row_order == "full":
            return super().offsets_of(split, rows, epoch=epoch, seed=seed, stream=stream)
        self._shards(split)
        return self._windows[split].offsets_of(rows, epoch=epoch, seed=seed, stream=stream)

    def fetch_ahead(
        self, split: str, position: int, stop: int | None, *, seed: int | None, stream: int = 0
    ) -> None:
        """See `BatchReader.fetch_ahead`: the windows of the position and after it."""
        if self._is_streamed:
            self._stream(split).expect(position, stop, seed=seed, stream=stream)

    def _stream(self, split: str) -> StreamedRows:
        if self._process != os.getpid():  # as in `read`
            self._open_nothing()
        with self._lock:
            if split not in self._streamed:
                assert isinstance(self._files, CachedFiles)
                shards, stride = self._shards(split), self._codec.stride
                self._streamed[split] = StreamedRows(
                    self._files, shards, self.file_format, stride, self._windows[split]
                )
            return self._streamed[split]

    @staticmethod
    def mix(weights: dict[str, float], seed: int = 0, **opening: Any) -> Mixture[ShardSet]:
        """Datasets read as one, by weight: `ShardSet.mix({"books": 0.7, "web": 0.3}, seed=1)`.

        `opening` is as for ShardSet: verify, cache_dir, cache_gigabytes, follow_links, order.

        Raises:
          DataError: one is not a finished dataset.
          UsageError: their rows mean different things; names the difference.
        """
        if not weights:
            raise UsageError("the mixture is empty: give at least one directory with its weight")
        directories, shares = list(map(os.fspath, weights)), list(weights.values())
        shares_of(directories, shares)  # before all bytes are read
        return Mixture(open_sets(directories, **opening), shares, seed=seed)

    def _shards(self, split: str) -> list[ManifestFile]:
        if split not in self._splits:
            raise self.no_split(split)
        return self._splits[split]

    def _bring(self, split: str, shards: np.ndarray) -> None:
        """Fetches these shards of a split; the others follow in the background, in order."""
        if not len(shards):
            return
        paths = self._paths[split]
        if self._files.all_here(paths):
            return
        _, first = np.unique(shards, return_index=True)
        needed = [paths[shard] for shard in shards[np.sort(first)]]
        if len(needed) > 1:
            self._files.prefetch(needed)  # in parallel
        for path in needed:
            self._files.fetch(path)
        after = int(shards[-1]) + 1  # the needed ones had the whole bandwidth
        self._files.prefetch(paths[after:] + paths[:after])

    def _open(self, split: str, shards: np.ndarray) -> MappedRows:
        """The shards of a split, these of them open."""
        readers = self._readers.setdefault(split, [None] * len(self._paths[split]))
        if split not in self._mapped:
            self._mapped[split] = MappedRows(readers, self._codec.stride)
        closed = self._mapped[split].closed(shards)
        if closed:
            for shard in closed:
                readers[shard] = self._open_shard(self._splits[split][shard])
            self._mapped[split] = MappedRows(readers, self._codec.stride)
        return self._mapped[split]

    def _open_shard(self, file: ManifestFile) -> RowReader:
        path = self.locate(file.path)
        reader = open_rows(path, self._codec.stride)
        if len(reader) != file.rows:
            raise DataError(
                f"{path} has {len(reader):,} rows instead of the manifest's {file.rows:,}: "
                "copy or build the dataset again"
            )
        return reader

    def _documents_of(self, split: str) -> SplitDocuments:
        if split not in self._documents:
            self._documents[split] = SplitDocuments(
                self._shards(split), self.locate, task=self.schema.task
            )
        return self._documents[split]


def open_sets(
    directories: Sequence[str],
    *,
    cache_gigabytes: float = CACHE_GIGABYTES,
    order: str = "auto",
    **opening: Any,
) -> list[ShardSet]:
    """Opens datasets that are read at the same time; arguments and errors are those of ShardSet.

    With auto, those at URLs are streamed if the cache cannot hold all of them. An order for each is
    "full,window", the `row_order` of a mixture.
    """
    opening["cache_gigabytes"] = cache_gigabytes
    orders = order.split(",") if "," in order else [order] * len(directories)
    if len(orders) != len(directories):
        raise UsageError(f"order={order!r}: {len(orders)} orders for {len(directories)} datasets")
    sets = [ShardSet(path, order=own, **opening) for path, own in zip(directories, orders)]

    def surplus() -> float:
        return sum(one.cached_bytes for one in sets) - cache_gigabytes * 1e9

    if len(sets) > 1 and order == "auto" and surplus() > 0:
        sets = [
            ShardSet(one.directory, order="window", **opening) if one.cached_bytes else one
            for one in sets
        ]
        if surplus() > 0:
            raise UsageError(
                f"{flag('cache_gigabytes', cache_gigabytes)}: the datasets need "
                f"{surplus() / 1e9 + cache_gigabytes:.3g}, to read some pieces of each at a time"
            )
    return sets


def _choose_format(info: DatasetInfo, wanted: str | None) -> str:
    formats = info.schema.file_formats
    if wanted is not None:
        if wanted not in formats:
            raise UsageError(f"{info.directory} has no {wanted} files; give {' or '.join(formats)}")
        return wanted
    return formats[0]
