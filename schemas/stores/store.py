"""Files of stores, such as gs://bucket/set and s3://bucket/set: whole, in parts, listed, changed.

Access is fsspec's: gcsfs for gs://, s3fs for s3://, and any other protocol whose package is
installed. Credentials and endpoints are found as those packages find them, but credentials that are
there and cannot be used are an error: see `store_credentials`. What can be tried again is tried
again, and nothing for ever: a store that does not answer is an error in words.

Python 3.8 syntax.
"""

import errno
import logging
import os
import re
from glob import has_magic
from types import ModuleType
from typing import Any, Callable, Dict, Optional, TypeVar

from schemas.errors import DataError, TextmillError, UsageError, one_line
from schemas.stores.store_credentials import current_credentials, tell_if_slow

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}  # of setup.py
# Of "gs" and "s3": gives options to their file systems, before what fsspec is told by the user.
option_finders: Dict[str, Callable[[], Dict[str, Any]]] = {}
_GCSFS_KINDS = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
# For one answer, with what the package itself tries again; a part of a file at 70 kB/s comes.
ANSWER_SECONDS = 120.0
PATIENCE_SECONDS = 60.0  # what fails for so long is given up
_SLOWEST = 70_000  # bytes a second of an upload or a copy that is still waited for
_DONE = {"pipe_file": "written", "put_file": "written", "cp_file": "written", "rm_file": "deleted"}
_REFUSALS = (
    FileNotFoundError,
    PermissionError,
    ImportError,
    TextmillError,
    TypeError,
    ValueError,
)


def is_url(path: str) -> bool:
    """Whether a path is of a store: gs://bucket/set, but neither /data/set nor gs:set."""
    return bool(_URL.match(path))


def protocol_of(url: str) -> str:
    """What stands before ://, in lower case."""
    return url.split("://")[0].lower()


def kind_of(url: str) -> str:
    """Which of the packages that are tested reads it: "gs", "s3", or "" for another."""
    return _EXTRAS.get(protocol_of(url), "")


def read(url: str, start: int = 0, stop: Optional[int] = None) -> bytes:
    """Bytes `start` to `stop` of a file, fewer where it ends before.

    Raises:
      FileNotFoundError: there is none.
      DataError: the store does not give it.
      UsageError: there is no package for this kind of store, or there are no credentials.
    """
    part = {} if stop is None and not start else {"start": start, "end": stop}
    try:
        return call(url, "cat_file", key_of(url), **part)
    except DataError as error:
        if _is_beyond_end(error.__cause__):
            return b""
        raise


def size(url: str) -> Optional[int]:
    """Bytes of a file; None if there is none.

    Raises:
      DataError, UsageError: as `read`.
    """
    try:
        found = call(url, "info", key_of(url))
    except FileNotFoundError:
        return None
    return found["size"] if found["type"] == "file" else None


def sizes(url: str) -> Dict[str, int]:
    """Bytes of all files of a folder, at any depth, by their sorted paths in it.

    It is the store's listing that says so, which may lag behind.

    Raises:
      DataError, UsageError: as `read`.
    """
    folder = key_of(url).rstrip("/") + "/"
    found = _list(url, "find", folder)
    return {key[len(folder) :]: found[key] for key in sorted(found) if key.startswith(folder)}


def matches(pattern: str) -> Dict[str, int]:
    """Bytes of the files that a URL with *, ?, [] and ** (any folders) stands for, by their URLs.

    Raises:
      DataError, UsageError: as `read`.
    """
    if not has_magic(pattern):
        found = size(pattern)
        return {} if found is None else {pattern: found}
    found = _list(pattern, "glob", key_of(pattern))
    return {f"{pattern.split('://')[0]}://{key.lstrip('/')}": found[key] for key in found}


def _list(url: str, method: str, key: str) -> Dict[str, int]:
    try:
        found = call(url, method, key, detail=True)
    except FileNotFoundError:  # there is no such bucket
        return {}
    return {key: entry["size"] for key, entry in found.items() if entry["type"] == "file"}


def key_of(url: str) -> str:
    """What fsspec's file system calls a file: bucket/folder/name."""
    return package_of(url)._strip_protocol(url)


def call(url: str, method: str, *arguments: Any, moved: int = 0, **options: Any) -> Any:
    """Calls a method of the file system of a URL, again where that may help.

    Args:
      url: of the file or folder, for errors too.
      method: of fsspec's file systems, such as cat_file.
      *arguments: of it.
      moved: bytes that it sends or copies, for which it may take longer.
      **options: of it.

    Raises:
      FileNotFoundError: there is no such file to read or delete.
      DataError: the store does not do it.
      UsageError: there is no package for this kind of store, or there are no credentials.
    """
    files, fsspec = _file_system(url), _fsspec().asyn
    seconds = ANSWER_SECONDS + moved / _SLOWEST

    def ask() -> Any:
        if not files.async_impl:
            return getattr(files, method)(*arguments, **options)
        coroutine = getattr(files, "_" + method)
        return fsspec.sync(files.loop, coroutine, *arguments, timeout=seconds, **options)

    done = _DONE.get(method, "read")
    try:
        return patiently(url, ask, done)
    except FileNotFoundError as error:
        if done == "written":
            raise _give_up(url, error, done) from error
        raise


def patiently(url: str, operation: Callable[[], T], done: str = "written") -> T:
    """Does it, again and again while the store or the network fail.

    Args:
      url: that it is about, for errors.
      operation: raises OSError, or what the packages for stores raise.
      done: what is done with the file: read, written, deleted.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: the store refused, or went on failing.
      TextmillError: of the operation.
    """
    # Who reads files of a disk alone does without this package.
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

    trying = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_random_exponential(0.2, max=8),
        reraise=True,
    )
    try:
        with tell_if_slow(f"{url}: no answer yet"):
            return trying(operation)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", url) from error
    except TextmillError:
        raise
    except Exception as error:
        raise _give_up(url, error, done) from error


def package_of(url: str) -> Any:
    """The class of the file system of a URL.

    Raises:
      UsageError: its package is not installed, or there is none.
    """
    try:
        if kind_of(url) == "gs" and not os.environ.get(_GCSFS_KINDS):
            # Its other class asks by gRPC what kind of bucket each is, and waits 60 s where that
            # does not get through (an emulator, a proxy). Who has zonal buckets sets the variable.
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem
        return _fsspec().get_filesystem_class(protocol_of(url))
    except ImportError as error:
        kind = kind_of(url)
        remedy = f"pip install '/path/to/textmill[{kind}]'" if kind else f"install it ({error})"
        raise UsageError(
            f"{url}: the package that reads {protocol_of(url)}:// is not installed: {remedy}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{url}: nothing reads {protocol_of(url)}://. Give a directory, or one on gs:// or "
            "s3://"
        ) from error


def _fsspec() -> ModuleType:
    """The package, with those of its modules that are used."""
    # Who reads a directory does without.
    import fsspec
    import fsspec.asyn
    import fsspec.config

    return fsspec


def _file_system(url: str) -> Any:
    """The file system, which fsspec keeps; one made before a fork is not used after it."""
    package = package_of(url)
    # They write a traceback for what they raise anyway: here it is told once, in words.
    for name in ("gcsfs", "s3fs"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind = kind_of(url)
    options = {**_fsspec().config.apply_config(package, {}), **option_finders.get(kind, dict)()}
    if kind and not {"token", "key", "anon"} & options.keys():
        credentials = current_credentials(kind, url)
        if kind == "gs":  # it would go on without those that do not work
            options["token"] = credentials or "anon"
        elif credentials is None:
            raise UsageError(
                "s3:// wants credentials and there are none: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or make a profile with `aws configure`; what is public is "
                f"read by FSSPEC_S3_ANON=true ({url})"
            )
    try:
        return package(use_listings_cache=False, **options)
    except Exception as error:  # as of credentials that are missing or broken
        raise _give_up(url, error, "read") from error


def _give_up(url: str, error: Exception, done: str) -> DataError:
    said = one_line(error)
    if isinstance(error, TimeoutError):
        said = f"no answer in {ANSWER_SECONDS:.0f} s"
    elif isinstance(error, FileNotFoundError):
        said = "there is no such bucket or file"
    elif not _may_pass(error):
        said = f"the store refused: {said}"
    return DataError(
        f"{url} cannot be {done}: {said:.500}. Check the address, the network and the credentials"
    )


def _is_beyond_end(error: Optional[BaseException]) -> bool:
    """Whether a range was asked for that begins where a file has ended: HTTP status 416."""
    return "416" in str(getattr(error, "code", "")) or "satisfiable" in str(error)


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    return not (
        isinstance(error, _REFUSALS)
        or not isinstance(error, Exception)
        or _is_beyond_end(error)
        or str(getattr(error, "code", "")) in ("400", "401", "403", "405", "412")
        or getattr(error, "errno", None) == errno.EINVAL  # 400 of s3, as for a token that expired
        or "Credential" in type(error).__name__
        or str(error).startswith("Forbidden")
    )
