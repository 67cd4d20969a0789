"""Rows -> shard files, published whole or not at all.

A shard is written under a name of its own and staged.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256

import numpy as np

from pipelines.rows.ragged import Ragged
from pipelines.storage import store
from pipelines.storage.store import disk_errors, is_url
from pipelines.writers.array_record_file import ArrayRecordFile
from pipelines.writers.document_formats.document_format import document_format
from pipelines.writers.staging import STAGING, publish_files
from schemas.agreement import METADATA
from schemas.manifest import (
    DECONTAMINATION,
    FORMAT_VERSION,
    MANIFEST,
    REJECTED,
    Manifest,
    ManifestFile,
)
from schemas.metadata import Schema
from schemas.records import DOCUMENT_FORMATS, FORMATS, frame
from schemas.typed_json import to_json

_ENDINGS = {"jsonl.zst", "parquet", *FORMATS}
_ENDINGS |= {ending for row in DOCUMENT_FORMATS.values() for ending in row.endings}
_SHARD = rf"(?P<shard>[^/]+-\d{{5}}-of-\d{{5}})\.({'|'.join(map(re.escape, sorted(_ENDINGS)))})"
_SHARD_FILE, STAGED_NAME = re.compile(_SHARD), re.compile(rf"[0-9a-f]{{16}}-{_SHARD}")
_REMOVED = "removed"  # the folder of a corpus that lists what it does not hold


def staged_name(file: ManifestFile) -> str:
    """What a shard is called until it is published: of other content, otherwise.

    So no attempt, and no run that was thought dead, puts anything in the place of what is there.
    """
    return f"{file.sha256[:16]}-{file.path}"


class _HashedFile:
    """A new file, the number of bytes that were written to it, and their sha256."""

    def __init__(self, path: str):
        self._file = open(path, "xb")
        self.bytes, self.sha256 = 0, sha256()

    def write(self, data: np.ndarray | bytes) -> None:
        view = data if isinstance(data, bytes) else data.data
        self._file.write(view)
        self.sha256.update(view)
        self.bytes += len(data) if isinstance(data, bytes) else data.nbytes

    def close(self) -> None:
        self._file.close()


class _TFRecordFile:
    """A TFRecord file that is being written."""

    def __init__(self, file: _HashedFile, stride: int):
        self._file = file

    def write(self, rows: np.ndarray) -> None:
        self._file.write(frame(rows).reshape(-1))

    def finish(self) -> None:
        pass


def _writer(file_format: str, file: _HashedFile, stride: int) -> ArrayRecordFile | _TFRecordFile:
    if file_format == "tfrecord":
        return _TFRecordFile(file, stride)
    return ArrayRecordFile(file, stride)


def write_shard(
    chunks: Iterable[np.ndarray], staging: str, name: str, formats: tuple[str, ...], stride: int
) -> list[ManifestFile]:
    """Writes one shard in each format, reads it again and stages it as `staged_name` says.

    Args:
      chunks: uint8 [b, stride] matrices; their rows, one after another, are the shard.
      staging: the folder, on a disk or in a store.
      name: as `schemas.metadata.shard_name` gives it.
      formats: array_record, tfrecord.
      stride: bytes of a row.

    Raises:
      DataError: the disk is full, or it or the store returned other bytes than were written.
    """

    def write(files: dict[str, _HashedFile]) -> int:
        rows = 0
        writers = [_writer(f, file, stride) for f, file in files.items()]
        for chunk in chunks:
            rows += len(chunk)
            for writer in writers:
                writer.write(chunk)
        for writer in writers:
            writer.finish()
        return rows

    return _stage_files(staging, name, formats, write)


def write_documents(
    documents: Ragged, staging: str, name: str, schema: Schema
) -> list[ManifestFile]:
    """Writes one shard of whole documents in each format, otherwise as `write_shard`."""

    def write(files: dict[str, _HashedFile]) -> int:
        for file_format in schema.file_formats:
            contents = document_format(file_format).encode(documents, schema)
            for ending, parts in contents.items():
                for part in parts:
                    files[ending].write(part)
        return len(documents.offsets) - 1

    endings = [ending for each in schema.file_formats for ending in schema.endings(each)]
    return _stage_files(staging, name, endings, write)


def _stage_files(
    staging: str,
    name: str,
    endings: Sequence[str],
    write: Callable[[dict[str, _HashedFile]], int],
) -> list[ManifestFile]:
    """Stages the files of a shard that `write` fills, which gives the number of its rows."""
    with store.workspace(staging) as folder:
        attempt = uuid.uuid4().hex
        temporary = {
            ending: os.path.join(folder, f"{name}.{attempt}.{ending}") for ending in endings
        }
        try:
            with disk_errors(os.path.join(staging, name)), ExitStack() as open_files:
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
    """Puts a written file where it waits to be published."""
    split = name.rsplit("-", 3)[0]
    made = ManifestFile(name, file.bytes, file.sha256.hexdigest(), split, rows)
    store.put(path, os.path.join(staging, staged_name(made)))
    return made


def find(output: str, file: ManifestFile) -> str:
    """Where a file of the set lies: staged, or in place, if this is a retry of publishing."""
    staged = os.path.join(output, STAGING, _staged_of(file))
    return staged if store.exists(staged) else os.path.join(output, file.path)


def _staged_of(file: ManifestFile) -> str:
    return staged_name(file) if file.split else file.path


def describe_file(name: str, content: bytes) -> ManifestFile:
    """What the manifest lists of a file beside the shards."""
    return ManifestFile(name, len(content), sha256(content).hexdigest())


def publish(
    output: str,
    run: str,
    fingerprint: str,
    staged: Iterable[ManifestFile],
    contents: Mapping[str, bytes],
) -> Manifest:
    """Publishes a set, sealed by its manifest.

    Args:
      output: the directory.
      run: that publishes; "" for whoever has the directory.
      fingerprint: of the set.
      staged: files that wait in OUTPUT/.staging.
      contents: of all others, by name.

    Raises:
      DataError: as `publish_files`.
    """
    for name, content in contents.items():
        store.write_file(os.path.join(output, STAGING, name), content)
    listed = [*staged, *(describe_file(name, content) for name, content in contents.items())]
    listed.sort(key=lambda file: file.path)
    manifest = Manifest(FORMAT_VERSION, fingerprint, tuple(listed))
    there = {*store.sizes(output)} if is_url(output) else {*os.listdir(output)}
    if _REMOVED in there:
        there |= {f"{_REMOVED}/{name}" for name in os.listdir(os.path.join(output, _REMOVED))}
    old = {
        name
        for name in there
        if name in METADATA or _SHARD_FILE.fullmatch(name.removeprefix(f"{_REMOVED}/"))
    } | {DECONTAMINATION, *REJECTED}
    files = {file.path: (_staged_of(file), file.bytes) for file in listed}
    publish_files(output, run, MANIFEST, to_json(manifest), files, old)
    return manifest
