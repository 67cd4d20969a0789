"""Files on a disk or in an object store (gs://, s3://): atomic writes, copies, checked uploads.

A path is local or a URL, and most functions take both; patterns, copies and deletions are those of
object stores. `schemas.files.object_store` sends the requests.

Object stores have no folders and no rename, and networks fail. After an upload, the checksum of the
object is compared with that of the local file. Python 3.8 syntax.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from glob import has_magic
from typing import Any, BinaryIO, Callable, Iterable, Iterator

from textmill.schemas.errors import DataError, describe_refusal, flag
from textmill.schemas.files import object_store

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BUFFER_BYTES = 8 << 20  # bytes of one request
_PART_BYTES = 16 << 20  # bytes of a part of an upload; parts in transit are in memory
_THREADS = 16  # concurrent requests


def is_url(path: str) -> bool:
    """Whether a path is a URL of an object store: gs://bucket/set, not /data/set or gs:set."""
    return bool(_URL.match(path))


# Reading


def exists(path: str) -> bool:
    """Whether a file exists.

    Raises:
      DataError, UsageError: as `read`.
    """
    return size(path) is not None


def size(path: str) -> int | None:
    """The size of a file in bytes; None if there is no such file.

    Raises:
      DataError, UsageError: as `read`.
    """
    if not is_url(path):
        return os.path.getsize(path) if os.path.exists(path) else None
    try:
        return _describe(path)["size"]
    except FileNotFoundError:
        return None


def _describe(url: str) -> dict[str, Any]:
    """The object store's description of a file: "size" (bytes), and a checksum.

    Raises:
      FileNotFoundError: there is no such file, or it is a directory.
      DataError, UsageError: as `read`.
    """
    info = object_store.call(url, "info", object_store.key_of(url))
    if info["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, "there is no such file", url)
    return info


def read(path: str, start: int = 0, length: int | None = None) -> bytes:
    """Reads a file, or a range of it, fewer bytes if it ends earlier.

    Raises:
      FileNotFoundError: there is no such file.
      OSError: the disk does not return it.
      DataError: the object store does not return it, or it is not a regular file.
      UsageError: no package reads this object store, or there are no credentials.
    """
    if is_url(path):
        return _read_object(path, start, None if length is None else start + length)
    with open_regular(path) as file:
        file.seek(start)
        return file.read(-1 if length is None else length)


def _read_object(url: str, start: int, stop: int | None) -> bytes:
    part: dict[str, Any] = {} if stop is None and not start else {"start": start, "end": stop}
    if part and url.startswith("hf://"):
        part["cache_type"] = "none"  # else it reads 5 MB ahead
    try:
        return object_store.call(url, "cat_file", object_store.key_of(url), **part)
    except DataError as error:
        if object_store.is_beyond_end(error.__cause__):
            return b""
        raise


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are stored.

    Raises:
      OSError: it cannot be opened; FileNotFoundError if it does not exist.
      DataError: it is not a regular file; or the object store fails, now or while it is read.
    """
    if not is_url(path):
        return open_regular(path)
    return io.BufferedReader(_StoredFile(path), _BUFFER_BYTES)


def open_regular(path: str) -> BinaryIO:
    """Opens a regular file of a disk; a pipe, a socket or a device is rejected at once.

    Opening a pipe would wait until another process writes into it, and a device may have no end.

    Raises:
      OSError: it cannot be opened.
      DataError: it is not a regular file.
    """
    return open(path, "rb", opener=_open_at_once)


def _open_at_once(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` itself rejects a folder
        os.close(file)
        raise DataError(
            f"{path} is not a regular file but a pipe or a device: replace it by a file"
        )
    return file


class SeekableFile(io.RawIOBase):
    """A file of known size; a subclass reads from `_at` and moves it."""

    def __init__(self, size: int):
        """`size` is in bytes."""
        self._size, self._at = size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The next byte."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a byte."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at


class _StoredFile(SeekableFile):
    """An object in an object store; each read is a request."""

    def __init__(self, path: str):
        super().__init__(_describe(path)["size"])
        self._path = path

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._at))
        data = read(self._path, self._at, wanted) if wanted else b""
        if len(data) != wanted:
            raise DataError(
                f"{self._path} returned {len(data):,} bytes instead of {wanted:,}: do not change "
                "inputs during a run, and store them without a Content-Encoding"
            )
        buffer[:wanted] = data
        self._at += wanted
        return wanted


def sha256(path: str) -> str:
    """The sha256 of a file's bytes, in hexadecimal digits.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise describe_refusal(path, error) from error
    return digest.hexdigest()


def has_sha256(path: str, expected: str) -> bool:
    """Whether there is a file with this sha256.

    Raises:
      DataError: it cannot be read.
    """
    try:
        return sha256(path) == expected
    except FileNotFoundError:
        return False


def sizes(folder: str) -> dict[str, int]:
    """Name -> bytes of each file in a folder; in an object store, path -> bytes at any depth.

    Those of an object store are sorted. They come from its listing, which may be out of date.

    Raises:
      OSError: the disk does not list them.
      DataError, UsageError: as `read`.
    """
    if not is_url(folder):
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    prefix = object_store.key_of(folder).rstrip("/") + "/"
    size_of = _list(folder, "find", prefix)
    return {key[len(prefix) :]: size_of[key] for key in sorted(size_of) if key.startswith(prefix)}


def matches(pattern: str) -> dict[str, int]:
    """The sizes in bytes of the objects that match a URL with *, ?, [] and **, by their URLs.

    Raises:
      DataError, UsageError: as `read`.
    """
    if not has_magic(pattern):
        own_size = size(pattern)
        return {} if own_size is None else {pattern: own_size}
    size_of = _list(pattern, "glob", object_store.key_of(pattern))
    return {f"{pattern.split('://')[0]}://{key.lstrip('/')}": size_of[key] for key in size_of}


def _list(url: str, method: str, key: str) -> dict[str, int]:
    try:
        entries = object_store.call(url, method, key, detail=True)
    except FileNotFoundError:  # there is no such bucket
        return {}
    return {key: entry["size"] for key, entry in entries.items() if entry["type"] == "file"}


def local_copy(path: str, folder: str) -> str:
    """The path of a local file, or of a copy of an object in a folder."""
    if not is_url(path):
        return path
    copy = os.path.join(folder, path.rsplit("/", 1)[-1])
    with open_file(path) as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target, _BUFFER_BYTES)
    return copy


# Writing


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turns errors of a disk into a DataError that names the path and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            here = tempfile.gettempdir() if is_url(path) else os.path.dirname(path)
            free = shutil.disk_usage(here).free
            raise DataError(
                f"no space left while writing {path} ({free / 1e6:,.0f} MB free): free space or "
                f"give another {flag('output')}, and run again; nothing was published"
            ) from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def write_file(path: str, content: bytes) -> None:
    """Writes a small file atomically."""
    folder, name = os.path.split(path)
    with workspace(folder) as local, disk_errors(path):
        temporary = os.path.join(local, f"{name}.{uuid.uuid4().hex}.tmp")
        try:
            os.makedirs(local or ".", exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(content)
            put(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.remove(temporary)


@contextmanager
def workspace(folder: str) -> Iterator[str]:
    """A local folder for files that `put` moves into `folder`; `folder` itself if it is local."""
    if not is_url(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as local:
        yield local


def put(local: str, path: str) -> None:
    """Moves a finished local file to a path on the same disk, or uploads it.

    Raises:
      DataError: the disk or the object store fails, or the object has other bytes afterwards.
    """
    if is_url(path):
        _upload(local, path)
        return
    with disk_errors(path):
        sync(local)  # otherwise a power cut may leave a name without its bytes
        os.replace(local, path)


def _upload(local: str, path: str) -> None:
    """Uploads a file, and repeats the upload if the object has other bytes afterwards."""
    moved, kind = os.path.getsize(local), object_store.kind_of(path)
    in_parts = kind == "s3" and moved >= 2 * _PART_BYTES  # as in s3fs
    checksum = _checksum(local, kind, in_parts=in_parts)
    options = {"chunksize": _PART_BYTES} if kind else {}
    if kind == "s3":
        options["max_concurrency"] = 4

    def attempt() -> None:
        key = object_store.key_of(path)
        object_store.call(path, "put_file", local, key, moved=moved, **options)
        stored = _describe(path)
        if checksum in (stored.get("md5Hash"), str(stored.get("ETag")).strip('"')):
            return
        # Other object stores have other checksums, and the ETag of an encrypted object is not an
        # MD5.
        if not has_sha256(path, sha256(local)):
            raise OSError("it has other bytes than were sent")

    object_store.patiently(path, attempt)


def _checksum(local: str, kind: str, *, in_parts: bool) -> str:
    """The checksum that an object store reports: an MD5 in base64 (gs), or an ETag (s3).

    Args:
      local: the file.
      kind: kind of object store, gs or s3.
      in_parts: whether it is sent in parts; the ETag is then the MD5 of their MD5s.
    """
    md5 = functools.partial(hashlib.md5, usedforsecurity=False)
    whole, parts = md5(), []
    with open(local, "rb") as file:
        for part in iter(lambda: file.read(_PART_BYTES), b""):
            if in_parts:
                parts.append(md5(part).digest())
            else:
                whole.update(part)
    if in_parts:
        return f"{md5(b''.join(parts)).hexdigest()}-{len(parts)}"
    return base64.b64encode(whole.digest()).decode() if kind == "gs" else whole.hexdigest()


def sync(path: str) -> None:
    """Waits until the bytes of a local file, or the names in a directory, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies objects on the server, source -> target; `sizes_of` has the size of each source."""
    _at_once(lambda source: _copy(source, copies[source], sizes_of[copies[source]]), copies)


def _copy(source: str, target: str, expected: int) -> None:
    def attempt() -> None:
        keys = object_store.key_of(source), object_store.key_of(target)
        object_store.call(target, "cp_file", *keys, moved=expected)
        copied = size(target)
        if copied != expected:
            raise OSError(f"the copy has {copied} bytes, not {expected}")

    object_store.patiently(target, attempt)


def delete(paths: Iterable[str]) -> None:
    """Deletes objects; missing ones are ignored."""
    _at_once(_delete, paths)


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        object_store.call(path, "rm_file", object_store.key_of(path))


def delete_folder(folder: str) -> None:
    """Deletes all files of a folder, on a disk or in an object store."""
    if is_url(folder):
        delete(f"{folder}/{name}" for name in sizes(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _at_once(operation: Callable[[str], None], paths: Iterable[str]) -> None:
    """Applies an operation to all paths concurrently; raises the first error."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(operation, paths))
