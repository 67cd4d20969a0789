"""Rows -> shard files, published whole or not at all.

A shard is written under a name of its own beside its final one, read again, compared with what was
meant, and renamed. A set is published by moving its files out of the staging folder, with
MANIFEST.json last; until then no reader takes the directory for a set.
"""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np
import xxhash
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from pipelines.rejects import REJECTS
from pipelines.staging import STAGING, discard, disk_errors, write_file
from schemas.errors import DataError
from schemas.records import FORMATS, frame, open_rows
from schemas.sidecar import MANIFEST, Manifest, ManifestFile, file_sha256, to_json

SCRATCH = "scratch"
# Measured on real rows (README, Decisions): smaller than none at no cost; zstd is 4 times slower.
ARRAY_RECORD_OPTIONS = "group_size:1,snappy"
_CHECK_ROWS = 16384
_SHARD_FILE = re.compile(rf".+-\d{{5}}-of-\d{{5}}\.({'|'.join(FORMATS)})")


class _ArrayRecordFile:
    """Writes matrices of rows into an ArrayRecord file."""

    def __init__(self, path: str):
        self._path = path
        self._writer = array_record_module.ArrayRecordWriter(path, ARRAY_RECORD_OPTIONS)

    def write(self, rows: np.ndarray) -> None:
        data, stride, write = rows.tobytes(), rows.shape[1], self._writer.write
        for start in range(0, len(data), stride):
            write(data[start : start + stride])

    def close(self) -> None:
        try:
            self._writer.close()
        except (RuntimeError, ValueError) as error:
            raise _as_os_error(error, self._path) from error


class _TFRecordFile:
    """Writes matrices of rows into a TFRecord file."""

    def __init__(self, path: str):
        self._file = open(path, "xb")

    def write(self, rows: np.ndarray) -> None:
        self._file.write(frame(rows).data)

    def close(self) -> None:
        self._file.close()


_WRITERS = {"array_record": _ArrayRecordFile, "tfrecord": _TFRecordFile}


def _as_os_error(error: Exception, path: str) -> OSError:
    """ArrayRecord reports a full disk in words only."""
    full = "No space left" in str(error) or "RESOURCE_EXHAUSTED" in str(error)
    return OSError(errno.ENOSPC if full else errno.EIO, str(error), path)


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
        meant, rows = xxhash.xxh3_128(), 0
        with disk_errors(os.path.join(staging, name)), ExitStack() as open_files:
            writers = [_WRITERS[f](path) for f, path in temporary.items()]
            for writer in writers:
                open_files.callback(writer.close)
            for chunk in chunks:
                meant.update(chunk.data)
                rows += len(chunk)
                for writer in writers:
                    writer.write(chunk)
        files = []
        for file_format, path in temporary.items():
            if _content(path, stride) != (rows, meant.hexdigest()):
                raise DataError(
                    f"{path} does not hold what was written: the disk returned other bytes, or it "
                    "is full; check it and run again"
                )
            final = f"{name}.{file_format}"
            size, sha256 = os.path.getsize(path), file_sha256(path)
            os.replace(path, os.path.join(staging, final))
            split = name.rsplit("-", 3)[0]
            files.append(ManifestFile(final, size, sha256, split, rows))
        return files
    finally:
        for path in temporary.values():
            if os.path.exists(path):
                os.remove(path)


def _content(path: str, stride: int) -> tuple[int, str]:
    """Rows of a file and the xxh3_128 of them all."""
    reader = open_rows(path, stride)
    found = xxhash.xxh3_128()
    for start in range(0, len(reader), _CHECK_ROWS):
        found.update(reader.read_range(start, min(start + _CHECK_ROWS, len(reader))).tobytes())
    rows = len(reader)
    reader.close()
    return rows, found.hexdigest()


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
