"""Calls of Beam's file systems: made again while a store fails, and their failures in words."""

import errno
import functools
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from schemas.errors import DataError, TextmillError, UsageError
from schemas.store_credentials import current_credentials, told_if_slow

T = TypeVar("T")
THREADS = 16  # that call a store at once
_TRIES, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 6, 0.5, 10
_BEAMS_PAUSE = 5.0  # seconds
_PATIENCE_SECONDS = 60.0  # no new try after that: libraries below try again for minutes
_REFUSALS = (400, 401, 403, 404, 405, 412)  # HTTP: the same request will get the same answer
_MISSING = 404
_NEVER_PASS = (TextmillError, ImportError, TypeError)  # ours, not the store's
_MODULES = ("apache_beam.io", "botocore", "google", "requests", "urllib3")
_beam_arguments: list[str] = []
_log = logging.getLogger(__name__)


def use_options(beam_arguments: list[str]) -> None:
    """Tells Beam's file systems of flags such as --s3_endpoint_url; workers are told by Beam."""
    _beam_arguments[:] = beam_arguments


def file_systems() -> Any:
    """Beam's, with the options of the command line."""
    from apache_beam.io.filesystems import FileSystems

    _hurry()
    if FileSystems._pipeline_options is None:
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions(_beam_arguments))
    _share_clients()
    return FileSystems


@functools.cache
def _hurry() -> None:
    """Beam says each failure of s3 with a traceback and waits five minutes; `patiently` does that.

    Its pauses between tries grow from 5 to 320 s: here to no more than 5.
    """
    from apache_beam.utils.retry import Clock

    setattr(Clock, "sleep", lambda _, seconds: time.sleep(min(seconds, _BEAMS_PAUSE)))  # noqa: B010
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it counts its tries


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
    config = Config(max_pool_connections=THREADS)
    own = Session()

    @functools.cache
    def make(**named: Any) -> Any:
        if not named.get("aws_access_key_id") and own.get_credentials() is None:
            raise UsageError(
                "s3:// wants credentials and there are none: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, make a profile with `aws configure`, or give "
                "--s3_access_key_id and --s3_secret_access_key"
            )
        return own.client(config=config, **named)

    session = SimpleNamespace(Session=lambda: SimpleNamespace(client=make))
    setattr(boto3_client, "boto3", SimpleNamespace(session=session))  # noqa: B010


def patiently(path: str, operation: Callable[[], T]) -> T:
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
    check_credentials(path)
    try:
        with told_if_slow(f"{path}: no answer yet"):
            return patient(operation)()
    except TextmillError:
        raise
    except Exception as error:
        raise in_words(path, error) from error


def check_credentials(path: str) -> None:
    """Refuses credentials that are there and of no use: Beam would go on with none.

    Where there are none Beam is told so: it would look for them five times, for half a minute.

    Raises:
      DataError: they cannot be loaded or renewed.
    """
    from apache_beam.options.pipeline_options import S3Options

    options = file_systems()._pipeline_options
    if path.startswith("s3") and options.view_as(S3Options).s3_access_key_id:
        return
    if current_credentials(path) is None and path.startswith("gs"):
        from apache_beam.internal.gcp.auth import _Credentials

        setattr(_Credentials, "_credentials_init", True)  # noqa: B010


def in_words(path: str, error: Exception) -> Exception:
    """What a user should be told of a failure."""
    if _code(error) == _MISSING:
        return FileNotFoundError(errno.ENOENT, "there is no such file", path)
    said = str(error).strip().split("\n")[0][:300] or type(error).__name__
    for inner in _all_of(error):
        if isinstance(inner, TextmillError):
            return inner
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


def is_of_a_store(error: Exception) -> bool:
    """Whether a library for stores raised it."""
    return type(error).__module__.startswith(_MODULES)


def _may_pass(error: BaseException) -> bool:
    return (
        isinstance(error, Exception)
        and not any(map(_is_ours, _all_of(error)))
        and _code(error) not in _REFUSALS
    )


def _is_ours(error: object) -> bool:
    """Whether it is no store that failed, but what was asked of it."""
    return isinstance(error, _NEVER_PASS) or type(error) is ValueError  # others: broken answers


def _all_of(error: Any) -> tuple[Any, ...]:
    """A failure, and those that Beam put together in it, at any depth."""
    details = getattr(error, "exception_details", None)
    inner = details.values() if isinstance(details, dict) else ()
    return (error, *(found for one in inner for found in _all_of(one)))


def _code(error: BaseException) -> int | None:
    """The HTTP status of a failure, as far as Beam hands it on."""
    for inner in _all_of(error):
        if isinstance(inner, FileNotFoundError) or getattr(inner, "errno", None) == errno.ENOENT:
            return _MISSING
        code = inner if isinstance(inner, int) else getattr(inner, "code", None)
        if isinstance(code, int):
            return int(code)
    return None
