"""Rows -> shard files: writes and stages each shard, and publishes all of them atomically."""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256

import numpy as np
from xxhash import xxh3_64

from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.writers.array_record_file import ArrayRecordFile
from textmill.pipelines.writers.document_formats import document_codec
from textmill.pipelines.writers.staging import STAGING, publish_files
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus, DatasetInfo, FinishedDirectory, TokenizerInfo
from textmill.schemas.format.agreement import METADATA, TOKENIZER_FILES
from textmill.schemas.format.manifest import (
    DECONTAMINATION,
    FORGOTTEN,
    FORMAT_VERSION,
    HOSTS,
    MANIFEST,
    REJECTED,
    ROW_DOCUMENTS,
    Manifest,
    ManifestFile,
)
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.pieces import piece_rows
from textmill.schemas.format.records import DOCUMENT_FORMATS, FORMATS, frame, row_head
from textmill.schemas.typed_json import to_json

_ENDINGS = {"jsonl.zst", "npy", "parquet", ROW_DOCUMENTS, *FORMATS}
_ENDINGS |= {ending for row in DOCUMENT_FORMATS.values() for ending in row.endings}
_SHARD = rf"(?P<shard>[^/]+-\d{{5}}-of-\d{{5}})\.({'|'.join(map(re.escape, sorted(_ENDINGS)))})"
STAGED_NAME = re.compile(rf"[0-9a-f]{{16}}-{_SHARD}")
_FOLDERS = "removed", "signatures"  # of a corpus, with a file for each file of documents
_OTHERS = "|".join(map(re.escape, (*METADATA, DECONTAMINATION, FORGOTTEN, HOSTS, *REJECTED)))
_OF_SET = re.compile(rf"(?:(?:{'|'.join(_FOLDERS)})/)?{_SHARD}|{_OTHERS}")
# Kind of a directory -> files that the next run replaces or removes.
OWNED: dict[type[FinishedDirectory], re.Pattern[str]] = {
    DatasetInfo: _OF_SET,
    Corpus: _OF_SET,
    TokenizerInfo: re.compile("|".join(map(re.escape, (*TOKENIZER_FILES, *REJECTED)))),
}


def staged_name(file: ManifestFile) -> str:
    """The name of an unpublished shard, which depends on its content.

    So no other attempt, and no run that was taken for dead, replaces a staged shard by another.
    """
    return f"{file.sha256[:16]}-{file.path}"


class _HashedFile:
    """A new file that counts and hashes the bytes written to it.

    Attributes:
      pieces: hashes of the pieces that ended; None for a file without pieces.
    """

    def __init__(self, path: str):
        self._file = open(path, "xb")
        self.bytes, self.sha256 = 0, sha256()
        self.pieces: list[str] | None = None
        self._piece = xxh3_64()

    def write(self, data: np.ndarray | bytes) -> None:
        view = data if isinstance(data, bytes) else data.data
        self._file.write(view)
        self.sha256.update(view)
        if self.pieces is not None:
            self._piece.update(view)
        self.bytes += len(data) if isinstance(data, bytes) else data.nbytes

    def end_piece(self) -> None:
        """Ends a piece with the last byte that was written."""
        assert self.pieces is not None
        self.pieces.append(self._piece.hexdigest())
        self._piece.reset()

    def close(self) -> None:
        self._file.close()


def head_of(formats: tuple[str, ...], stride: int) -> bytes:
    """Bytes before each row that `write_shard` gets: an ArrayRecord's, so that none is copied."""
    return row_head(stride) if "array_record" in formats else b""


def write_shard(
    chunks: Iterable[np.ndarray], staging: str, name: str, formats: tuple[str, ...], stride: int
) -> list[ManifestFile]:
    """Writes one shard in each format and stages it under its `staged_name`.

    Args:
      chunks: uint8 [b, n] matrices: the rows of the shard, in order, each after `head_of` the
        formats. They are changed.
      staging: the staging folder, on a disk or in an object store.
      name: the shard's name, see `schemas.format.metadata.shard_name`.
      formats: array_record, tfrecord, or both.
      stride: bytes of a row.

    Raises:
      DataError: the disk is full, or an object store has other bytes than were sent.
    """
    size = piece_rows(stride)

    def write(files: dict[str, _HashedFile]) -> int:
        rows, array_record, tfrecord = 0, None, files.get("tfrecord")

        def end_pieces() -> None:
            for file in files.values():
                file.end_piece()

        for file in files.values():
            file.pieces = []
        if "array_record" in files:
            array_record = ArrayRecordFile(files["array_record"], stride)
        for part in _cut(chunks, size):
            rows += len(part)
            if array_record:
                array_record.write(part)
            if tfrecord:
                tfrecord.write(frame(part[:, -stride:]).reshape(-1))
            if not rows % size:
                end_pieces()
        if rows % size:
            end_pieces()
        if array_record:
            array_record.finish()
        return rows

    return _stage_files(staging, name, formats, write)


def _cut(chunks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The rows of chunks, cut where pieces of `size` rows end."""
    rows = 0
    for chunk in filter(len, chunks):
        yield from np.split(chunk, range(size - rows % size, len(chunk), size))
        rows += len(chunk)


def write_documents(
    documents: Ragged, staging: str, name: str, schema: Schema
) -> list[ManifestFile]:
    """Writes one shard of whole documents in each format; see `write_shard`."""

    def write(files: dict[str, _HashedFile]) -> int:
        for file_format in schema.file_formats:
            contents = document_codec(file_format).encode(documents, schema)
            for ending, parts in contents.items():
                for part in parts:
                    files[ending].write(part)
        return len(documents.offsets) - 1

    endings = [ending for each in schema.file_formats for ending in schema.endings(each)]
    return _stage_files(staging, name, endings, write)


def write_row_documents(content: bytes, staging: str, name: str, rows: int) -> ManifestFile:
    """Writes the documents of a shard's rows; see `write_shard`."""

    def write(files: dict[str, _HashedFile]) -> int:
        files[ROW_DOCUMENTS].write(content)
        return rows

    [file] = _stage_files(staging, name, [ROW_DOCUMENTS], write)
    return file


def _stage_files(
    staging: str,
    name: str,
    endings: Sequence[str],
    write: Callable[[dict[str, _HashedFile]], int],
) -> list[ManifestFile]:
    """Stages the files of a shard; `write` fills them and returns the number of rows."""
    with store.workspace(staging) as folder:
        attempt = uuid.uuid4().hex
        temporary = {
            ending: os.path.join(folder, f"{name}.{attempt}.{ending}") for ending in endings
        }
        try:
            with store.disk_errors(os.path.join(staging, name)), ExitStack() as open_files:
                files = {ending: _HashedFile(path) for ending, path in temporary.items()}
                for file in files.values():
                    open_files.callback(file.close)
                rows = write(files)
            return [
                _stage_file(temporary[ending], file, staging, f"{name}.{ending}", rows)
                for ending, file in files.items()
            ]
        finally:
            for path in temporary.values():
                if os.path.exists(path):
                    os.remove(path)


def _stage_file(path: str, file: _HashedFile, staging: str, name: str, rows: int) -> ManifestFile:
    """Moves a written file into the staging folder."""
    split = name.rsplit("-", 3)[0]
    pieces = None if file.pieces is None else tuple(file.pieces)
    listed = ManifestFile(name, file.bytes, file.sha256.hexdigest(), split, rows, pieces)
    store.put(path, os.path.join(staging, staged_name(listed)))
    return listed


def find(output: str, file: ManifestFile) -> str:
    """The path of a file: staged, or already published if publishing is retried."""
    staged = os.path.join(output, STAGING, _staged_of(file))
    return staged if store.exists(staged) else os.path.join(output, file.path)


def _staged_of(file: ManifestFile) -> str:
    return staged_name(file) if file.split else file.path


def describe_file(name: str, content: bytes) -> ManifestFile:
    """The entry of a metadata file in the manifest."""
    return ManifestFile(name, len(content), sha256(content).hexdigest())


def publish(
    kind: type[FinishedDirectory],
    output: str,
    run: str,
    fingerprint: str,
    staged: Iterable[ManifestFile],
    contents: Mapping[str, bytes],
    unlisted: Mapping[str, bytes] = {},
) -> Manifest:
    """Publishes a finished directory; its manifest is written last.

    Args:
      kind: DatasetInfo, Corpus or TokenizerInfo.
      output: the directory.
      run: the name of the run that publishes; "" for any that holds the directory.
      fingerprint: of the schema, or of the tokenizer's report.
      staged: files in OUTPUT/.staging.
      contents: name -> content of all other files that the manifest lists.
      unlisted: name -> content of files that a user may change afterwards.

    Returns:
      The manifest.

    Raises:
      DataError: see `publish_files`.
    """
    for name, content in {**contents, **unlisted}.items():
        store.write_file(os.path.join(output, STAGING, name), content)
    listed = [*staged, *(describe_file(name, content) for name, content in contents.items())]
    listed.sort(key=lambda file: file.path)
    manifest = Manifest(FORMAT_VERSION, fingerprint, tuple(listed))
    there = {*store.sizes(output)} if store.is_url(output) else {*os.listdir(output)}
    for folder in _FOLDERS:
        if os.path.isdir(os.path.join(output, folder)):
            there |= {f"{folder}/{name}" for name in os.listdir(os.path.join(output, folder))}
    old = {*filter(OWNED[kind].fullmatch, there), *REJECTED}
    files = {file.path: (_staged_of(file), file.bytes) for file in listed}
    files |= {name: (name, len(content)) for name, content in unlisted.items()}
    publish_files(output, run, MANIFEST, to_json(manifest.to_dict()), files, old)
    return manifest
