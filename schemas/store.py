"""Folders of stores, such as gs://bucket/set and s3://bucket/set: files whole or in parts.

Access is fsspec's: gcsfs for gs://, s3fs for s3://, and any other protocol whose package is
installed. Credentials and endpoints are found as those packages find them, but credentials that are
there and cannot be used are an error: see schemas/store_credentials.py. Only what can be tried
again is tried again, and nothing for ever: a store that does not answer is an error in words.

`fsspec` and `tenacity` are imported where they are used; Python 3.8 syntax.
"""

import errno
import logging
import re
from typing import Any, Dict, List, Optional

from schemas.errors import DataError, UsageError
from schemas.store_credentials import current_credentials, told_if_slow

_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)://")
_EXTRAS = {"gs": "gs", "gcs": "gs", "s3": "s3", "s3a": "s3"}  # of setup.py
# For one answer, with what the package itself tries again; a part of a file at 70 kB/s comes.
ANSWER_SECONDS = 120.0
# What fails for so long is given up.
PATIENCE_SECONDS = 60.0


def is_url(path: str) -> bool:
    """Whether a path is of a store: gs://bucket/set, but neither /data/set nor gs:set."""
    return bool(_URL.match(path))


class StoreFolder:
    """A folder of a store. May be sent to other processes, and forked.

    Attributes:
      url: of the folder, without a slash at its end.
    """

    def __init__(self, url: str):
        """Imports the package of the protocol; asks the store nothing.

        Raises:
          UsageError: the package is not installed, or there is none for this protocol.
        """
        self.url = url.rstrip("/")
        found = _URL.match(self.url + "/")
        if found is None:
            raise UsageError(f"{url!r} is no URL: such as gs://bucket/folder")
        self._protocol = found["protocol"].lower()
        self._path = self._package()._strip_protocol(self.url)

    def read(self, name: str) -> bytes:
        """A file of the folder.

        Raises:
          FileNotFoundError: there is none.
          DataError: the store does not give it.
        """
        return self._ask(name, "_cat_file", self._at(name))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of a file, fewer where it ends before.

        Raises:
          FileNotFoundError, DataError: as `read`.
        """
        try:
            return self._ask(name, "_cat_file", self._at(name), start=start, end=stop)
        except DataError as error:
            if _is_beyond_end(error.__cause__):
                return b""
            raise

    def names(self) -> List[str]:
        """All files of the folder, at any depth, sorted; it is the store's listing that says so.

        Raises:
          DataError: the store does not give it.
        """
        skip = len(self._path) + 1
        found = self._ask("", "_find", self._path)
        return sorted(path[skip:] for path in found if path.startswith(self._path + "/"))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _package(self) -> Any:
        """The class of the file system, of a package that may not be installed."""
        try:
            import fsspec
            import tenacity  # noqa: F401  used by _ask

            return fsspec.get_filesystem_class(self._protocol)
        except ImportError as error:
            extra = _EXTRAS.get(self._protocol)
            remedy = f"pip install textmill[{extra}]" if extra else f"install it ({error})"
            raise UsageError(
                f"{self.url}: the package that reads {self._protocol}:// is not installed: {remedy}"
            ) from error
        except ValueError as error:
            raise UsageError(
                f"{self.url}: nothing reads {self._protocol}://. Give a directory, or a set on "
                "gs:// or s3://"
            ) from error

    def _files(self) -> Any:
        """The file system, which fsspec keeps; one made before a fork is not used after it."""
        from fsspec.config import apply_config

        package = self._package()
        # They write a traceback for what they raise anyway: here it is told once, in words.
        for name in ("gcsfs", "s3fs"):
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.CRITICAL)
        options = apply_config(package, {})  # what the user has set for fsspec
        if not {"token", "key", "anon"} & options.keys():
            credentials = current_credentials(self.url)
            if self._protocol in ("gs", "gcs"):  # it would go on without those that do not work
                options["token"] = credentials or "anon"
        try:
            return package(use_listings_cache=False, **options)
        except Exception as error:  # as of credentials that are missing or broken
            raise self._give_up("", error) from error

    def _ask(self, name: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the file system, again where that may help."""
        from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

        trying = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_delay(PATIENCE_SECONDS),
            wait=wait_random_exponential(0.2, max=8),
            reraise=True,
        )
        files = self._files()
        try:
            with told_if_slow(f"{self._place(name)}: no answer yet"):
                return trying(_call, files, method, arguments, options)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._give_up(name, error) from error

    def _place(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

    def _give_up(self, name: str, error: Exception) -> DataError:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, TimeoutError):
            said = f"no answer in {ANSWER_SECONDS:.0f} s"
        return DataError(
            f"{self._place(name)} cannot be read: {said:.500}. Check the address, the network "
            "and the credentials, or copy the set to a disk"
        )


def _call(files: Any, method: str, arguments: tuple, options: Dict[str, Any]) -> Any:
    if not files.async_impl:
        return getattr(files, method[1:])(*arguments, **options)
    from fsspec.asyn import sync

    coroutine = getattr(files, method)
    return sync(files.loop, coroutine, *arguments, timeout=ANSWER_SECONDS, **options)


def _is_beyond_end(error: Optional[BaseException]) -> bool:
    """Whether a range was asked for that begins where a file has ended: HTTP status 416."""
    return "416" in str(getattr(error, "code", "")) or "satisfiable" in str(error)


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    refused = (FileNotFoundError, PermissionError, ImportError, ValueError, TypeError)
    return not (
        isinstance(error, refused)
        or not isinstance(error, Exception)
        or _is_beyond_end(error)
        or str(getattr(error, "code", "")) in ("400", "401", "403")
        or getattr(error, "errno", None) == errno.EINVAL  # 400 of s3, as for a token that expired
        or "Credential" in type(error).__name__
        or str(error).startswith("Forbidden")
    )
