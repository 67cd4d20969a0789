"""Credentials of stores: loaded and renewed before a store is asked, in words and not for ever.

The libraries of gs:// and s3:// load and renew credentials inside the first call: silent for
minutes where the token service does not answer, and gs:// is then read without any. Here it is
said after seconds what is waited for, after a minute it is an error, and a store is read without
credentials only where there are none, or FSSPEC_GS_TOKEN=anon asks for it.

Python 3.8 syntax.
"""

import functools
import logging
import os
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timezone
from typing import Any, Iterator, Optional, Tuple

from schemas.commands.terminal import call_if_slow, in_time, say
from schemas.errors import DataError, one_line

SILENT_SECONDS = 5.0  # then it is said what is waited for
RENEWAL_SECONDS = 60.0  # then a token service is given up
_TRY_SECONDS, _PAUSE_SECONDS = 20, 2.0
_FRESH_SECONDS = 360.0  # gcsfs would renew a token by itself 300 s before its end
_AGAIN_SECONDS = 60.0
_last_told = -_AGAIN_SECONDS
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_GIVEN = "GOOGLE_APPLICATION_CREDENTIALS"
_REMEDY = {
    "gs": "check the network, log in again (gcloud auth application-default login), or name "
    "another key with GOOGLE_APPLICATION_CREDENTIALS; what is public is read without credentials "
    "by FSSPEC_GS_TOKEN=anon",
    "s3": "check the network, log in again (aws sso login), or set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY",
}


@contextmanager
def tell_if_slow(what: str) -> Iterator[None]:
    """Says on stderr what is waited for, if the block takes longer than SILENT_SECONDS.

    A process says so once in a minute, whatever its threads wait for.
    """

    def tell() -> None:
        global _last_told
        if time.monotonic() - _last_told > _AGAIN_SECONDS:
            _last_told = time.monotonic()
            say(f"waiting for {what}", file=sys.stderr)

    with call_if_slow(SILENT_SECONDS, tell):
        yield


def current_credentials(kind: str, url: str) -> Any:
    """Credentials for a store that are good for minutes, loaded or renewed if need be.

    Args:
      kind: of the store: gs or s3.
      url: that is to be read, for errors.

    Returns:
      For gs:// what google.auth loads, or None where there are none or FSSPEC_GS_TOKEN=anon asks
      for none; for s3:// what botocore finds, or None.

    Raises:
      DataError: there are credentials, and they cannot be loaded or renewed.
    """
    if kind == "gs" and os.environ.get("FSSPEC_GS_TOKEN") == "anon":
        return None
    return _keeper(kind, _origin(kind), os.getpid()).get(url)


@functools.lru_cache(maxsize=None)
def _keeper(kind: str, origin: str, process: int) -> "_Keeper":
    """One for each origin; not the one of a parent process, whose lock may be held for ever."""
    return _Keeper(kind, origin)


class _Keeper:
    """Credentials of one origin, and when they must be looked at again."""

    def __init__(self, kind: str, origin: str):
        self._kind, self._origin, self._lock = kind, origin, threading.Lock()
        self._renew = _renew_google if kind == "gs" else _renew_amazon
        self._credentials: Any = None
        self._good_until, self._failed_at = 0.0, 0.0
        self._failure: Optional[Exception] = None

    def get(self, url: str) -> Any:
        """The credentials; raises what `current_credentials` does."""
        began = time.monotonic()
        with self._lock:
            if self._failure and self._failed_at >= began:  # another thread waited for all of them
                raise self._give_up(url, self._failure)
            if time.monotonic() >= self._good_until:
                try:
                    self._credentials, seconds = self._renewed()
                except Exception as error:
                    self._failure, self._failed_at = error, time.monotonic()
                    raise self._give_up(url, error) from error
                self._good_until = time.monotonic() + seconds
            return self._credentials

    def _renewed(self) -> Tuple[Any, float]:
        """Credentials, in time: no limit of the libraries holds."""
        with tell_if_slow(f"{self._origin} to be renewed: up to {RENEWAL_SECONDS:.0f} s"):
            return in_time(RENEWAL_SECONDS, lambda: self._renew(self._credentials))

    def _give_up(self, url: str, error: Exception) -> DataError:
        said = one_line(error)
        return DataError(
            f"{url} cannot be read: {self._origin} cannot be loaded or renewed: {said:.300}; "
            f"{_REMEDY[self._kind]}"
        )


def _origin(kind: str) -> str:
    """Where credentials come from, for those who must mend them."""
    if kind == "s3":
        profile = os.environ.get("AWS_PROFILE", "default")
        token = os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE")
        return f"credentials of AWS ({f'token file {token}' if token else f'profile {profile}'})"
    given = os.environ.get(_GIVEN)
    if given:
        return f"credentials of {_GIVEN}={given}"
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    return f"credentials of {path if os.path.isfile(path) else 'the metadata service, if any,'}"


def _renew_google(credentials: Any) -> Tuple[Any, float]:
    """Google's default credentials, and seconds that they are good for; None where none are.

    Raises:
      Exception: of google.auth, whose kinds are many.
    """
    # Who reads s3:// does not have it.
    from google.auth import default, exceptions
    from google.auth.transport.requests import Request

    logging.getLogger("google.auth").setLevel(logging.ERROR)
    deadline = time.monotonic() + RENEWAL_SECONDS - _PAUSE_SECONDS
    request: Any = functools.partial(Request(), timeout=_TRY_SECONDS)
    if credentials is None:
        try:
            credentials, _ = default(scopes=[_SCOPE], request=request)
        except exceptions.DefaultCredentialsError as error:
            if "were not found. To set up" in str(error) and not os.environ.get(_GIVEN):
                return None, float("inf")
            raise
    while not _seconds_left(credentials) > _FRESH_SECONDS:
        try:
            credentials.refresh(request)
            break
        except exceptions.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
    return credentials, max(0.0, _seconds_left(credentials) - _FRESH_SECONDS)


def _seconds_left(credentials: Any) -> float:
    if not credentials.token:
        return 0.0
    if credentials.expiry is None:
        return float("inf")
    return credentials.expiry.replace(tzinfo=timezone.utc).timestamp() - time.time()


def _renew_amazon(credentials: Any) -> Tuple[Any, float]:
    """AWS's credentials, or None, and after how long to ask again; they renew themselves.

    Raises:
      Exception: of botocore, whose kinds are many.
    """
    if credentials is None:
        # Who reads gs:// does not have it.
        from botocore.session import Session

        logging.getLogger("botocore.credentials").setLevel(logging.CRITICAL)  # tracebacks
        credentials = Session().get_credentials()
    if credentials:
        credentials.get_frozen_credentials()
    return credentials, 60.0
