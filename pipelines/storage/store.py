"""Files by path: on a disk, or in a store (gs://, s3://). Whole or not at all.

A store has no folders, cannot rename, and lies behind a network that breaks. What is put there is
read again and compared; what fails is tried again, unless the store refused it.
"""

import errno
import hashlib
import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import xxhash

from pipelines.storage import s3_flags
from schemas import typed_json
from schemas.errors import DataError
from schemas.manifest import file_sha256
from schemas.stores import store as stores
from schemas.stores.store import is_url

_CHUNK_BYTES = 1 << 20
_BUFFER_BYTES = 8 << 20  # that are asked for at a time
# Of an upload: the parts that are under way are in memory.
_PARTS = {"chunksize": 16 << 20, "max_concurrency": 4}
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


def xxh3(path: str) -> bytes:
    """Reads a file and gives its xxh3_128."""
    return _digest(path, xxhash.xxh3_128()).digest()


def sha256(path: str) -> str:
    """The sha256 of a file, as hexadecimal; "" if there is no such file."""
    try:
        if not is_url(path):
            return file_sha256(path)
        return _digest(path, hashlib.sha256()).hexdigest()
    except FileNotFoundError:
        return ""


def _digest(path: str, found: Any) -> Any:
    """A hash, with all of a file added to it."""
    with open_file(path) as file:
        while data := file.read(_CHUNK_BYTES):
            found.update(data)
    return found


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
    """Writes a small file whole or not at all."""
    if is_url(path):
        _upload(path, xxhash.xxh3_128_digest(content), "pipe_file", stores.key_of(path), content)
        return
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with disk_errors(path):
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)


@contextmanager
def workspace(folder: str) -> Iterator[str]:
    """A local folder for files that `put` then brings into another one: itself, if it is local."""
    if not is_url(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as local:
        yield local


def put(local: str, path: str, xxh3_digest: bytes) -> None:
    """Gives a finished local file its name, on the same disk or in a store.

    Args:
      local: the file; it is gone afterwards, if it was given a local name.
      path: its name.
      xxh3_digest: of what was meant to be written.

    Raises:
      DataError: the disk or the store gives back other bytes.
    """
    if is_url(path):
        options = {"moved": os.path.getsize(local), **(_PARTS if stores.kind_of(path) else {})}
        _upload(path, xxh3_digest, "put_file", local, stores.key_of(path), **options)
        return
    if xxh3(local) != xxh3_digest:
        raise DataError(
            f"{local} does not hold what was written: the disk returned other bytes, or it is "
            "full; check it and run again"
        )
    with disk_errors(path):
        sync(local)  # or a power cut may leave a name without its bytes
        os.replace(local, path)


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


def _upload(path: str, xxh3_digest: bytes, method: str, *arguments: Any, **options: Any) -> None:
    """Sends a file to a store, reads it again, and tries anew if it holds anything else."""

    def attempt() -> None:
        stores.call(path, method, *arguments, **options)
        if xxh3(path) != xxh3_digest:
            raise OSError("it holds other bytes than were sent")

    stores.patiently(path, attempt)


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies files within a store, on its side.

    Args:
      copies: source to target.
      sizes_of: target to its bytes.

    Raises:
      DataError: a copy could not be made.
    """
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
