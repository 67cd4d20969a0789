"""Room on this machine for the files of shard sets that lie in stores.

    CACHE/.lock                     held while room is made
    CACHE/<sha256 of a manifest>/   a set, as far as it was fetched; one built anew is another
        train-00000-of-00004.tfrecord ...
        *.part                      downloads that are under way, or were cut and are gone on with
        .locks/                     one for each file that was fetched
        .use                        locked (shared) by every process that uses the set; how many
                                    bytes they need

Room is made before anything is fetched, for all that a reader will need: the least recently used
files of sets that nobody uses go. Locks are the kernel's, so that a process that was killed holds
none. Standard library and `filelock`, imported where it is used; Python 3.8 syntax.
"""

import os
import shutil
import time
from dataclasses import dataclass, field
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from typing import ContextManager, Iterator, List, NamedTuple, Optional

from schemas.errors import DataError, UsageError

CACHE_GIGABYTES = 100.0  # unless the user says otherwise
PART = ".part"
_USE, _LOCKS = ".use", ".locks"
_STALE_SECONDS = 86_400.0  # a cut download is gone on with for so long
_LOCK_SECONDS = 60.0  # making room is deleting files


def default_directory() -> str:
    """$XDG_CACHE_HOME/textmill, or ~/.cache/textmill."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "textmill")


class _Cached(NamedTuple):
    used: float
    bytes: int
    path: str

    @property
    def is_stale(self) -> bool:
        """Whether it is a cut download that nobody goes on with."""
        return self.path.endswith(PART) and time.time() - self.used > _STALE_SECONDS


@dataclass(frozen=True)
class Cache:
    """Where files of stores are kept on this machine, and how many bytes of them.

    Attributes:
      directory: shared by all processes that name it.
      gigabytes: (1e9 bytes) that all files there may take together.
    """

    directory: str = field(default_factory=default_directory)
    gigabytes: float = CACHE_GIGABYTES

    def __post_init__(self) -> None:
        """Refuses a size that is not above zero."""
        if not self.gigabytes > 0:
            raise UsageError(f"--cache_gigabytes={self.gigabytes}: must be above 0")

    def folder(self, key: str) -> str:
        """Where the files of a set lie.

        Raises:
          UsageError: the cache cannot be written to.
        """
        path = os.path.join(os.path.abspath(self.directory), key)
        try:
            os.makedirs(os.path.join(path, _LOCKS), exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--cache_dir={self.directory} cannot be written to: {error}"
            ) from error
        return path

    def reserve(self, key: str, due: int, missing: int, *, name: str) -> int:
        """Makes room for a set, and keeps others from taking it away.

        Args:
          key: of the set.
          due: bytes of all its files that will be used.
          missing: bytes of those that are not here yet.
          name: of the set, for errors.

        Returns:
          An open file: room and files are the caller's until he closes it, or ends.

        Raises:
          DataError: there is not so much room; says what takes it.
          UsageError: the cache cannot be written to.
        """
        folder = self.folder(key)
        try:
            with _lock(os.path.join(self.directory, ".lock"), _LOCK_SECONDS):
                self.folder(key)  # another process may have cleared it away
                self._make_room(folder, due, missing, name)
                return _use(folder, due)
        except TimeoutError as error:
            raise UsageError(
                f"--cache_dir={self.directory}: another process has had its lock for "
                f"{_LOCK_SECONDS:.0f} s. Wait for it, or give another directory"
            ) from error
        except OSError as error:
            raise UsageError(
                f"--cache_dir={self.directory} cannot be written to: {error}"
            ) from error

    def file_lock(self, folder: str, path: str) -> ContextManager:
        """Held by who fetches a file: a context manager."""
        return _lock(os.path.join(folder, _LOCKS, path.replace("/", "+")))

    def _make_room(self, folder: str, due: int, missing: int, name: str) -> None:
        bound = self.gigabytes * 1e9
        taken = 0
        loose: List[_Cached] = []
        for entry in os.scandir(os.path.dirname(folder)):
            if not entry.is_dir() or entry.path == folder or entry.name.startswith("."):
                continue
            needed, files = _needed_by_others(entry.path), list(_files(entry.path))
            if needed is not None:
                taken += max(needed, sum(file.bytes for file in files))
                continue
            stale = [file for file in files if file.is_stale]
            for file in stale:
                os.unlink(file.path)
            loose += [file for file in files if file not in stale]
            if len(stale) == len(files):
                shutil.rmtree(entry.path, ignore_errors=True)
        own = max(due, sum(file.bytes for file in _files(folder)))
        if own + taken > bound:
            others = f", and sets that others are using take {_gb(taken)}" if taken else ""
            raise DataError(
                f"{name} needs {_gb(due)} of the cache in {self.directory}, which may hold "
                f"{_gb(bound)}{others}: rows are read in an order that goes through all shards. "
                "Give more with --cache_gigabytes, or build a set of fewer rows"
            )
        surplus = own + taken + sum(file.bytes for file in loose) - bound
        free = shutil.disk_usage(folder).free
        for file in sorted(loose):
            if surplus <= 0 and free >= missing:
                break
            os.unlink(file.path)
            surplus -= file.bytes
            free += file.bytes
        if free < missing:
            raise DataError(
                f"{name}: {_gb(missing)} are to be fetched, and the disk of {self.directory} has "
                f"{_gb(free)} free. Give a --cache_dir on a larger disk"
            )


def _lock(path: str, seconds: float = -1) -> ContextManager:
    """A lock among all processes; without `seconds` it is waited for for ever."""
    # Who reads a directory does without.
    from filelock import FileLock

    return FileLock(path, timeout=seconds)


def _use(folder: str, due: int) -> int:
    """Marks a set as used by this process; while others use it too, their need counts as well."""
    before = _needed_by_others(folder)
    mark = os.open(os.path.join(folder, _USE), os.O_RDWR | os.O_CREAT, 0o666)
    flock(mark, LOCK_SH)
    os.pwrite(mark, b"%020d" % max(due, before or 0), 0)
    return mark


def _needed_by_others(folder: str) -> Optional[int]:
    """Bytes that the users of a set need; None if nobody uses it."""
    try:
        mark = os.open(os.path.join(folder, _USE), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        flock(mark, LOCK_EX | LOCK_NB)
        return None
    except BlockingIOError:
        return int(os.pread(mark, 20, 0) or 0)
    finally:
        os.close(mark)


def _files(folder: str) -> Iterator[_Cached]:
    """What takes room; names that begin with a dot do not."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            try:
                found = os.stat(path)
            except FileNotFoundError:  # a download that has just been finished
                continue
            if not name.startswith("."):
                yield _Cached(found.st_mtime, found.st_size, path)


def _gb(count: float) -> str:
    return f"{count / 1e9:,.3g} GB" if count >= 1e8 else f"{count / 1e6:,.3g} MB"
