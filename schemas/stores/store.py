"""Files of stores, such as gs://bucket/set and s3://bucket/set: read, listed, changed.

This is the one place that asks fsspec: gcsfs for gs://, s3fs for s3://, and any other protocol
whose package is installed. It tries again what may pass, says what it waits for after 5 s, and ends
in words after one to two minutes. Endpoints and credentials are those that the packages find. Only
Google's default credentials are loaded here: gcsfs is silent for five minutes where their token
cannot be renewed, and then reads without any.

Python 3.8 syntax.
"""

import errno
import functools
import logging
import os
import re
import sys
import time
from contextlib import contextmanager
from glob import has_magic
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, Optional, TypeVar

from schemas.commands.terminal import call_if_slow, in_time, say
from schemas.errors import DataError, TextmillError, UsageError, one_line

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}  # of setup.py
# Of "gs" and "s3": gives options to their file systems, before what fsspec is told by the user.
option_finders: Dict[str, Callable[[], Dict[str, Any]]] = {}
_GCSFS_KINDS = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
SILENT_SECONDS = 5.0  # then Textmill says what it waits for
_AGAIN_SECONDS = 60.0
_last_told = -_AGAIN_SECONDS
# For one answer, with what the package itself tries again; a part of a file at 70 kB/s comes.
ANSWER_SECONDS = 120.0
PATIENCE_SECONDS = 60.0  # what fails for so long is given up
RENEWAL_SECONDS = 60.0  # for Google's token service
_SLOWEST = 70_000  # bytes a second of an upload or a copy that is still waited for
_GIVEN = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_GS_REMEDY = (
    "check the network, log in again (gcloud auth application-default login), or name another key "
    f"with {_GIVEN}; what is public is read without credentials by FSSPEC_GS_TOKEN=anon"
)
_S3_REMEDY = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, make a profile with `aws configure`, or log "
    "in again (aws sso login); what is public is read by FSSPEC_S3_ANON=true"
)
_DONE = {"put_file": "written", "cp_file": "written", "rm_file": "deleted"}
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


def kind_of(url: str) -> str:
    """Which of the packages that are tested reads it: "gs", "s3", or "" for another."""
    return _EXTRAS.get(_protocol_of(url), "")


def _protocol_of(url: str) -> str:
    return url.split("://")[0].lower()


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


def describe(url: str) -> Dict[str, Any]:
    """What the store knows of a file: "size" (bytes), and a checksum by a name of its own.

    Raises:
      FileNotFoundError: there is no file, or it is a folder.
      DataError, UsageError: as `read`.
    """
    found = call(url, "info", key_of(url))
    if found["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, "there is no such file", url)
    return found


def size(url: str) -> Optional[int]:
    """Bytes of a file; None if there is none.

    Raises:
      DataError, UsageError: as `read`.
    """
    try:
        return describe(url)["size"]
    except FileNotFoundError:
        return None


def sizes(url: str) -> Dict[str, int]:
    """Bytes of all files of a folder, at any depth, by their sorted paths in it.

    They are of the store's listing, which may lag behind.

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
    """Calls a method of fsspec's file systems, such as cat_file, again where that may help.

    Args:
      url: of the file or folder.
      method: its name.
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
    """Does it, again and again while the store or the network fail; errors are as those of `call`.

    Args:
      url: that it is about, for errors.
      operation: raises OSError, or what the packages for stores raise.
      done: what is done with the file: read, written, deleted.
    """
    try:
        with tell_if_slow(f"{url}: no answer yet"):
            return retry(operation, _may_pass)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", url) from error
    except TextmillError:
        raise
    except Exception as error:
        raise _give_up(url, error, done) from error


def retry(
    operation: Callable[[], T],
    may_pass: Callable[[BaseException], bool],
    tries: Optional[int] = None,
) -> T:
    """Does it again after errors that may pass, for PATIENCE_SECONDS or so many times in all."""
    # Reading from a disk does not need this package.
    import tenacity

    by_time, by_count = tenacity.stop_after_delay, tenacity.stop_after_attempt
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_pass),
        stop=by_count(tries) if tries else by_time(PATIENCE_SECONDS),
        wait=tenacity.wait_random_exponential(0.2, max=8),
        reraise=True,
    )
    return trying(operation)


@contextmanager
def tell_if_slow(what: str) -> Iterator[None]:
    """Says on stderr what a block waits for, if it takes longer than SILENT_SECONDS.

    A process says so once in a minute, whatever its threads wait for.
    """

    def tell() -> None:
        global _last_told
        if time.monotonic() - _last_told > _AGAIN_SECONDS:
            _last_told = time.monotonic()
            say(f"waiting for {what}", file=sys.stderr)

    with call_if_slow(SILENT_SECONDS, tell):
        yield


def package_of(url: str) -> Any:
    """The class of the file system of a URL.

    Raises:
      UsageError: its package is not installed, or there is none.
    """
    kind, protocol = kind_of(url), _protocol_of(url)
    try:
        if kind == "gs" and not os.environ.get(_GCSFS_KINDS):
            # Its other class asks by gRPC what kind of bucket each is, and waits 60 s where that
            # does not get through (an emulator, a proxy). Who has zonal buckets sets the variable.
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem
        return _fsspec().get_filesystem_class(protocol)
    except ImportError as error:
        remedy = f"pip install '/path/to/textmill[{kind}]'" if kind else f"install it ({error})"
        raise UsageError(
            f"{url}: the package that reads {protocol}:// is not installed: {remedy}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{url}: nothing reads {protocol}://. Give a directory, or one on gs:// or s3://"
        ) from error


def _fsspec() -> ModuleType:
    """The package, with those of its modules that are used."""
    # Reading a directory needs none of it.
    import fsspec.asyn

    return fsspec


def _file_system(url: str) -> Any:
    """The file system, which fsspec keeps; one made before a fork is not used after it."""
    package = package_of(url)
    # They write a traceback for what they raise anyway: here it is told once, in words.
    for name in ("gcsfs", "s3fs", "google.auth", "botocore.credentials", "aiobotocore.credentials"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind = kind_of(url)
    options = {**_fsspec().config.apply_config(package, {}), **option_finders.get(kind, dict)()}
    if kind == "gs" and not {"token", "anon"} & options.keys():
        options["token"] = _google_credentials(url) or "anon"
    try:
        return package(use_listings_cache=False, **options)
    except Exception as error:  # as of credentials that are missing or broken
        raise _give_up(url, error, "read") from error


def _google_credentials(url: str) -> Any:
    """Google's default credentials with a token; None where there are none.

    Raises:
      DataError: there are some, and they cannot be loaded or renewed.
    """
    given = os.environ.get(_GIVEN)
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    origin = f"{path if os.path.isfile(path) else 'the metadata service, if any,'}"
    origin = f"credentials of {f'{_GIVEN}={given}' if given else origin}"
    try:
        with tell_if_slow(f"{origin} to be renewed: up to {RENEWAL_SECONDS:.0f} s"):
            return in_time(RENEWAL_SECONDS, lambda: _load_google(origin, os.getpid()))
    except Exception as error:
        raise DataError(
            f"{url} cannot be read: {origin} cannot be loaded or renewed: {one_line(error):.300}; "
            f"{_GS_REMEDY}"
        ) from error


@functools.lru_cache(maxsize=None)
def _load_google(origin: str, process: int) -> Any:
    """Loads credentials once a process and origin; gcsfs renews their token before it ends."""
    # A reader of s3:// does not have it.
    import google.auth.transport.requests

    auth: Any = google.auth
    request: Any = auth.transport.requests.Request()
    request = functools.partial(request, timeout=max(1, round(RENEWAL_SECONDS / 3)))
    try:
        credentials, _ = auth.default(scopes=[_SCOPE], request=request)
    except auth.exceptions.DefaultCredentialsError as error:
        if "were not found. To set up" in str(error) and not os.environ.get(_GIVEN):
            return None
        raise
    if not credentials.valid:
        retry(
            lambda: credentials.refresh(request),
            lambda error: isinstance(error, auth.exceptions.TransportError),
        )
    return credentials


def _give_up(url: str, error: Exception, done: str) -> TextmillError:
    if type(error).__name__ == "NoCredentialsError":
        return UsageError(f"s3:// wants credentials and there are none: {_S3_REMEDY} ({url})")
    why, remedy = one_line(error), "Check the address, the network and the credentials"
    if isinstance(error, TimeoutError):
        why = f"no answer in {ANSWER_SECONDS:.0f} s"
    elif isinstance(error, FileNotFoundError):
        why = "there is no such bucket or file"
    elif "Credential" in type(error).__name__:
        remedy = f"The credentials of AWS cannot be used: {_S3_REMEDY}"
    elif not _may_pass(error):
        why = f"the store refused: {why}"
    return DataError(f"{url} cannot be {done}: {why:.500}. {remedy}")


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
