"""Datasets as batches of numpy arrays, for any training loop.

    from textmill.trainers.reader import ShardSet

    shards = ShardSet("data/shards")          # checks the schema and every file's sha256
    shards.schema.vocab_size, shards.schema.max_length, shards.rows("train")

    for batch in shards.batches("train", batch_size=32, seed=0):
        batch["input_ids"]                    # uint16 [32, L]; the features of the task
        batch["row_index"], batch["epoch"]    # int64 [32]; the row's index in the split, its epoch

    for batch in shards.in_order("validation", batch_size=32):
        batch["row_weights"]                  # uint8 [32]; 0 for the padding rows of the last batch

    shards.split("train")[0]["input_ids"]     # uint16 [L]; a dataset for PyTorch, grain, ...
    shards.documents_of("train", [7])     # the documents of row 7, and where its segments begin
    shards.rows_of("train", digest)       # int64 [n]; the rows that hold a document

    ShardSet.mix({"books": 0.7, "web": 0.3})  # several datasets read as one, by weight
    ShardSet("gs://bucket/shards", cache_dir="/disk/cache")    # from a bucket, see below

Order. `batches` is endless, with a new permutation of all rows in every epoch. Its order is a pure
function of (seed, step): `start_step=1000` continues exactly where step 999 ended, without saved
state. A batch may cross into the next epoch, so every epoch has each row exactly once.

With `process_count=N` each process reads its N-th part of every batch; together they read the
batches that one process would. `verify=True` reads every byte of the dataset once (sha256 takes
about 1 to 2 GB/s a core). Files at a URL are fetched into a cache when their rows are first read;
the other files of the split follow in the background.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import numpy as np

from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import SetInfo, read_set
from textmill.schemas.files.set_files import CACHE_GIGABYTES, Cache, LocalFiles, default_directory
from textmill.schemas.format.manifest import ROW_DOCUMENTS, ManifestFile, check_unchanged
from textmill.schemas.format.mapped_rows import MappedRows
from textmill.schemas.format.records import RowReader, open_rows
from textmill.schemas.format.row_documents import ROUTED_BY_DIGEST, RowDocuments, shard_of
from textmill.trainers.data.batches import Batch, BatchReader, RowDocument
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.row_order import epoch_and_row
from textmill.trainers.data.turns import shares_of


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

        Raises:
          DataError: the dataset is unfinished, or a file has changed; names the file. Or a dataset
            in a bucket does not fit into the cache, or the bucket does not answer.
          UsageError: the dataset has no such format, or holds tokenized documents; the package for
            the bucket is not installed.
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
        self._paths = {name: [f.path for f in files] for name, files in self._splits.items()}
        self._ends = {
            name: np.cumsum([file.rows or 0 for file in files], dtype=np.int64)
            for name, files in self._splits.items()
        }
        self._files.reserve([path for paths in self._paths.values() for path in paths])
        self._open_nothing()

    def _open_nothing(self) -> None:
        self._readers: dict[str, list[RowReader | None]] = {}
        self._mapped: dict[str, MappedRows] = {}
        self._documents: dict[str, RowDocuments] = {}
        self._lock, self._process = threading.Lock(), os.getpid()

    def __getstate__(self) -> dict:
        """Everything but open files."""
        return dict(self.__dict__, _readers={}, _mapped={}, _documents={}, _lock=None)

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
        shard_of = np.searchsorted(ends, row_indices, side="right")
        self._bring(split, shard_of)
        first = np.append(0, ends)[shard_of]
        with self._lock:
            mapped = self._open(split, shard_of)
            return self._codec.decode_pieces(mapped.gather(shard_of, row_indices - first).piece)

    def documents_of(self, split: str, row_indices: Sequence[int]) -> list[RowDocument]:
        """See `BatchReader.documents_of`."""
        rows, ends = self.row_numbers(split, row_indices), self._ends[split]
        found: dict[int, list[RowDocument]] = {}
        shard_of = np.searchsorted(ends, rows, side="right")
        for shard in np.unique(shard_of).tolist():
            file = self._shards(split)[shard]
            begin, own = ends[shard] - (file.rows or 0), np.unique(rows[shard_of == shard])
            documents = self._row_documents(file)
            segments = documents.documents_of(own - begin)
            for row, number, first in zip(*(values.tolist() for values in segments)):
                index = int(own[row])
                digest = documents.digests[number].tobytes()
                found.setdefault(index, []).append(RowDocument(index, digest, first))
        return [segment for row in rows.tolist() for segment in found[row]]

    def rows_of(self, split: str, digest: bytes) -> np.ndarray:
        """See `BatchReader.rows_of`."""
        shards, ends = self._shards(split), self._ends[split].tolist()
        found = [np.zeros(0, np.int64)]
        numbers: Sequence[int] = range(len(shards))
        if self.schema.task in ROUTED_BY_DIGEST and shards:
            numbers = [shard_of(digest, len(shards))]
        for file, end in ((shards[number], ends[number]) for number in numbers):
            found.append(self._row_documents(file).rows_of(digest) + end - (file.rows or 0))
        return np.concatenate(found)

    def paths(self, split: str) -> list[str]:
        """The files of a split in order, fetched from a bucket; for other readers of the format."""
        self._bring(split, np.arange(len(self._shards(split))))
        return [self.locate(path) for path in self._paths[split]]

    def locate(self, path: str) -> str:
        """Local path of a file such as "tokenizer.json"; a DataError if it cannot be fetched."""
        return self._info.locate(path)

    def tokens_a_row(self, split: str) -> float:
        """Those of stats.json: the split's `tokens_in_rows` by its `rows`."""
        return self.stats.split(split).tokens_in_rows / max(1, self.rows(split))

    def fetching(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a bucket first."""
        self._shards(split)
        return not self._files.all_here(self._paths[split])

    def decode(self, record: bytes) -> Batch:
        """One row from a record, which is a serialized tf.train.Example."""
        columns = self._codec.decode(np.frombuffer(record, np.uint8)[None])
        return {name: column[0] for name, column in columns.items()}

    def order(self, split: str, positions: np.ndarray, *, seed: int) -> Batch:
        """A new permutation of all rows in every epoch; see `BatchReader.order`."""
        epochs, rows = epoch_and_row(positions, rows=self.rows(split), seed=seed)
        return {"row_index": rows, "epoch": epochs}

    @staticmethod
    def mix(weights: dict[str, float], seed: int = 0, **opening: Any) -> Mixture[ShardSet]:
        """Datasets read as one, by weight: `ShardSet.mix({"books": 0.7, "web": 0.3}, seed=1)`.

        `opening` is as for ShardSet: verify, cache_dir, cache_gigabytes, follow_links.

        Raises:
          DataError: one is not a finished dataset.
          UsageError: their rows mean different things; names the difference.
        """
        if not weights:
            raise UsageError("the mixture is empty: give at least one directory with its weight")
        directories, shares = list(map(os.fspath, weights)), list(weights.values())
        shares_of(directories, shares)  # before all bytes are read
        parts = [ShardSet(directory, **opening) for directory in directories]
        return Mixture(parts, shares, seed=seed)

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
        mapped = self._mapped.setdefault(split, MappedRows(readers))
        closed = mapped.closed(shards)
        if closed:
            for shard in closed:
                readers[shard] = self._open_shard(self._splits[split][shard])
            mapped = self._mapped[split] = MappedRows(readers)
        return mapped

    def _open_shard(self, file: ManifestFile) -> RowReader:
        path = self.locate(file.path)
        reader = open_rows(path, self._codec.stride)
        if len(reader) != file.rows:
            raise DataError(
                f"{path} has {len(reader):,} rows instead of the manifest's {file.rows:,}: "
                "copy or build the dataset again"
            )
        return reader

    def _row_documents(self, file: ManifestFile) -> RowDocuments:
        path = _documents_path(file)
        if path not in self._documents:
            documents = RowDocuments(self.locate(path))
            if documents.rows != file.rows:
                raise DataError(
                    f"{documents.path} has the documents of {documents.rows:,} rows, not of the "
                    f"manifest's {file.rows:,}: copy or build the dataset again"
                )
            self._documents[path] = documents
        return self._documents[path]


def _documents_path(file: ManifestFile) -> str:
    return f"{file.path.split('.', 1)[0]}.{ROW_DOCUMENTS}"


def _choose_format(info: SetInfo, wanted: str | None) -> str:
    formats = info.schema.file_formats
    if wanted is not None:
        if wanted not in formats:
            raise UsageError(f"{info.directory} has no {wanted} files; give {' or '.join(formats)}")
        return wanted
    return formats[0]


def _verify_files(info: SetInfo) -> None:
    """Compares the sha256 of every file; in threads, since hashing releases the GIL."""
    files = info.manifest.files
    paths = [os.path.join(info.directory, file.path) for file in files]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(check_unchanged, paths, files))
