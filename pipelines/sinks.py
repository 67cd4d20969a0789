"""Rows -> shard files, published whole or not at all.

A shard is written under a name of its own beside its final one, read again, compared with what was
meant, and renamed. A set is published by moving its files out of the staging folder, with
MANIFEST.json last; until then no reader takes the directory for a set.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from pipelines.rejects import REJECTS
from pipelines.staging import STAGING, discard, disk_errors, write_file
from schemas.errors import DataError
from schemas.records import FORMATS, frame
from schemas.sidecar import MANIFEST, Manifest, ManifestFile, to_json

if TYPE_CHECKING:
    from pipelines.array_record_file import ArrayRecordFile

SCRATCH = "scratch"
_CHECK_BYTES = 1 << 20
_SHARD_FILE = re.compile(rf".+-\d{{5}}-of-\d{{5}}\.({'|'.join(FORMATS)})")


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

    def write(self, data: np.ndarray) -> None:
        self._file.write(data.data)
        self.sha256.update(data.data)
        self.xxh3.update(data.data)
        self.bytes += data.nbytes

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


def _writer(file_format: str, file: _HashedFile, stride: int) -> "ArrayRecordFile | _TFRecordFile":
    if file_format == "tfrecord":
        return _TFRecordFile(file, stride)
    # Imported when used: numba takes 0.5 s to load what it compiled.
    from pipelines.array_record_file import ArrayRecordFile

    return ArrayRecordFile(file, stride)


def write_shard(
    chunks: Iterable[np.ndarray], staging: str, name: str, formats: tuple[str, ...], stride: int
) -> list[ManifestFile]:
    """Writes one shard in each format, reads it again and gives it its name in the staging folder.

    Args:
      chunks: uint8 [b, stride] matrices; their rows, one after another, are the shard.
      staging: a local folder.
      name: as `schemas.sidecar.shard_name` gives it.
      formats: array_record, tfrecord.
      stride: bytes of a row.

    Raises:
      DataError: the disk is full or returned other bytes than were written.
    """
    attempt = uuid.uuid4().hex
    temporary = {f: os.path.join(staging, f"{name}.{attempt}.{f}") for f in formats}
    try:
        rows = 0
        with disk_errors(os.path.join(staging, name)), ExitStack() as open_files:
            files = {f: _HashedFile(path) for f, path in temporary.items()}
            for file in files.values():
                open_files.callback(file.close)
            writers = [_writer(f, file, stride) for f, file in files.items()]
            for chunk in chunks:
                rows += len(chunk)
                for writer in writers:
                    writer.write(chunk)
            for writer in writers:
                writer.finish()
        listed = []
        for file_format, file in files.items():
            path = temporary[file_format]
            if _xxh3(path) != file.xxh3.digest():
                raise DataError(
                    f"{path} does not hold what was written: the disk returned other bytes, or it "
                    "is full; check it and run again"
                )
            final = f"{name}.{file_format}"
            os.replace(path, os.path.join(staging, final))
            split = name.rsplit("-", 3)[0]
            listed.append(ManifestFile(final, file.bytes, file.sha256.hexdigest(), split, rows))
        return listed
    finally:
        for path in temporary.values():
            if os.path.exists(path):
                os.remove(path)


def _xxh3(path: str) -> bytes:
    """The xxh3_128 of a file."""
    found = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_CHECK_BYTES):
            found.update(data)
    return found.digest()


def publish(output: str, manifest: Manifest) -> None:
    """Moves a set's files from OUTPUT/.staging into OUTPUT, the manifest last.

    A set that was there before is made invisible first, and its other shards are removed.

    Raises:
      DataError: a file of the manifest is neither staged nor in place.
    """
    staging, manifest_path = os.path.join(output, STAGING), os.path.join(output, MANIFEST)
    if os.path.exists(manifest_path):
        os.remove(manifest_path)
    new = {file.path for file in manifest.files}
    for name in os.listdir(output):
        if _SHARD_FILE.fullmatch(name) and name not in new:
            os.remove(os.path.join(output, name))
    shutil.rmtree(os.path.join(output, os.path.dirname(REJECTS)), ignore_errors=True)
    for file in manifest.files:
        staged, final = os.path.join(staging, file.path), os.path.join(output, file.path)
        if os.path.exists(staged):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(staged, final)
        elif not os.path.exists(final) or os.path.getsize(final) != file.bytes:
            raise DataError(f"{staged} is gone: something else cleans {staging}; run again")
    write_file(manifest_path, to_json(manifest))
    discard(staging)
