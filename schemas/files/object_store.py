"""Sends requests to object stores, again while they or the network fail.

`schemas.files.store` reads and writes files with it. Only this module uses fsspec: gcsfs for gs://,
s3fs for s3://, huggingface_hub for hf://, and any other protocol whose package is installed. It
retries temporary failures, reports after 5 s what it waits for, and gives up with an error after
one to two minutes. Requests to s3:// are retried here one by one, by no other layer; gcsfs retries
those to gs:// itself. The packages find endpoints and credentials themselves, except Google's
default credentials, which are loaded here: if their token cannot be renewed, gcsfs waits five
minutes without a message, and then reads without credentials.

Python 3.8 syntax.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
import time
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable, Iterator, TypeVar

from textmill.schemas.commands.terminal import call_if_slow, in_time, say
from textmill.schemas.errors import DataError, TextmillError, UsageError, one_line

T = TypeVar("T")
_EXTRAS = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}  # of setup.py
# "gs" or "s3" to a function that returns options of its file system; fsspec's configuration wins.
option_finders: dict[str, Callable[[], dict[str, Any]]] = {}


def say_on_stderr(line: str) -> None:
    """Prints a line about what this process waits for."""
    say(line, file=sys.stderr)


tell_user: Callable[[str], None] = say_on_stderr  # workers send the line to the command's display
_GCSFS_KINDS = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
SILENT_SECONDS = 5.0  # after that, Textmill reports what it waits for
_AGAIN_SECONDS = 10.0  # between two reports of a process
_last_told = -_AGAIN_SECONDS
# Without a byte for so long, a connection is given up and the request sent again.
STALL_SECONDS = 10.0
# The limit of one answer, retries by the package included; enough for a piece at 70 kB/s.
ANSWER_SECONDS = 120.0
PATIENCE_SECONDS = 60.0  # retries end after that
RENEWAL_SECONDS = 60.0  # for Google's token service
_SLOWEST = 70_000  # bytes per second of the slowest upload or copy that does not time out
_GIVEN = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_GS_REMEDY = (
    "check the network, log in again (gcloud auth application-default login), or set another key "
    f"with {_GIVEN}; set FSSPEC_GS_TOKEN=anon to read public files without credentials"
)
_S3_REMEDY = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, create a profile with `aws configure`, or "
    "log in again (aws sso login); set FSSPEC_S3_ANON=true to read public files"
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


def kind_of(url: str) -> str:
    """The extra whose package reads a URL: "gs", "s3", or "" for a different protocol."""
    return _EXTRAS.get(_protocol_of(url), "")


def _protocol_of(url: str) -> str:
    return url.split("://")[0].lower()


def key_of(url: str) -> str:
    """The name of a file in fsspec's file system: bucket/folder/name."""
    return package_of(url)._strip_protocol(url)


def call(url: str, method: str, *arguments: Any, moved: int = 0, **options: Any) -> Any:
    """Calls a method of fsspec's file systems, such as cat_file, with retries.

    Args:
      url: the file or directory.
      method: the name of the method.
      *arguments: its arguments.
      moved: bytes that it sends or copies, which extend the time limit.
      **options: its keyword arguments.

    Raises:
      FileNotFoundError: there is no such file to read or delete.
      DataError: the request fails.
      UsageError: no package reads this object store, or there are no credentials.
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


def is_beyond_end(error: BaseException | None) -> bool:
    """Whether a requested range begins at or after the end of a file: HTTP status 416."""
    return "416" in str(getattr(error, "code", "")) or "satisfiable" in str(error)


def patiently(url: str, operation: Callable[[], T], done: str = "written") -> T:
    """Runs an operation, with retries while the object store or the network fail.

    Args:
      url: the file, for errors.
      operation: may raise OSError, or errors of the packages for object stores.
      done: what the operation does with the file: read, written, deleted.

    Raises:
      FileNotFoundError, DataError, UsageError: as `call`.
    """
    try:
        with tell_if_slow(f"{url}: no answer yet"):
            return retry(operation, _may_pass, what=url)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", url) from error
    except TextmillError:
        raise
    except Exception as error:
        raise _give_up(url, error, done) from error


def retry(
    operation: Callable[[], T],
    may_pass: Callable[[BaseException], bool],
    tries: int | None = None,
    what: str = "",
) -> T:
    """Repeats an operation after temporary errors, for PATIENCE_SECONDS or `tries` times.

    Args:
      operation: raises errors.
      may_pass: whether an error is temporary.
      tries: the largest number of attempts.
      what: is waited for, in reports; "" for none.
    """
    # Imported here: reading a directory does not need the package.
    import tenacity

    return tenacity.Retrying(**_retries(may_pass, what, tries))(operation)


def _retries(
    may_pass: Callable[[BaseException], bool], what: str, tries: int | None = None
) -> dict[str, Any]:
    """Arguments of tenacity: when to repeat an operation, and what to report before."""
    # Imported here: reading a directory does not need the package.
    import tenacity

    def report(state: Any) -> None:
        if what and state.seconds_since_start >= SILENT_SECONDS:
            reason, pause = _reason(state.outcome.exception()), state.next_action.sleep
            _tell(f"{what}: {reason}; retry {state.attempt_number} in {pause:.0f} s")

    by_time, by_count = tenacity.stop_after_delay, tenacity.stop_after_attempt
    return {
        "retry": tenacity.retry_if_exception(may_pass),
        "stop": by_count(tries) if tries else by_time(PATIENCE_SECONDS),
        "wait": tenacity.wait_random_exponential(0.2, max=8),
        "before_sleep": report,
        "reraise": True,
    }


def _tell(what: str) -> None:
    """Reports what this process waits for, unless it did so a moment ago."""
    global _last_told
    if time.monotonic() - _last_told >= _AGAIN_SECONDS:
        _last_told = time.monotonic()
        tell_user(f"waiting for {what}")


@contextmanager
def tell_if_slow(what: str) -> Iterator[None]:
    """Reports what a block waits for, if it takes longer than SILENT_SECONDS, and how long.

    All threads of a process together report at most every _AGAIN_SECONDS.
    """
    began = time.monotonic()

    def tell() -> None:
        _tell(f"{what}, {time.monotonic() - began:.0f} s")

    with call_if_slow(SILENT_SECONDS, tell, again=_AGAIN_SECONDS):
        yield


def package_of(url: str) -> Any:
    """The class of the file system of a URL.

    Raises:
      UsageError: its package is not installed, or no package reads the protocol.
    """
    kind, protocol = kind_of(url), _protocol_of(url)
    if protocol in ("file", "local"):
        raise UsageError(f"{url}: write a path of this machine without {protocol}://")
    if not url.startswith(protocol):  # packages take S3: for the name of a bucket
        raise UsageError(f"{url}: write {protocol}:// in lower case")
    try:
        if kind == "gs" and not os.environ.get(_GCSFS_KINDS):
            # gcsfs's other class queries the type of each bucket by gRPC, and waits 60 s if that
            # fails (an emulator, a proxy). Users of zonal buckets set the variable.
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem
        return _fsspec().get_filesystem_class(protocol)
    except ImportError as error:
        extra = kind or ("hf" if protocol in ("hf", "http", "https") else "")
        remedy = f"pip install '/path/to/textmill[{extra}]'" if extra else f"install it ({error})"
        raise UsageError(
            f"{url}: the package that reads {protocol}:// is not installed: {remedy}"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{url}: no package reads {protocol}://; use a directory, gs://, s3://, "
            "hf:// or https://"
        ) from error


def _fsspec() -> ModuleType:
    """The package fsspec with its module asyn."""
    # Imported here: reading a directory does not need the package.
    import fsspec.asyn

    return fsspec


def _file_system(url: str) -> Any:
    """The file system, which fsspec caches per process."""
    package = package_of(url)
    # These packages log tracebacks of errors that they also raise, which Textmill reports.
    for name in ("gcsfs", "s3fs", "google.auth", "botocore.credentials", "aiobotocore.credentials"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind = kind_of(url)
    options = {**_fsspec().config.apply_config(package, {}), **option_finders.get(kind, dict)()}
    if kind == "gs" and not {"token", "anon"} & options.keys():
        options["token"] = _google_credentials(url) or "anon"
    if kind == "gs":
        options.setdefault("requests_timeout", _stalls())
    if _protocol_of(url) in ("http", "https"):
        options.setdefault("client_kwargs", {"timeout": _stalls()})
    if kind == "s3":
        own = {"read_timeout": STALL_SECONDS, "retries": {"total_max_attempts": 1}}
        options["config_kwargs"] = {**own, **options.get("config_kwargs", {})}
    try:
        files = package(use_listings_cache=False, **options)
    except Exception as error:  # for example, missing or broken credentials
        raise _give_up(url, error, "read") from error
    if kind == "s3":
        _retry_one_by_one(files)
    return files


def _stalls() -> Any:
    """Limits of a connection to gs://, without one for a whole answer."""
    # Imported here: readers of s3:// do not need the package.
    import aiohttp

    return aiohttp.ClientTimeout(sock_connect=STALL_SECONDS, sock_read=STALL_SECONDS)


def _retry_one_by_one(files: Any) -> None:
    """Has s3fs retry each request of a method with a report, not the whole method without one.

    botocore pauses for up to 20 s, and s3fs repeats only some errors.
    """
    if "_call_s3" in vars(files):  # fsspec returns the same object again
        return
    # Imported here: reading a directory does not need the package.
    import tenacity

    call_once = files._call_s3

    async def call_patiently(method: str, *arguments: Any, **options: Any) -> Any:
        key = "/".join(str(options[name]) for name in ("Bucket", "Key") if options.get(name))
        trying = tenacity.AsyncRetrying(**_retries(_may_pass, f"s3://{key}"))
        return await trying(call_once, method, *arguments, **options)

    files._call_s3, files.retries = call_patiently, 1


def _reason(error: BaseException) -> str:
    """The status of an answer, or the reason why there was none."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", cause))
        cause = cause.__cause__
    return str(getattr(error, "code", "") or one_line(error)[:80] or type(error).__name__)


def _google_credentials(url: str) -> Any:
    """Google's default credentials with a token; None if there are none.

    Raises:
      DataError: they cannot be loaded or renewed.
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
    """Loads credentials once per process and origin; gcsfs renews their token before it expires."""
    # Imported here: readers of s3:// do not have the package.
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
        return UsageError(f"{url}: there are no credentials for s3://: {_S3_REMEDY}")
    reason, remedy = one_line(error), "check the address, the network and the credentials"
    if isinstance(error, TimeoutError):
        reason = f"no answer in {ANSWER_SECONDS:.0f} s"
    elif isinstance(error, FileNotFoundError):
        reason = "there is no such bucket or file"
    elif "Credential" in type(error).__name__:
        remedy = f"the credentials of AWS cannot be used: {_S3_REMEDY}"
    elif not _may_pass(error):
        reason = f"the object store rejected the request: {reason}"
    return DataError(f"{url} cannot be {done}: {reason:.500}; {remedy}")


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    return not (
        isinstance(error, _REFUSALS)
        or not isinstance(error, Exception)
        or is_beyond_end(error)
        or str(getattr(error, "code", "")) in ("400", "401", "403", "405", "412")
        or getattr(error, "errno", None) == errno.EINVAL  # 400 of s3, for example an expired token
        or "Credential" in type(error).__name__
        or str(error).startswith("Forbidden")
    )
