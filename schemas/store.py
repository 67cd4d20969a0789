"""Files of stores, such as gs://bucket/set and s3://bucket/set: whole, in parts, listed, changed.

Access is fsspec's: gcsfs for gs://, s3fs for s3://, and any other protocol whose package is
installed. Credentials and endpoints are found as those packages find them, but credentials that are
there and cannot be used are an error: see schemas/store_credentials.py. Only what can be tried
again is tried again, and nothing for ever: a store that does not answer is an error in words.

Python 3.8 syntax.
"""

import re
from glob import has_magic
from types import ModuleType
from typing import Any, Callable, Dict, Optional

from schemas.errors import DataError, UsageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}  # of setup.py
# Of "gs" and "s3": gives options to their file systems, before what fsspec is told by the user.
option_finders: Dict[str, Callable[[], Dict[str, Any]]] = {}


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
        if calls_for(url).is_beyond_end(error.__cause__):
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
    return calls_for(url).package_of(url)._strip_protocol(url)


def call(url: str, method: str, *arguments: Any, **options: Any) -> Any:
    """Calls a method of the file system of a URL: see `schemas.store_calls.call`."""
    return calls_for(url).call(url, method, *arguments, **options)


def patiently(url: str, operation: Callable[[], None]) -> None:
    """Writes a file by several calls, all of them again where that may help.

    Args:
      url: of the file.
      operation: raises OSError where what it wrote is not right.

    Raises:
      DataError: it went on failing.
    """
    calls_for(url).patiently(url, operation, "written")


def calls_for(url: str) -> ModuleType:
    """The module that calls stores.

    Raises:
      UsageError: what it imports is not installed.
    """
    try:
        # Who reads a directory needs neither fsspec nor tenacity.
        from schemas import store_calls
    except ImportError as error:
        raise missing_package(url, error) from error
    return store_calls


def missing_package(url: str, error: ImportError) -> UsageError:
    """What is said where a package is missing."""
    kind = kind_of(url)
    remedy = f"pip install '/path/to/textmill[{kind}]'" if kind else f"install it ({error})"
    return UsageError(
        f"{url}: the package that reads {protocol_of(url)}:// is not installed: {remedy}"
    )
