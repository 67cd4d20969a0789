"""Files by path: on a disk, or in a store that Beam knows (gs://, s3://). Whole or not at all.

A store has no folders, cannot rename, and lies behind a network that breaks. What is put there is
read again and compared; what fails is tried again, unless the store refused it.
"""

import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO

import xxhash

from pipelines.storage import store_calls
from schemas import typed_json
from schemas.errors import DataError
from schemas.manifest import file_sha256

_CHUNK_BYTES = 1 << 20
_AS_IT_IS = "uncompressed"  # CompressionTypes.UNCOMPRESSED: Beam would unpack what ends in .gz


def is_remote(path: str) -> bool:
    """Whether a path names a store (gs://...) instead of a local file."""
    return "://" in path


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turns what a disk refuses into a paragraph that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            here = tempfile.gettempdir() if is_remote(path) else os.path.dirname(path)
            free = shutil.disk_usage(here).free
            raise DataError(
                f"no space left while writing {path} ({free / 1e6:,.0f} MB free): free some or "
                "give another --output, and run again; nothing was published"
            ) from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def exists(path: str) -> bool:
    """Whether there is such a file."""
    if not is_remote(path):
        return os.path.exists(path)
    return store_calls.patiently(path, lambda: store_calls.file_systems().exists(path))


def size(path: str) -> int | None:
    """Bytes of a file of a store; None if there is none."""

    def get() -> int:
        return store_calls.file_systems().get_filesystem(path).metadata(path).size_in_bytes

    try:
        return store_calls.patiently(path, get)
    except FileNotFoundError:
        return None


def read(path: str, start: int = 0, length: int | None = None) -> bytes:
    """A file's bytes, all or some.

    Raises:
      FileNotFoundError: it is not there.
      DataError: the store does not give it.
    """

    def get() -> bytes:
        with _open_once(path) as file:
            if start:
                file.seek(start)
            return file.read(-1 if length is None else length)

    return store_calls.patiently(path, get) if is_remote(path) else get()


def xxh3(path: str) -> bytes:
    """Reads a file and gives its xxh3_128."""

    def digest() -> bytes:
        return _digest(path, xxhash.xxh3_128()).digest()

    return store_calls.patiently(path, digest) if is_remote(path) else digest()


def sha256(path: str) -> str:
    """The sha256 of a file, as hexadecimal; "" if there is no such file."""
    try:
        if not is_remote(path):
            return file_sha256(path)
        return store_calls.patiently(path, lambda: _digest(path, hashlib.sha256()).hexdigest())
    except FileNotFoundError:
        return ""


def matches(pattern: str) -> list[tuple[str, int]]:
    """What a store matches to a pattern, with sizes."""
    [result] = store_calls.patiently(pattern, lambda: store_calls.file_systems().match([pattern]))
    return [(found.path, found.size_in_bytes) for found in result.metadata_list]


def sizes(folder: str) -> dict[str, int]:
    """Bytes of each file in a folder, by its name; in a store by its path in it, at any depth."""
    if not is_remote(folder):
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    prefix = folder.rstrip("/") + "/"
    return {path.removeprefix(prefix): size for path, size in matches(prefix + "**")}


def load_json(path: str) -> Any:
    """The parsed content of a JSON file.

    Raises:
      DataError: the file is missing or not UTF-8 JSON.
    """
    with workspace(os.path.dirname(path)) as folder:
        return typed_json.load_json(local_copy(path, folder))


def write_file(path: str, content: bytes) -> None:
    """Writes a small file whole or not at all."""
    if is_remote(path):
        _upload(path, lambda file: file.write(content), xxhash.xxh3_128_digest(content))
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
    if not is_remote(folder):
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
    if is_remote(path):
        with open(local, "rb") as source:

            def send(file: BinaryIO) -> None:
                source.seek(0)
                shutil.copyfileobj(source, file, _CHUNK_BYTES)

            _upload(path, send, xxh3_digest)
        return
    if xxh3(local) != xxh3_digest:
        raise DataError(
            f"{local} does not hold what was written: the disk returned other bytes, or it is "
            "full; check it and run again"
        )
    with disk_errors(path):
        os.replace(local, path)


def local_copy(path: str, folder: str) -> str:
    """A file's path on this machine's disk: its own, or that of a copy in a folder."""
    if not is_remote(path):
        return path
    copy = os.path.join(folder, path.rsplit("/", 1)[-1])

    def get() -> str:
        with _open_once(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        return copy

    return store_calls.patiently(path, get)


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies files within a store, on its side.

    Args:
      copies: source to target.
      sizes_of: target to its bytes.

    Raises:
      DataError: a copy could not be made.
    """
    with ThreadPoolExecutor(store_calls.THREADS) as threads:
        sizes = (sizes_of[target] for target in copies.values())
        list(threads.map(_copy, copies.keys(), copies.values(), sizes))  # raises what they raise


def delete(paths: Iterable[str]) -> None:
    """Deletes files of a store, those that are there."""
    paths = list(paths)
    if paths:
        store_calls.patiently(paths[0], lambda: store_calls.file_systems().delete(paths))


def delete_folder(folder: str) -> None:
    """Deletes all files of a folder, on a disk or in a store."""
    if is_remote(folder):
        delete(f"{folder}/{name}" for name in sizes(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: str, target: str, bytes_of_it: int) -> None:
    def copy() -> None:
        for *_, failure in store_calls.file_systems().copy([source], [target]) or ():
            if failure:  # s3 raises nothing
                raise failure
        found = store_calls.file_systems().get_filesystem(target).metadata(target).size_in_bytes
        if found != bytes_of_it:
            raise OSError(f"the copy has {found:,} bytes, not {bytes_of_it:,}")

    store_calls.patiently(target, copy)


def _upload(path: str, send: Callable[[BinaryIO], Any], xxh3_digest: bytes) -> None:
    """Sends a file to a store, reads it again, and tries anew if it holds anything else."""

    def attempt() -> None:
        if xxh3_digest == xxhash.xxh3_128_digest(b"") and path.startswith("s3://"):
            _put_nothing(path)
            return
        with store_calls.file_systems().create(path, compression_type=_AS_IT_IS) as file:
            send(file)
        if _digest(path, xxhash.xxh3_128()).digest() != xxh3_digest:
            raise OSError("it holds other bytes than were sent")

    store_calls.patiently(path, attempt)


def _put_nothing(path: str) -> None:
    """Makes an empty file: Beam sends parts, and s3 takes no file without one."""
    from apache_beam.io.aws.s3io import S3IO, parse_s3_path

    bucket, key = parse_s3_path(path)
    client: Any = S3IO(options=store_calls.file_systems()._pipeline_options).client
    client.client.put_object(Bucket=bucket, Key=key, Body=b"")


def _digest(path: str, found: Any) -> Any:
    """A hash, with all of a file added to it."""
    with _open_once(path) as file:
        while data := file.read(_CHUNK_BYTES):
            found.update(data)
    return found


@contextmanager
def _open_once(path: str) -> Iterator[BinaryIO]:
    with _open(path) if is_remote(path) else open(path, "rb") as file:
        yield file


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file of a store for reading; Beam's file systems try again what fails on the way.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: the store does not give it, then or while it is read.
    """
    file = store_calls.patiently(path, lambda: _open(path))
    try:
        with file:
            yield file
    except Exception as error:
        if store_calls.is_of_a_store(error):
            raise store_calls.in_words(path, error) from error
        raise


def _open(path: str) -> Any:
    return store_calls.file_systems().open(path, compression_type=_AS_IT_IS)
