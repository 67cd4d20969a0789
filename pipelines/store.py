"""Files by path: on a disk, or in a store that Beam knows (gs://, s3://). Whole or not at all.

A store has no folders, cannot rename, and lies behind a network that breaks. What is put there is
read again and compared; what fails is tried again, unless the store refused it.
"""

import errno
import functools
import hashlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, BinaryIO, TypeVar

import xxhash

from schemas import typed_json
from schemas.errors import DataError, TextmillError, UsageError
from schemas.sidecar import file_sha256

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20
_TRIES, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 6, 0.5, 10
_PATIENCE_SECONDS = 60.0  # no new try after that: libraries below try again for minutes
_THREADS = 16
_REFUSALS = (400, 401, 403, 404, 405, 412)  # HTTP: the same request will get the same answer
_MISSING = 404
_NEVER_PASS = (TextmillError, ImportError, TypeError)  # ours, not the store's
_STORES_MODULES = ("apache_beam.io", "botocore", "google", "requests", "urllib3")
_beam_arguments: list[str] = []
_log = logging.getLogger(__name__)


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


def use_options(beam_arguments: list[str]) -> None:
    """Tells Beam's file systems of flags such as --s3_endpoint_url; workers are told by Beam."""
    _beam_arguments[:] = beam_arguments


def exists(path: str) -> bool:
    """Whether there is such a file."""
    if not is_remote(path):
        return os.path.exists(path)
    return _patiently(path, lambda: _file_systems().exists(path))


def size(path: str) -> int | None:
    """Bytes of a file of a store; None if there is none."""

    def get() -> int:
        return _file_systems().get_filesystem(path).metadata(path).size_in_bytes

    try:
        return _patiently(path, get)
    except FileNotFoundError:
        return None


def read(path: str, start: int = 0, length: int | None = None) -> bytes:
    """A file's bytes, all or some.

    Raises:
      FileNotFoundError: it is not there.
      DataError: the store does not give it.
    """

    def get() -> bytes:
        with _opened(path) as file:
            if start:
                file.seek(start)
            return file.read(-1 if length is None else length)

    return _patiently(path, get) if is_remote(path) else get()


def xxh3(path: str) -> bytes:
    """The xxh3_128 of a file."""

    def digest() -> bytes:
        return _digest(path, xxhash.xxh3_128()).digest()

    return _patiently(path, digest) if is_remote(path) else digest()


def sha256(path: str) -> str:
    """The sha256 of a file, as hexadecimal; "" if there is no such file."""
    try:
        if not is_remote(path):
            return file_sha256(path)
        return _patiently(path, lambda: _digest(path, hashlib.sha256()).hexdigest())
    except FileNotFoundError:
        return ""


def matches(pattern: str) -> list[tuple[str, int]]:
    """What a store matches to a pattern, with sizes."""
    [result] = _patiently(pattern, lambda: _file_systems().match([pattern]))
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
        with _opened(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        return copy

    return _patiently(path, get)


def copy_all(copies: dict[str, str], sizes_of: dict[str, int]) -> None:
    """Copies files within a store, on its side.

    Args:
      copies: source to target.
      sizes_of: target to its bytes.

    Raises:
      DataError: a copy could not be made.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        sizes = (sizes_of[target] for target in copies.values())
        list(threads.map(_copy, copies.keys(), copies.values(), sizes))  # raises what they raise


def delete(paths: Iterable[str]) -> None:
    """Deletes files of a store, those that are there."""
    paths = list(paths)
    if paths:
        _patiently(paths[0], lambda: _file_systems().delete(paths))


def delete_folder(folder: str) -> None:
    """Deletes all files of a folder, on a disk or in a store."""
    if is_remote(folder):
        delete(f"{folder}/{name}" for name in sizes(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: str, target: str, bytes_of_it: int) -> None:
    def copy() -> None:
        for *_, failure in _file_systems().copy([source], [target]) or ():
            if failure:  # s3 raises nothing
                raise failure
        found = _file_systems().get_filesystem(target).metadata(target).size_in_bytes
        if found != bytes_of_it:
            raise OSError(f"the copy has {found:,} bytes, not {bytes_of_it:,}")

    _patiently(target, copy)


def _upload(path: str, send: Callable[[BinaryIO], Any], xxh3_digest: bytes) -> None:
    """Sends a file to a store, reads it again, and tries anew if it holds anything else."""

    def attempt() -> None:
        if xxh3_digest == xxhash.xxh3_128_digest(b"") and path.startswith("s3://"):
            _put_nothing(path)
            return
        with _file_systems().create(path, compression_type=_as_it_is()) as file:
            send(file)
        if _digest(path, xxhash.xxh3_128()).digest() != xxh3_digest:
            raise OSError("it holds other bytes than were sent")

    _patiently(path, attempt)


def _put_nothing(path: str) -> None:
    """Makes an empty file: Beam sends parts, and s3 takes no file without one."""
    from apache_beam.io.aws.s3io import S3IO, parse_s3_path

    bucket, key = parse_s3_path(path)
    client: Any = S3IO(options=_file_systems()._pipeline_options).client
    client.client.put_object(Bucket=bucket, Key=key, Body=b"")


def _digest(path: str, found: Any) -> Any:
    """A hash, with all of a file added to it."""
    with _opened(path) as file:
        while data := file.read(_CHUNK_BYTES):
            found.update(data)
    return found


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if is_remote(path):
        file = _file_systems().open(path, compression_type=_as_it_is())
    else:
        file = open(path, "rb", buffering=0)
    with file:
        yield file


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file of a store for reading; Beam's file systems try again what fails on the way.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: the store does not give it, then or while it is read.
    """
    file = _patiently(path, lambda: _file_systems().open(path, compression_type=_as_it_is()))
    try:
        with file:
            yield file
    except Exception as error:
        if type(error).__module__.startswith(_STORES_MODULES):
            raise _in_words(path, error) from error
        raise


def _file_systems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    if FileSystems._pipeline_options is None:
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions(_beam_arguments))
    _share_clients()
    return FileSystems


@functools.cache
def _share_clients() -> None:
    """Spares s3 a new client for each call: 0.2 s of reading what services there are.

    Beam keeps none. Clients of boto3 may be used by several threads at once.
    """
    try:
        from apache_beam.io.aws.clients.s3 import boto3_client
        from boto3.session import Session
        from botocore.config import Config
    except ImportError:
        return
    config = Config(max_pool_connections=_THREADS)
    make = functools.cache(functools.partial(Session().client, config=config))
    session = SimpleNamespace(Session=lambda: SimpleNamespace(client=make))
    setattr(boto3_client, "boto3", SimpleNamespace(session=session))  # noqa: B010


def _as_it_is() -> str:
    from apache_beam.io.filesystem import CompressionTypes

    return CompressionTypes.UNCOMPRESSED


def _patiently(path: str, operation: Callable[[], T]) -> T:
    """Does it, again and again while the store or the network fail.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: the store refused, or went on failing.
    """
    from apache_beam.utils.retry import with_exponential_backoff

    began = time.monotonic()

    def may_pass(error: BaseException) -> bool:
        return _may_pass(error) and time.monotonic() - began < _PATIENCE_SECONDS

    patient = with_exponential_backoff(
        num_retries=_TRIES - 1,
        initial_delay_secs=_FIRST_DELAY_SECONDS,
        max_delay_secs=_LONGEST_DELAY_SECONDS,
        retry_filter=may_pass,
        logger=_log.info,
    )
    try:
        return patient(operation)()
    except TextmillError:
        raise
    except Exception as error:
        raise _in_words(path, error) from error


def _in_words(path: str, error: Exception) -> Exception:
    """What a user should be told of a failure."""
    if _code(error) == _MISSING:
        return FileNotFoundError(errno.ENOENT, "there is no such file", path)
    said = str(error).strip().split("\n")[0][:300] or type(error).__name__
    if any(map(_is_ours, _all_of(error))):
        return UsageError(
            f"{path} cannot be used: {said}; stores are gs:// and s3://, with textmill[gcp] and "
            "textmill[aws]"
        )
    if _code(error) in _REFUSALS:
        return DataError(f"{path}: the store refused ({said}); check its name and your access")
    return DataError(
        f"{path}: the store failed, time and again ({said}); check its name, your access and the "
        "network, and run again"
    )


def _may_pass(error: BaseException) -> bool:
    return (
        isinstance(error, Exception)
        and not any(map(_is_ours, _all_of(error)))
        and _code(error) not in _REFUSALS
    )


def _is_ours(error: object) -> bool:
    """Whether it is no store that failed, but what was asked of it."""
    return isinstance(error, _NEVER_PASS) or type(error) is ValueError  # others: broken answers


def _all_of(error: BaseException) -> tuple[Any, ...]:
    """A failure, and those that Beam put together in it."""
    details = getattr(error, "exception_details", None)
    return (error, *(details.values() if isinstance(details, dict) else ()))


def _code(error: BaseException) -> int | None:
    """The HTTP status of a failure, as far as Beam hands it on."""
    for inner in _all_of(error):
        if isinstance(inner, FileNotFoundError) or getattr(inner, "errno", None) == errno.ENOENT:
            return _MISSING
        code = inner if isinstance(inner, int) else getattr(inner, "code", None)
        if isinstance(code, int):
            return int(code)
    return None
