"""Files by path, on a disk or in a store (gs://, s3://): atomic writes, copies, scratch files.

A store has no folders, cannot rename, and is behind a network that breaks. After an upload the
store's checksum is compared with that of the local file.
"""

import base64
import errno
import functools
import hashlib
import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipelines.storage import s3_flags
from schemas import typed_json
from schemas.errors import DataError
from schemas.manifest import file_sha256
from schemas.stores import store as stores
from schemas.stores.store import is_url

_BUFFER_BYTES = 8 << 20  # that are asked for at a time
_PART_BYTES = 16 << 20  # of an upload: the parts that are under way are in memory
_THREADS = 16  # that call a store at once

stores.option_finders["s3"] = s3_flags.of_job


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turns what a disk refuses into a paragraph that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            here = tempfile.gettempdir() if is_url(path) else os.path.dirname(path)
            free = shutil.disk_usage(here).free
            raise DataError(
                f"no space left while writing {path} ({free / 1e6:,.0f} MB free): free some or "
                "give another --output, and run again; nothing was published"
            ) from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def exists(path: str) -> bool:
    """Whether there is such a file."""
    return stores.size(path) is not None if is_url(path) else os.path.exists(path)


def size(path: str) -> int | None:
    """A file's bytes; None if there is none."""
    if is_url(path):
        return stores.size(path)
    return os.path.getsize(path) if os.path.exists(path) else None


def read(path: str, start: int = 0, length: int | None = None) -> bytes:
    """A file's bytes, all or some.

    Raises:
      FileNotFoundError: it is not there.
      DataError: the store does not give it.
    """
    if is_url(path):
        return stores.read(path, start, None if length is None else start + length)
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(-1 if length is None else length)


def sha256(path: str) -> str:
    """The sha256 of a file, as hexadecimal; "" if there is no such file."""
    try:
        if not is_url(path):
            return file_sha256(path)
        with io.BufferedReader(_StoredFile(path), _BUFFER_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def sizes(folder: str) -> dict[str, int]:
    """Bytes of each file in a folder, by its name; in a store by its path in it, at any depth."""
    if not is_url(folder):
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    return stores.sizes(folder)


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are stored.

    Raises:
      OSError: it cannot be opened, as FileNotFoundError if there is none.
      DataError: the store does not give it, then or while it is read.
    """
    if not is_url(path):
        return open(path, "rb")
    return io.BufferedReader(_StoredFile(path), _BUFFER_BYTES)


class _StoredFile(io.RawIOBase):
    """A file of a store; whatever is read of it is asked for then."""

    def __init__(self, path: str):
        found = stores.size(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        self._path, self._size, self._at = path, found, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        due = max(0, min(len(buffer), self._size - self._at))
        data = read(self._path, self._at, due) if due else b""
        if len(data) != due:
            raise DataError(
                f"{self._path} gave {len(data):,} bytes where it had {due:,} when it was opened: "
                "let it rest during a run; what is stored with a Content-Encoding is not read"
            )
        buffer[:due] = data
        self._at += due
        return due


def load_json(path: str) -> Any:
    """The parsed content of a JSON file.

    Raises:
      DataError: the file is missing or not UTF-8 JSON.
    """
    with workspace(os.path.dirname(path)) as folder:
        return typed_json.load_json(local_copy(path, folder))


def write_file(path: str, content: bytes) -> None:
    """Writes a small file, atomically."""
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
    """A local folder for files that `put` then brings into another one: itself, if it is local."""
    if not is_url(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as local:
        yield local


def put(local: str, path: str) -> None:
    """Gives a finished local file its name: on the same disk, where it is gone, or in a store.

    Raises:
      DataError: the disk refuses it, or the store refuses it or holds other bytes afterwards.
    """
    if is_url(path):
        _upload(local, path)
        return
    with disk_errors(path):
        sync(local)  # or a power cut may leave a name without its bytes
        os.replace(local, path)


def _upload(local: str, path: str) -> None:
    """Sends a file to a store, again if the store holds anything else afterwards."""
    size, kind = os.path.getsize(local), stores.kind_of(path)
    in_parts = kind == "s3" and size >= 2 * _PART_BYTES  # as s3fs does it
    checksum = _checksum(local, kind, in_parts=in_parts)
    options = {"chunksize": _PART_BYTES} if kind else {}
    options |= {"max_concurrency": 4} if kind == "s3" else {}

    def attempt() -> None:
        stores.call(path, "put_file", local, stores.key_of(path), moved=size, **options)
        held = stores.describe(path)
        if checksum in (held.get("md5Hash"), str(held.get("ETag")).strip('"')):
            return
        # Other stores have other checksums, and an ETag of encrypted files is no MD5.
        if sha256(path) != file_sha256(local):
            raise OSError("it holds other bytes than were sent")

    stores.patiently(path, attempt)


def _checksum(local: str, kind: str, *, in_parts: bool) -> str:
    """The checksum that a store gives for a file: an MD5 in base64 (gs), or an ETag (s3).

    Args:
      local: the file.
      kind: of the store.
      in_parts: whether it is sent in parts, whose MD5s the ETag is the MD5 of.
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
    """A file's path on this machine's disk: its own, or that of a copy in a folder."""
    if not is_url(path):
        return path
    copy = os.path.join(folder, path.rsplit("/", 1)[-1])
    with open_file(path) as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target, _BUFFER_BYTES)
    return copy


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies files within a store, on its side: source to target, whose bytes are in `sizes_of`."""
    _at_once(lambda source: _copy(source, copies[source], sizes_of[copies[source]]), copies)


def _copy(source: str, target: str, due: int) -> None:
    def attempt() -> None:
        keys = stores.key_of(source), stores.key_of(target)
        stores.call(target, "cp_file", *keys, moved=due)
        found = stores.size(target)
        if found != due:
            raise OSError(f"the copy has {found} bytes, not {due}")

    stores.patiently(target, attempt)


def delete(paths: Iterable[str]) -> None:
    """Deletes files of a store, those that are there."""
    _at_once(_delete, paths)


def _delete(path: str) -> None:
    with suppress(FileNotFoundError):
        stores.call(path, "rm_file", stores.key_of(path))


def delete_folder(folder: str) -> None:
    """Deletes all files of a folder, on a disk or in a store."""
    if is_url(folder):
        delete(f"{folder}/{name}" for name in sizes(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _at_once(operation: Callable[[str], None], paths: Iterable[str]) -> None:
    """Does it for all paths of a store, many at a time; raises what one of them raises."""
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(operation, paths))


@dataclass(frozen=True)
class Pointer:
    """Where bytes are in a scratch file, in which they wait until another worker takes them.

    Only pointers travel: where shuffles hold all in memory, the parent process holds kilobytes.
    """

    path: str
    offset: int
    length: int


def write_scratch(directory: str, values: list[bytes]) -> list[Pointer]:
    """Writes values into a new file; a retried block writes another, none is overwritten."""
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
    """The bytes themselves, read where a pointer leads."""
    if isinstance(value, bytes):
        return value
    return read(value.path, value.offset, value.length)
