"""Shard sets as batches of numpy arrays, for any training loop.

    from trainers.reader import ShardSet

    shards = ShardSet("data/shards")          # the contract is checked, every file's sha256 too
    shards.schema.vocab_size, shards.schema.max_length, shards.rows("train")

    for batch in shards.batches("train", batch_size=32, seed=0):
        batch["input_ids"]                    # uint16 [32, L]; the features of the task
        batch["row_index"], batch["epoch"]    # int64 [32]; which row of the split, in which epoch

    for batch in shards.in_order("validation", batch_size=32):
        batch["row_weights"]                  # uint8 [32]; 0 where the last batch was filled up

    shards.split("train")[0]["input_ids"]     # uint16 [L]; a dataset for PyTorch, grain, ...
    ShardSet.mix({"books": 0.7, "web": 0.3})  # several sets read as one, by weight
    ShardSet("gs://bucket/shards", cache_dir="/disk/cache")    # from a store, see below

Order. `batches` goes on for ever, through a new permutation of all rows in every epoch. Its order
is a pure function of (seed, step): `start_step=1000` continues exactly where step 999 ended, and
needs no saved state. A batch that reaches the end of an epoch goes on into the next one, so every
row comes exactly once an epoch and no row is ever left over.

With `process_count=N` each process reads its own N-th part of every batch, and together they read
the batches that one process would. Opening with `verify=True` reads every byte of the set once
(about 1 to 2 GB/s a core for sha256). The files of a set at a URL are fetched into a cache when
rows of them are first asked for, and the others of the split behind them in the background.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np

from schemas.errors import DataError, UsageError
from schemas.manifest import ManifestFile, check_unchanged
from schemas.metadata import SetInfo, read_set
from schemas.records import RowReader, open_rows
from schemas.stores.set_files import CACHE_GIGABYTES, Cache, LocalFiles, default_directory
from trainers.data.batches import Batch, BatchReader
from trainers.data.row_order import epoch_and_row

if TYPE_CHECKING:
    from trainers.data.mixture import Mixture


class ShardSet(BatchReader):
    """A finished shard set, checked against its contract.

    May be sent to other processes, and forked: files are opened where they are first read.

    Attributes:
      directory: where it lies, or its URL; `name` is the same.
      stats: counts (`schemas.statistics.Statistics`).
      manifest: every file (`schemas.manifest.Manifest`).
      file_format: the format that is read, array_record or tfrecord.
    """

    def __init__(
        self,
        directory: str,
        *,
        verify: bool = True,
        file_format: Optional[str] = None,
        cache_dir: Optional[str] = None,
        cache_gigabytes: float = CACHE_GIGABYTES,
        follow_links: bool = False,
    ):
        """Reads the metadata files; no rows yet.

        Args:
          directory: that build_shards wrote; or a URL such as gs://bucket/shards.
          verify: whether to compare the sha256 of every file with the manifest. Sizes and the
            metadata files are compared in any case, and so is what is fetched from a store.
          file_format: None prefers array_record where that package is installed.
          cache_dir: where files from a store are kept; None: textmill in the user's cache directory
            ($XDG_CACHE_HOME or ~/.cache).
          cache_gigabytes: (1e9 bytes) that all sets there may take together.
          follow_links: whether to open files that are links out of the directory.

        Raises:
          DataError: not a finished set, or not as it was published; names the file. Or a set in a
            store does not fit into the cache, or the store does not answer.
          UsageError: the set has no such format, or holds documents whole; the package for a store
            is not installed.
        """
        cache = Cache(cache_dir or default_directory(), cache_gigabytes)
        info = read_set(os.fspath(directory), cache, verify=verify, follow_links=follow_links)
        self.directory = self.name = info.directory
        self.schema, self.fingerprint = info.schema, info.manifest.identify_rows()
        self._codec = self.schema.codec(info.directory)
        self.stats, self.manifest = info.stats, info.manifest
        self.file_format = _choose_format(info, file_format)
        self._info, self._files = info, info.files
        if verify and isinstance(self._files, LocalFiles):
            _verify_files(info)
        self._splits = {
            name: self.manifest.shards(name, self.file_format) for name in self.schema.splits
        }
        self._ends = {
            name: np.cumsum([file.rows or 0 for file in files])
            for name, files in self._splits.items()
        }
        self._files.reserve([f.path for files in self._splits.values() for f in files])
        self._open_nothing()

    def _open_nothing(self) -> None:
        self._readers: Dict[str, RowReader] = {}
        self._lock, self._process = threading.Lock(), os.getpid()

    def __getstate__(self) -> dict:
        """All but open files."""
        return dict(self.__dict__, _readers={}, _lock=None)

    def __setstate__(self, state: dict) -> None:
        """As it was, with no file open."""
        vars(self).update(state)
        self._open_nothing()

    def close(self) -> None:
        """Closes the files; they open again when read."""
        with self._lock:
            while self._readers:
                self._readers.popitem()[1].close()

    @property
    def splits(self) -> Tuple[str, ...]:
        """Names of the splits, sorted."""
        return tuple(sorted(self._splits))

    def rows(self, split: str) -> int:
        """Rows of a split, masked copies included."""
        return sum(file.rows or 0 for file in self._shards(split))

    def read(self, split: str, row_indices: np.ndarray) -> Batch:
        """Rows by their index in the split; see `BatchReader.read`."""
        files = self._shards(split)
        row_indices = np.asarray(row_indices, np.int64)
        ends = self._ends[split]
        if self._process != os.getpid():
            # After a fork the files share their place with the parent's, and a thread that is not
            # here any more may hold the lock.
            self._open_nothing()
        shard_of = np.searchsorted(ends, row_indices, side="right")
        self._bring(split, shard_of)
        encoded = np.empty((len(row_indices), self._codec.stride), np.uint8)
        by_shard = np.argsort(shard_of, kind="stable")
        cuts = np.flatnonzero(np.diff(shard_of[by_shard])) + 1
        with self._lock:
            for here in np.split(by_shard, cuts) if len(by_shard) else ():
                shard = shard_of[here[0]]
                first = ends[shard] - (files[shard].rows or 0)
                reader = self._reader(files[shard])
                encoded[here] = reader.read(row_indices[here] - first)
        return self._codec.decode(encoded)

    def paths(self, split: str) -> List[str]:
        """The files of a split, in order, for readers of their format; fetched from a store."""
        self._bring(split, np.arange(len(self._shards(split))))
        return [self.locate(file.path) for file in self._shards(split)]

    def locate(self, path: str) -> str:
        """Where a file such as "tokenizer.json" lies here; a DataError if its store is silent."""
        return self._info.locate(path)

    def fetching(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a store first."""
        return not self._files.all_here([file.path for file in self._shards(split)])

    def decode(self, record: bytes) -> Batch:
        """One row from its bytes, as any reader of the files gives them: a tf.train.Example."""
        columns = self._codec.decode(np.frombuffer(record, np.uint8)[None])
        return {name: column[0] for name, column in columns.items()}

    def order(self, split: str, positions: np.ndarray, *, seed: int) -> Batch:
        """A new permutation of all rows in every epoch; see `BatchReader.order`."""
        epochs, rows = epoch_and_row(positions, rows=self.rows(split), seed=seed)
        return {"row_index": rows, "epoch": epochs}

    @staticmethod
    def mix(weights: Dict[str, float], seed: int = 0, **opening: Any) -> "Mixture":
        """Several sets read as one, by weight: `ShardSet.mix({"books": 0.7, "web": 0.3}, seed=1)`.

        `opening` is as for ShardSet: verify, cache_dir, cache_gigabytes, follow_links.

        Raises:
          DataError: one is no finished set.
          UsageError: their rows do not mean the same; names what differs.
        """
        # It imports this class, to read its sets with.
        from trainers.data.mixture import Mixture

        return Mixture.open(weights, seed=seed, **opening)

    def _shards(self, split: str) -> List[ManifestFile]:
        if split not in self._splits:
            raise self.no_split(split)
        return self._splits[split]

    def _bring(self, split: str, shards: np.ndarray) -> None:
        """Fetches these shards of a split; the others follow in the background, in their order."""
        if not len(shards):
            return
        paths = [file.path for file in self._shards(split)]
        if self._files.all_here(paths):
            return
        _, first = np.unique(shards, return_index=True)
        needed = [paths[shard] for shard in shards[np.sort(first)]]
        if len(needed) > 1:
            self._files.prefetch(needed)  # several at a time
        for path in needed:
            self._files.fetch(path)
        after = int(shards[-1]) + 1  # what is needed now had the network for itself
        self._files.prefetch(paths[after:] + paths[:after])

    def _reader(self, file: ManifestFile) -> RowReader:
        if file.path not in self._readers:
            path = self.locate(file.path)
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
    if wanted is not None:
        if wanted not in formats:
            raise UsageError(f"{info.directory} has no {wanted} files: it has {', '.join(formats)}")
        return wanted
    return formats[0]


def _verify_files(info: SetInfo) -> None:
    """Compares the sha256 of every file; in threads, since hashing lets go of the interpreter."""
    files = info.manifest.files
    paths = [os.path.join(info.directory, file.path) for file in files]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(check_unchanged, paths, files))
