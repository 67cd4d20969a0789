"""Rows -> shard files, published whole or not at all.

A shard is written under a name of its own, read again, compared with what was meant, and staged. A
set is published by moving its files out of the staging folder, with MANIFEST.json last; until then
no reader takes the directory for a set. In a store, which cannot move, they are copied there, each
once, and by the store itself.
"""

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from hashlib import sha256

import numpy as np
import xxhash

from pipelines.rows.ragged import Ragged
from pipelines.storage import store
from pipelines.storage.store import disk_errors, is_url, write_file
from pipelines.writers.array_record_file import ArrayRecordFile
from pipelines.writers.document_formats.document_format import document_format
from pipelines.writers.rejects import REJECTS
from pipelines.writers.staging import STAGING, discard
from schemas.agreement import METADATA
from schemas.document_formats import DOCUMENT_FORMATS
from schemas.errors import DataError
from schemas.manifest import MANIFEST, Manifest, ManifestFile
from schemas.records import FORMATS, frame
from schemas.sidecar import Schema
from schemas.typed_json import to_json

_ENDINGS = {"parquet", *FORMATS, *(e for row in DOCUMENT_FORMATS.values() for e in row.endings)}
_SHARD_FILE = re.compile(
    rf"[^/]+-\d{{5}}-of-\d{{5}}\.({'|'.join(map(re.escape, sorted(_ENDINGS)))})"
)


def staged_name(file: ManifestFile) -> str:
    """What a shard is called until it is published: of other content, otherwise.

    So no attempt, and no run that was thought dead, puts anything in the place of what is there.
    """
    return f"{file.sha256[:16]}-{file.path}"


class _HashedFile:
    """A new file, and the hashes of what was written to it.

    Attributes:
      bytes: written.
      sha256: of them, as the manifest lists it.
      xxh3: of them, quick to compare with what the disk gives back.
    """

    def __init__(self, path: str):
        self._file = open(path, "xb")
        self.bytes, self.sha256, self.xxh3 = 0, sha256(), xxhash.xxh3_128()

    def write(self, data: np.ndarray | bytes) -> None:
        view = data if isinstance(data, bytes) else data.data
        self._file.write(view)
        self.sha256.update(view)
        self.xxh3.update(view)
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
      name: as `schemas.sidecar.shard_name` gives it.
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
    store.put(path, os.path.join(staging, staged_name(made)), file.xxh3.digest())
    return made


def find(output: str, file: ManifestFile) -> str:
    """Where a file of the set lies: staged, or in place, if this is a retry of publishing."""
    staged = os.path.join(output, _staged_of(file))
    return staged if store.exists(staged) else os.path.join(output, file.path)


def _staged_of(file: ManifestFile) -> str:
    return os.path.join(STAGING, staged_name(file) if file.split else file.path)


def publish(output: str, manifest: Manifest) -> None:
    """Moves a set's files from OUTPUT/.staging into OUTPUT, the manifest last.

    A set that was there before is made invisible first, and its other files are removed. On a disk
    the manifest is written when all else is safe from a power cut.

    Raises:
      DataError: a file of the manifest is neither staged nor in place.
    """
    if is_url(output):
        _publish_in_store(output, manifest)
    else:
        _publish_on_disk(output, manifest)
    write_file(os.path.join(output, MANIFEST), to_json(manifest))
    discard(os.path.join(output, STAGING))


def _publish_on_disk(output: str, manifest: Manifest) -> None:
    manifest_path = os.path.join(output, MANIFEST)
    if os.path.exists(manifest_path):
        os.remove(manifest_path)
    for name in _left_over(os.listdir(output), manifest):
        os.remove(os.path.join(output, name))
    shutil.rmtree(os.path.join(output, os.path.dirname(REJECTS)), ignore_errors=True)
    for file in manifest.files:
        staged, final = os.path.join(output, _staged_of(file)), os.path.join(output, file.path)
        if os.path.exists(staged):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(staged, final)
        elif not os.path.exists(final) or os.path.getsize(final) != file.bytes:
            raise DataError(f"{staged} is gone: something else cleans it up; run again")
    for folder in {os.path.dirname(os.path.join(output, file.path)) for file in manifest.files}:
        store.sync(folder)


def _publish_in_store(output: str, manifest: Manifest) -> None:
    """Copies; what is staged goes when all is done, so that a second attempt finds it too."""
    store.delete([os.path.join(output, MANIFEST)])
    there = store.sizes(output)
    rejects = {name for name in there if name.startswith(os.path.dirname(REJECTS) + "/")}
    left_over = _left_over(there, manifest) | rejects
    store.delete(os.path.join(output, name) for name in left_over)
    copies = {
        os.path.join(output, _staged_of(file)): os.path.join(output, file.path)
        for file in manifest.files
    }
    store.copy_all(copies, {os.path.join(output, f.path): f.bytes for f in manifest.files})


def _left_over(names: Iterable[str], manifest: Manifest) -> set[str]:
    """Finds the files of an older set in the same directory."""
    old = {name for name in names if name in METADATA or _SHARD_FILE.fullmatch(name)}
    return old - {file.path for file in manifest.files}
