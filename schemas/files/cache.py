"""The local cache of files from object stores, with a maximum size; see `schemas.files.set_files`.

Python 3.8 syntax.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ContextManager, Iterator, NamedTuple

from textmill.schemas.errors import DataError, UsageError, flag

CACHE_GIGABYTES = 100.0  # default of --cache_gigabytes
PIECES = "pieces"  # the folder of a dataset for pieces of its shards
_LOCKS = ".locks"
_LOCK_SECONDS = 60.0  # enough for another process to delete files


def default_directory() -> str:
    """$XDG_CACHE_HOME/textmill, or ~/.cache/textmill."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "textmill")


class _Cached(NamedTuple):
    used: float
    bytes: int
    path: str


def cache_key(manifest: bytes) -> str:
    """The name of a dataset's directory in a cache, from the content of its manifest."""
    return hashlib.sha256(manifest).hexdigest()


@dataclass(frozen=True)
class Cache:
    """A directory for files from object stores, with a maximum size.

    Attributes:
      directory: the directory, which several processes may share.
      gigabytes: maximum size of all files together, in units of 1e9 bytes.
    """

    directory: str = field(default_factory=default_directory)
    gigabytes: float = CACHE_GIGABYTES

    def __post_init__(self) -> None:
        """Rejects a size that is not above 0."""
        if not self.gigabytes > 0:
            raise UsageError(f"{flag('cache_gigabytes', self.gigabytes)}: must be above 0")

    @property
    def bound(self) -> float:
        """The most bytes that it may hold."""
        return self.gigabytes * 1e9

    def folder(self, key: str) -> str:
        """The directory of a dataset, which is created.

        Raises:
          UsageError: the cache cannot be written.
        """
        path = os.path.join(os.path.abspath(self.directory), key)
        with self._refusals():
            os.makedirs(os.path.join(path, _LOCKS), exist_ok=True)
        return path

    def make_room(self, key: str, needed: int, missing: int, *, name: str) -> None:
        """Removes the least recently used pieces, and files of other datasets, until there is room.

        Args:
          key: the key of the dataset.
          needed: bytes of all its files that will be used.
          missing: bytes of those that are not downloaded yet.
          name: the name of the dataset in errors.

        Raises:
          DataError: the cache or its disk is too small for the dataset.
          UsageError: the cache cannot be written.
        """
        folder, bound = self.folder(key), self.bound
        with self._refusals(), _lock(os.path.join(self.directory, ".lock"), _LOCK_SECONDS):
            files = list(_cached(os.path.dirname(folder)))
            pieces = os.path.join(folder, PIECES, "")
            others = [
                file
                for file in files
                if file.path.startswith(pieces) or not file.path.startswith(folder + os.sep)
            ]
            taken = sum(file.bytes for file in others)
            own = max(needed, sum(file.bytes for file in files) - taken)
            if own > bound:
                raise DataError(
                    f"{name} needs {_gb(needed)} of the cache in {self.directory}, whose limit is "
                    f"{_gb(bound)}: raise {flag('cache_gigabytes')}, or read it in windows, which "
                    f"need little of it ({flag('order', 'window')})"
                )
            surplus, free = own + taken - bound, shutil.disk_usage(folder).free
            for file in sorted(others):
                if surplus <= 0 and free >= missing:
                    break
                with suppress(FileNotFoundError):  # a download that was just completed
                    os.unlink(file.path)
                surplus, free = surplus - file.bytes, free + file.bytes
            if free < missing:
                raise DataError(
                    f"{name}: {_gb(missing)} must be downloaded, but the disk of {self.directory} "
                    f"has {_gb(free)} free; use a {flag('cache_dir')} on a larger disk"
                )

    def check_room(self, needed: int, *, name: str) -> None:
        """Raises DataError if it can never hold this many bytes of a dataset's pieces."""
        if needed > self.bound:
            raise DataError(
                f"{name} needs {_gb(needed)} of the cache in {self.directory}, whose limit is "
                f"{_gb(self.bound)}: raise {flag('cache_gigabytes')}"
            )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UsageError(
                f"{flag('cache_dir', self.directory)}: another process has held its lock for "
                f"{_LOCK_SECONDS:.0f} s; wait for it, or use another directory"
            ) from error
        except OSError as error:
            raise UsageError(
                f"{flag('cache_dir', self.directory)} cannot be written: {error}"
            ) from error

    def file_lock(self, key: str, path: str) -> ContextManager:
        """The lock of a file, which the process that downloads it holds."""
        return _lock(os.path.join(self.folder(key), _LOCKS, path.replace("/", "+")))


def _lock(path: str, seconds: float = -1) -> ContextManager:
    """A lock among all processes; without `seconds`, acquiring it may wait forever."""
    # Imported here: reading a directory does not need the package.
    from filelock import FileLock

    return FileLock(path, timeout=seconds)


def _cached(directory: str) -> Iterator[_Cached]:
    """The files of a cache, except those whose names begin with a dot."""
    for parent, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            with suppress(FileNotFoundError):  # a download that was just completed
                status = os.stat(path)
                if not name.startswith("."):
                    yield _Cached(status.st_mtime, status.st_size, path)


def mark_used(path: str) -> None:
    """Marks a file of a cache as the most recently used."""
    with suppress(OSError):  # it may belong to another user
        os.utime(path)


def _gb(count: float) -> str:
    return f"{count / 1e9:,.3g} GB" if count >= 1e8 else f"{count / 1e6:,.3g} MB"
