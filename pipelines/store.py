"""Files on a disk or in an object store (gs://, s3://): atomic writes, copies, scratch files.

Object stores have no folders and no rename, and networks fail. After an upload, the checksum of the
object is compared with that of the local file. Beam's flags for s3://, such as --s3_endpoint_url,
reach s3fs here and in workers.
"""

import argparse
import atexit
import base64
import errno
import functools
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from textmill.schemas.errors import DataError
from textmill.schemas.files import object_store as stores
from textmill.schemas.files.local_file import open_regular
from textmill.schemas.files.object_store import is_url
from textmill.schemas.format.manifest import file_sha256

_BUFFER_BYTES = 8 << 20  # bytes of one request
_PART_BYTES = 16 << 20  # bytes of a part of an upload; parts in transit are in memory
_THREADS = 16  # concurrent requests
_S3_OPTIONS = {
    "s3_access_key_id": "key",
    "s3_secret_access_key": "secret",
    "s3_session_token": "token",
    "s3_endpoint_url": "endpoint_url",
}
_S3_CLIENT_OPTIONS = {
    "s3_region_name": "region_name",
    "s3_api_version": "api_version",
    "s3_verify": "verify",
}
_S3_NO_TLS = "s3_disable_ssl"
# Path of a file with flags. Beam passes flags to workers on other machines, not to subprocesses.
_S3_VARIABLE = "TEXTMILL_S3_FLAGS"


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
                "give another --output, and run again; nothing was published"
            ) from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def exists(path: str) -> bool:
    """Whether a file exists."""
    return stores.size(path) is not None if is_url(path) else os.path.exists(path)


def size(path: str) -> int | None:
    """The size of a file in bytes; None if it does not exist."""
    if is_url(path):
        return stores.size(path)
    return os.path.getsize(path) if os.path.exists(path) else None


def read(path: str, start: int = 0, length: int | None = None) -> bytes:
    """Reads a file, or a range of it.

    Raises:
      FileNotFoundError: it does not exist.
      DataError: the object store fails, or it is no regular file.
    """
    if is_url(path):
        return stores.read(path, start, None if length is None else start + length)
    with open_regular(path) as file:
        file.seek(start)
        return file.read(-1 if length is None else length)


def sha256(path: str) -> str:
    """The sha256 of a file, in hexadecimal; "" if it does not exist."""
    try:
        if not is_url(path):
            return file_sha256(path)
        with io.BufferedReader(_StoredFile(path), _BUFFER_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def sizes(folder: str) -> dict[str, int]:
    """Name -> bytes of each file in a folder; in an object store, path -> bytes at any depth."""
    if not is_url(folder):
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    return stores.sizes(folder)


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are stored.

    Raises:
      OSError: it cannot be opened; FileNotFoundError if it does not exist.
      DataError: it is no regular file; or the object store fails, now or while it is read.
    """
    if not is_url(path):
        return open_regular(path)
    return io.BufferedReader(_StoredFile(path), _BUFFER_BYTES)


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
        size = stores.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        super().__init__(size)
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
    size, kind = os.path.getsize(local), stores.kind_of(path)
    in_parts = kind == "s3" and size >= 2 * _PART_BYTES  # as in s3fs
    checksum = _checksum(local, kind, in_parts=in_parts)
    options = {"chunksize": _PART_BYTES} if kind else {}
    options |= {"max_concurrency": 4} if kind == "s3" else {}

    def attempt() -> None:
        stores.call(path, "put_file", local, stores.key_of(path), moved=size, **options)
        stored = stores.describe(path)
        if checksum in (stored.get("md5Hash"), str(stored.get("ETag")).strip('"')):
            return
        # Other object stores have other checksums, and the ETag of an encrypted object is no MD5.
        if sha256(path) != file_sha256(local):
            raise OSError("it has other bytes than were sent")

    stores.patiently(path, attempt)


def _checksum(local: str, kind: str, *, in_parts: bool) -> str:
    """The checksum that an object store reports: an MD5 in base64 (gs), or an ETag (s3).

    Args:
      local: the file.
      kind: kind of object store, gs or s3.
      in_parts: whether it is sent in parts; the ETag is then the MD5 of their MD5s.
    """
    md5 = functools.partial(hashlib.md5, usedforsecurity=False)
    with open(local, "rb") as file:
        if in_parts:
            parts = [md5(part).digest() for part in iter(lambda: file.read(_PART_BYTES), b"")]
            return f"{md5(b''.join(parts)).hexdigest()}-{len(parts)}"
        whole = hashlib.file_digest(file, md5)
    return base64.b64encode(whole.digest()).decode() if kind == "gs" else whole.hexdigest()


def sync(path: str) -> None:
    """Waits until the bytes of a local file, or the names in a directory, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def local_copy(path: str, folder: str) -> str:
    """The path of a local file, or of a copy of an object in a folder."""
    if not is_url(path):
        return path
    copy = os.path.join(folder, path.rsplit("/", 1)[-1])
    with open_file(path) as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target, _BUFFER_BYTES)
    return copy


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies objects on the server, source -> target; `sizes_of` has the size of each source."""
    _at_once(lambda source: _copy(source, copies[source], sizes_of[copies[source]]), copies)


def _copy(source: str, target: str, expected: int) -> None:
    def attempt() -> None:
        keys = stores.key_of(source), stores.key_of(target)
        stores.call(target, "cp_file", *keys, moved=expected)
        copied = stores.size(target)
        if copied != expected:
            raise OSError(f"the copy has {copied} bytes, not {expected}")

    stores.patiently(target, attempt)


def delete(paths: Iterable[str]) -> None:
    """Deletes objects; missing ones are ignored."""
    _at_once(_delete, paths)


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        stores.call(path, "rm_file", stores.key_of(path))


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


@dataclass(frozen=True)
class Pointer:
    """The position of bytes in a scratch file, from which another worker reads them.

    Only pointers pass through the runner, which may hold a whole shuffle in memory.
    """

    path: str
    offset: int
    length: int


def write_scratch(directory: str, values: list[bytes]) -> list[Pointer]:
    """Writes values into a new file; a retried block writes another file."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.blocks")
    pointers, offset = [], 0
    for value in values:
        pointers.append(Pointer(path, offset, len(value)))
        offset += len(value)
    if is_url(path):
        write_file(path, b"".join(values))
    else:
        with open(path, "xb") as file:
            file.writelines(values)
    return pointers


def load(value: bytes | Pointer) -> bytes:
    """The bytes of a value; reads them if it is a pointer."""
    if isinstance(value, bytes):
        return value
    return read(value.path, value.offset, value.length)


def take_s3_flags(beam_arguments: list[str]) -> None:
    """Stores Beam's flags of s3:// for this process and the workers that it starts.

    They are in a file that only this user can read, since `ps` shows the environment, which every
    subprocess inherits.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (*_S3_OPTIONS, *_S3_CLIENT_OPTIONS):
        parser.add_argument(f"--{name}")
    parser.add_argument(f"--{_S3_NO_TLS}", action="store_true")
    parsed = vars(parser.parse_known_args(beam_arguments)[0])
    flags = {name: value for name, value in parsed.items() if value}
    os.environ.pop(_S3_VARIABLE, None)
    if flags:
        file, path = tempfile.mkstemp(prefix="textmill-")  # with mode 0600
        atexit.register(Path(path).unlink, missing_ok=True)
        with open(file, "w") as out:
            json.dump(flags, out)
        os.environ[_S3_VARIABLE] = path


@functools.cache
def _read_s3_flags(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text()) if path else {}


def _s3_options() -> dict[str, Any]:
    """Options of s3fs from the stored flags; on another machine, from the flags of the job."""
    flags = _read_s3_flags(os.environ.get(_S3_VARIABLE, ""))
    beam = sys.modules.get("apache_beam.options.value_provider")  # imported in every worker
    if beam and not flags:
        flags = beam.RuntimeValueProvider.runtime_options or {}
    options = {name: flags[flag] for flag, name in _S3_OPTIONS.items() if flags.get(flag)}
    client = {name: flags[flag] for flag, name in _S3_CLIENT_OPTIONS.items() if flags.get(flag)}
    options |= {"client_kwargs": client} if client else {}
    return options | ({"use_ssl": False} if flags.get(_S3_NO_TLS) else {})


stores.option_finders["s3"] = _s3_options
