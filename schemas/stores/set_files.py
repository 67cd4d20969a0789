"""The files of a shard set, in a directory, or in a store with a cache before it.

    files = open_files("gs://bucket/set", Cache("/disk/cache", gigabytes=50))
    files.fetch("schema.json")          # its path on this machine
    files.prefetch([...])               # in the background, in this order
    with files.borrow("train-00000-of-00004.tfrecord") as path: ...     # kept nowhere

Textmill compares what comes from a store with the manifest's size and sha256 before it gets its
name in the cache, and once more when another run finds it there. A download that was cut goes on,
also in another process; one that came wrong is repeated, and three times wrong is an error.
Processes that share a cache fetch a file once.

    CACHE/.lock                     held while room is made
    CACHE/<sha256 of a manifest>/   a set, as far as it was fetched; one built anew is another
        train-00000-of-00004.tfrecord ...
        *.part                      downloads that are under way, or were cut
        .locks/                     one for each file that was fetched

Locks are the kernel's, so that a process that was killed holds none. Python 3.8 syntax.
"""

import hashlib
import os
import shutil
import stat
import tempfile
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import (
    Any,
    ContextManager,
    Deque,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Union,
)

from schemas.errors import DataError, UsageError, describe_refusal
from schemas.manifest import MANIFEST, Manifest, ManifestFile, file_sha256, parse_manifest
from schemas.stores import store
from schemas.stores.store import is_url
from schemas.typed_json import MAX_BYTES, read_bounded

CACHE_GIGABYTES = 100.0  # unless the user says otherwise
PIECE_BYTES = 8 << 20  # asked for at once: what a cut or a pause may lose
THREADS = 4  # that fetch in the background
TRIES = 3  # of a file whose bytes are wrong
_PART, _LOCKS = ".part", ".locks"
_LOCK_SECONDS = 60.0  # making room is deleting files


def default_directory() -> str:
    """$XDG_CACHE_HOME/textmill, or ~/.cache/textmill."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "textmill")


class _Cached(NamedTuple):
    used: float
    bytes: int
    path: str


@dataclass(frozen=True)
class Cache:
    """A directory for files of stores, and how many bytes of them it may hold.

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
        """The folder of a set, which is made.

        Raises:
          UsageError: the cache cannot be written to.
        """
        path = os.path.join(os.path.abspath(self.directory), key)
        with self._refusals():
            os.makedirs(os.path.join(path, _LOCKS), exist_ok=True)
        return path

    def make_room(self, key: str, needed: int, missing: int, *, name: str) -> None:
        """Removes the least recently used files of other sets until a set has room.

        Args:
          key: of the set.
          needed: bytes of all its files that will be used.
          missing: bytes of those that are not here yet.
          name: of the set, for errors.

        Raises:
          DataError: the cache or its disk is too small for the set.
          UsageError: the cache cannot be written to.
        """
        folder, bound = self.folder(key), self.gigabytes * 1e9
        with self._refusals(), _lock(os.path.join(self.directory, ".lock"), _LOCK_SECONDS):
            files = list(_cached(os.path.dirname(folder)))
            others = [file for file in files if not file.path.startswith(folder + os.sep)]
            taken = sum(file.bytes for file in others)
            own = max(needed, sum(file.bytes for file in files) - taken)
            if own > bound:
                raise DataError(
                    f"{name} needs {_gb(needed)} of the cache in {self.directory}, which may hold "
                    f"{_gb(bound)}: rows are read in an order that goes through all shards. Give "
                    "more with --cache_gigabytes, or build a set of fewer rows"
                )
            surplus, free = own + taken - bound, shutil.disk_usage(folder).free
            for file in sorted(others):
                if surplus <= 0 and free >= missing:
                    break
                with suppress(FileNotFoundError):  # a download that has just been finished
                    os.unlink(file.path)
                surplus, free = surplus - file.bytes, free + file.bytes
            if free < missing:
                raise DataError(
                    f"{name}: {_gb(missing)} are to be fetched, and the disk of {self.directory} "
                    f"has {_gb(free)} free. Give a --cache_dir on a larger disk"
                )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UsageError(
                f"--cache_dir={self.directory}: another process has had its lock for "
                f"{_LOCK_SECONDS:.0f} s. Wait for it, or give another directory"
            ) from error
        except OSError as error:
            raise UsageError(
                f"--cache_dir={self.directory} cannot be written to: {error}"
            ) from error

    def file_lock(self, key: str, path: str) -> ContextManager:
        """A context manager, held by the process that fetches a file."""
        return _lock(os.path.join(self.folder(key), _LOCKS, path.replace("/", "+")))


def _lock(path: str, seconds: float = -1) -> ContextManager:
    """A lock among all processes; without `seconds` it is waited for for ever."""
    # Reading a directory needs none of it.
    from filelock import FileLock

    return FileLock(path, timeout=seconds)


def _cached(directory: str) -> Iterator[_Cached]:
    """The files of a cache; names that begin with a dot take no room."""
    for parent, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            with suppress(FileNotFoundError):  # a download that has just been finished
                found = os.stat(path)
                if not name.startswith("."):
                    yield _Cached(found.st_mtime, found.st_size, path)


def _gb(count: float) -> str:
    return f"{count / 1e9:,.3g} GB" if count >= 1e8 else f"{count / 1e6:,.3g} MB"


class WrongFile(DataError):
    """A file that is not what the manifest says.

    Attributes:
      found: its size and sha256.
    """

    def __init__(self, message: str, size: int, sha256: str):
        super().__init__(message)
        self.found = (size, sha256)


class MissingFile(DataError):
    """A file that the manifest lists is not in the store."""


class LocalFiles:
    """A set in a directory: there is nothing to fetch.

    The directory may be reached by a link, and links in it may lead to places in it. Others are
    followed only where the user wants them to be (the cache of huggingface_hub is made of them):
    else a set from an untrusted source could make a reader open any file of this machine.
    """

    def __init__(self, directory: str, manifest: Manifest, *, follow_links: bool = False):
        self.directory, self.manifest = directory, manifest
        self._follow_links = follow_links

    def check_sizes(self) -> None:
        """Compares the size of every file with the manifest.

        Raises:
          DataError: a file is missing, of another size, or a link out of the directory; names it.
        """
        for file in self.manifest.files:
            path, state = self.fetch(file.path), "is missing"
            try:
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode):
                    if found.st_size == file.bytes:
                        continue
                    state = f"has {found.st_size:,} bytes"
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise describe_refusal(path, error) from error
            raise DataError(
                f"{path} {state}, where the manifest says {file.bytes:,} bytes: copy the set "
                "again or build it anew"
            )

    def fetch(self, path: str) -> str:
        """The path of a file of the set; it may be missing.

        Raises:
          DataError: it is a link out of the directory.
        """
        local = os.path.join(self.directory, path)
        if "/" in path or os.path.islink(local):
            check_link(self.directory, path, follow=self._follow_links)
        return local

    def reserve(self, paths: Sequence[str]) -> None:
        """Files on a disk need no room in a cache."""

    def prefetch(self, paths: Sequence[str]) -> None:
        """The files are here already."""

    def all_here(self, paths: Sequence[str]) -> bool:
        """Whether the files are on this machine: always."""
        return True

    @contextmanager
    def borrow(self, path: str) -> Iterator[str]:
        """The path of a file of the set."""
        yield self.fetch(path)

    def names(self) -> List[str]:
        """All files of the directory, those of the manifest and others, but hidden ones."""
        found = (
            os.path.relpath(os.path.join(folder, name), self.directory)
            for folder, _, names in os.walk(self.directory)  # a link to itself is a name too
            for name in names
        )
        paths = (path.replace(os.sep, "/") for path in found)
        return sorted(path for path in paths if not f"/{path}".count("/."))


class CachedFiles:
    """A set in a store. May be sent to other processes, and forked.

    Attributes:
      directory: the URL.
      manifest: as it is in the store now.
      folder: of the set in the cache.
    """

    def __init__(self, url: str, cache: Cache, *, verify: bool = True):
        """Fetches the manifest.

        Args:
          url: of the set.
          cache: where to keep its files.
          verify: whether to compare the sha256 of files that another run left in the cache; what
            is fetched is compared in any case.

        Raises:
          DataError: there is no finished set, or the store does not answer.
          UsageError: no package for this kind of store, or the cache cannot be written to.
        """
        self.directory, self._cache, self._verify = url.rstrip("/"), cache, verify
        place = f"{self.directory}/{MANIFEST}"
        try:
            content = store.read(place, 0, MAX_BYTES + 1)
        except FileNotFoundError:
            raise no_set(self.directory) from None
        if len(content) > MAX_BYTES:
            raise DataError(f"{place} has more than {MAX_BYTES:,} bytes: it is of no shard set")
        self.manifest = parse_manifest(content, place)
        self._listed = {file.path: file for file in self.manifest.files}
        self._key = hashlib.sha256(content).hexdigest()
        self.folder = cache.folder(self._key)
        self._good: Set[str] = set()  # paths that this process knows to be as published
        self._reserved: Set[str] = set()  # paths that room was made for
        self._waiting: Deque[str] = deque()  # for a thread
        self._taken: Set[str] = set()  # by a thread, once
        self._threads: List[threading.Thread] = []

    def __getstate__(self) -> Dict[str, Any]:
        """All but what is under way in this process; a forked one finds its threads dead."""
        idle = {"_waiting": deque(), "_taken": set(), "_threads": []}
        return {**self.__dict__, "_good": self._good.copy(), **idle}

    def reserve(self, paths: Sequence[str]) -> None:
        """Makes room for files before they are fetched.

        Raises:
          DataError: they do not fit into the cache, or not onto its disk.
        """
        if self._reserved.issuperset(paths):
            return
        files = [self._listed[path] for path in self._reserved.union(paths)]
        missing = sum(file.bytes for file in files if not self._is_whole(file))
        needed = sum(file.bytes for file in files)
        self._cache.make_room(self._key, needed, missing, name=self.directory)
        self._reserved.update(paths)

    def fetch(self, path: str) -> str:
        """The path on this machine of a file of the set, once it is there.

        Raises:
          DataError: the manifest does not list it, the store does not give it, or its bytes are
            wrong; names it.
        """
        file, local = self._find(path), os.path.join(self.folder, path)
        if path in self._good and self._is_whole(file):
            return local
        self.reserve([path])
        with self._cache.file_lock(self._key, path):
            if not self._is_as_published(file, local):
                self._download(file, local)
        self._good.add(path)
        return local

    def prefetch(self, paths: Sequence[str]) -> None:
        """Fetches files in the background, in this order, before those asked for earlier.

        An error there is passed over: `fetch` of the same file raises it again.
        """
        wanted = [path for path in paths if path not in self._good and path not in self._taken]
        self._waiting = deque(dict.fromkeys([*wanted, *self._waiting.copy()]))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(min(THREADS, len(wanted)) - len(self._threads)):
            thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
            self._threads.append(thread)
            thread.start()

    def all_here(self, paths: Sequence[str]) -> bool:
        """Whether this process has fetched them all."""
        return self._good.issuperset(paths)

    @contextmanager
    def borrow(self, path: str) -> Iterator[str]:
        """A file for as long as the block lasts: it takes no room in the cache.

        Raises:
          DataError: as `fetch`.
        """
        file = self._find(path)
        if path in self._good and self._is_whole(file):
            yield os.path.join(self.folder, path)
            return
        with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
            local = os.path.join(folder, os.path.basename(path))
            self._download(file, local)
            yield local

    def names(self) -> List[str]:
        """All files that the store lists for the set, those of the manifest and others."""
        parts = (name.split("/") for name in store.sizes(self.directory))
        return ["/".join(part) for part in parts if not any(p.startswith(".") for p in part)]

    def _find(self, path: str) -> ManifestFile:
        if path not in self._listed:
            raise DataError(f"{self.directory}/{path} is missing, and not listed in {MANIFEST}")
        return self._listed[path]

    def _work(self) -> None:
        with suppress(Exception):  # no path waits any more, or `fetch` will raise it again
            while True:
                path = self._waiting.popleft()
                self._taken.add(path)
                self.fetch(path)
        self._waiting.clear()

    def _is_whole(self, file: ManifestFile) -> bool:
        """Whether a file of the right size is there; only whole ones have its name."""
        try:
            return os.path.getsize(os.path.join(self.folder, file.path)) == file.bytes
        except OSError:
            return False

    def _is_as_published(self, file: ManifestFile, local: str) -> bool:
        """Whether what is in the cache can be used; a file that was changed there is removed."""
        if not os.path.exists(local):
            return False
        if self._is_whole(file) and (not self._verify or file_sha256(local) == file.sha256):
            with suppress(OSError):  # the file may be another user's
                os.utime(local)  # it is the most recently used now
            return True
        os.unlink(local)
        return False

    def _download(self, file: ManifestFile, local: str) -> None:
        """Fetches a file to a temporary name, checks it, and gives it its own."""
        may_pass = (WrongFile, FileNotFoundError)
        try:
            store.retry(
                lambda: self._fill(file, local), lambda error: isinstance(error, may_pass), TRIES
            )
        except OSError as error:
            raise DataError(
                f"{self.directory}/{file.path} cannot be kept on this machine: {error}. Free some "
                "space, or give another --cache_dir"
            ) from error

    def _fill(self, file: ManifestFile, local: str) -> None:
        """Goes on with a download where it was cut.

        Raises:
          WrongFile: it is not what the manifest says; nothing is left of it.
          FileNotFoundError: another process made room in the meantime.
        """
        url, digest, part = f"{self.directory}/{file.path}", hashlib.sha256(), local + _PART
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(part, "ab+") as out:
            out.seek(0)
            for chunk in iter(lambda: out.read(1 << 20), b""):
                digest.update(chunk)
            size = out.tell()
            while size < file.bytes:
                stop = min(size + PIECE_BYTES, file.bytes)
                # One byte more at the end shows a file that is longer than it should be.
                try:
                    piece = store.read(url, size, stop + (stop == file.bytes))
                except FileNotFoundError as error:
                    os.unlink(part)
                    raise MissingFile(
                        f"{url} is missing, although the manifest lists it: copy the set again or "
                        "build it anew"
                    ) from error
                out.write(piece)
                digest.update(piece)
                size += len(piece)
                if size != stop:
                    break
        sha256 = digest.hexdigest()
        if (size, sha256) == (file.bytes, file.sha256):
            os.replace(part, local)
            return
        os.unlink(part)
        if size != file.bytes:
            what = f"has {size:,} bytes, where the manifest says {file.bytes:,}"
        else:
            what = f"has sha256 {sha256}, where the manifest says {file.sha256}"
        raise WrongFile(
            f"{url} {what} ({TRIES} downloads gave no right one): copy the "
            "set again or build it anew; if that was done while it was read, start again",
            size,
            sha256,
        )


SetFiles = Union[LocalFiles, CachedFiles]


def check_link(directory: str, path: str, *, follow: bool) -> None:
    """Refuses a file of a set that is a link out of its directory.

    Raises:
      DataError: it is, and `follow` is not set; names both ends and the flag.
    """
    link = os.path.join(directory, path)
    if follow:
        return
    inside, place = os.path.join(os.path.realpath(directory), ""), os.path.realpath(link)
    if not os.path.join(place, "").startswith(inside):
        raise DataError(
            f"{link} is a link out of the set's directory, to {place}: links are not followed "
            "there, since a set may be a stranger's. If that is where its files belong, add "
            "--follow_links (in Python follow_links=True), or copy the set with what its links "
            "lead to (cp -rL)"
        )


def no_set(directory: str) -> DataError:
    """What is said of a place that holds no finished set."""
    return DataError(
        f"{directory} is not a finished shard set: it has no {MANIFEST}. Give the directory "
        "that build_shards wrote; if its run was interrupted, run the same command again"
    )


def open_files(
    directory: str,
    cache: Optional[Cache] = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> SetFiles:
    """The files of the set in a directory or at a URL.

    Args:
      directory: with MANIFEST.json.
      cache: for what comes from a store; by default that of this user.
      verify: see `CachedFiles`.
      follow_links: see `LocalFiles`.

    Raises:
      DataError: there is no finished set, it may not be read, or the store does not answer.
      UsageError: no package for this kind of store, or the cache cannot be written to.
    """
    if is_url(directory):
        return CachedFiles(directory, cache or Cache(), verify=verify)
    path = os.path.join(directory, MANIFEST)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise no_set(directory)
        check_link(directory, MANIFEST, follow=follow_links)
        manifest = parse_manifest(read_bounded(path), path)
        return LocalFiles(directory, manifest, follow_links=follow_links)
    except (FileNotFoundError, NotADirectoryError):
        raise no_set(directory) from None
    except OSError as error:
        raise describe_refusal(path, error) from error
