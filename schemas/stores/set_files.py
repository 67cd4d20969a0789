"""The files of a shard set, wherever it lies: in a directory, or in a store with a cache before it.

    files = open_files("gs://bucket/set", Cache("/disk/cache", gigabytes=50))
    files.fetch("schema.json")          # where it lies on this machine
    files.prefetch([...])               # in the background, in this order
    with files.borrow("train-00000-of-00004.tfrecord") as path: ...     # kept nowhere

What comes from a store is held against the manifest's size and sha256 before it gets its name in
the cache, and once more when another run finds it there. A download that was cut is gone on with,
also by another process; one that came wrong is made again, and three times wrong is an error.
Processes that share a cache fetch a file once. Python 3.8 syntax.
"""

import hashlib
import os
import random
import stat
import tempfile
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from typing import (
    ContextManager,
    Deque,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from schemas.errors import DataError, describe_refusal
from schemas.manifest import MANIFEST, Manifest, ManifestFile, file_sha256, parse_manifest
from schemas.stores import store
from schemas.stores.set_cache import PART, Cache
from schemas.stores.store import is_url
from schemas.typed_json import MAX_BYTES, read_bounded

PIECE_BYTES = 8 << 20  # asked for at once: what a cut or a pause may lose
THREADS = 4  # that fetch in the background
TRIES = 3  # of a file whose bytes are wrong


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
    else a stranger's set could make a reader open any file of this machine.
    """

    def __init__(self, directory: str, manifest: Manifest, *, follow_links: bool = False):
        self.directory, self.manifest = directory, manifest
        self._follow_links = follow_links

    def check_sizes(self) -> None:
        """Compares the size of every file with the manifest, at a system call a file.

        Raises:
          DataError: a file is missing, of another size, or a link out of the directory; names it.
        """
        listed = {file.path for file in self.manifest.files}
        folders = {path.rpartition("/")[0] for path in listed}
        found: Dict[str, int] = {}
        for folder in sorted(folders):
            found.update(self._sizes(folder, listed))
        for file in self.manifest.files:
            size = found.get(file.path)
            if size != file.bytes:
                state = "is missing" if size is None else f"has {size:,} bytes"
                path = os.path.join(self.directory, file.path)
                raise DataError(
                    f"{path} {state}, where the manifest says {file.bytes:,} bytes: copy the set "
                    "again or build it anew"
                )

    def _sizes(self, folder: str, listed: Set[str]) -> Iterator[Tuple[str, int]]:
        """Path and bytes of the set's files in one folder of it; nothing if there is none."""
        prefix = folder + "/" if folder else ""
        if folder:
            check_link(self.directory, folder, follow=self._follow_links)
        try:
            with os.scandir(os.path.join(self.directory, folder)) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if path not in listed:
                        continue
                    if entry.is_symlink():
                        check_link(self.directory, path, follow=self._follow_links)
                    if entry.is_file():
                        yield path, entry.stat().st_size
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(
                f"{os.path.join(self.directory, folder)} cannot be read: {error.strerror or error}"
            ) from error

    def fetch(self, path: str) -> str:
        """Where a file of the set lies; it may be missing.

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
        """Where a file of the set lies."""
        yield self.fetch(path)

    def names(self) -> List[str]:
        """All files of the directory, those of the manifest and others, but hidden ones."""
        found = []
        for folder, folders, names in os.walk(self.directory):
            folders[:] = [name for name in folders if not name.startswith(".")]
            visible = [os.path.join(folder, name) for name in names if not name.startswith(".")]
            found += [os.path.relpath(path, self.directory) for path in visible]
        return sorted(path.replace(os.sep, "/") for path in found)


class CachedFiles:
    """A set in a store. May be sent to other processes, and forked.

    Attributes:
      directory: the URL.
      manifest: as it is in the store now.
      listed: its files by path.
      folder: where the files are kept.
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
        self.listed = {file.path: file for file in self.manifest.files}
        self._key = hashlib.sha256(content).hexdigest()
        self.folder = cache.folder(self._key)
        self._good: Dict[str, bool] = {}  # paths that this process knows to be as published
        self._due: Dict[str, int] = {}  # paths that room was made for, and their bytes
        self._mark: Optional[weakref.finalize] = None  # closes the file that says they are in use
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process."""
        self._process, self._lock = os.getpid(), threading.Lock()
        self._waiting: Deque[str] = deque()
        self._taken: Set[str] = set()  # by a thread, once
        self._threads = 0

    def __getstate__(self) -> dict:
        """All but what belongs to one process: threads, and the mark that the set is used."""
        left_out = ("_lock", "_waiting", "_taken", "_threads", "_mark", "_process")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return dict(state, _good=dict(self._good))

    def __setstate__(self, state: dict) -> None:
        """As it was, with nothing under way; what is in use is marked anew with the next file."""
        self.__dict__.update(state)
        self._mark = None
        self._begin()

    def reserve(self, paths: Sequence[str]) -> None:
        """Makes room for files before they are fetched, and keeps it while this object lives.

        Raises:
          DataError: they do not fit into the cache, or not onto its disk.
        """
        with self._own_lock():
            if self._mark is not None and all(path in self._due for path in paths):
                return
            due = dict(self._due, **{path: self.listed[path].bytes for path in paths})
            missing = sum(size for path, size in due.items() if not self._is_whole(path))
            mark = self._cache.reserve(self._key, sum(due.values()), missing, name=self.directory)
            before, self._due = self._mark, due
            self._mark = weakref.finalize(self, os.close, mark)
            if before is not None:
                before()

    def fetch(self, path: str) -> str:
        """Where a file of the set lies on this machine, once it is there.

        Raises:
          DataError: the manifest does not list it, the store does not give it, or its bytes are
            wrong; names it.
        """
        file = self._listed(path)
        self.reserve([path])
        local = os.path.join(self.folder, path)
        if self._good.get(path) and self._is_whole(path):
            return local
        self._cache.folder(self._key)  # somebody may have emptied the cache
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with self._cache.file_lock(self.folder, path):
            if not self._as_published(path, local):
                self._download(file, local)
            self._good[path] = True
        return local

    def prefetch(self, paths: Sequence[str]) -> None:
        """Fetches files in the background, in this order, before those asked for earlier.

        An error there is passed over: `fetch` of the same file raises it again.
        """
        with self._own_lock():
            wanted = [p for p in paths if not self._good.get(p) and p not in self._taken]
            self._waiting = deque(dict.fromkeys([*wanted, *self._waiting]))
            new = min(THREADS, len(self._waiting)) - self._threads
            self._threads += max(0, new)
        for _ in range(new):
            threading.Thread(target=self._work, name="prefetch", daemon=True).start()

    def all_here(self, paths: Sequence[str]) -> bool:
        """Whether this process has fetched them all."""
        return all(self._good.get(path) for path in paths)

    @contextmanager
    def borrow(self, path: str) -> Iterator[str]:
        """A file for as long as the block lasts: it takes no room in the cache.

        Raises:
          DataError: as `fetch`.
        """
        if self._good.get(path) and self._is_whole(path):
            yield os.path.join(self.folder, path)
            return
        file = self._listed(path)
        with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
            local = os.path.join(folder, os.path.basename(path))
            self._download(file, local)
            yield local

    def names(self) -> List[str]:
        """All files that the store lists for the set, those of the manifest and others."""
        parts = (name.split("/") for name in store.sizes(self.directory))
        return ["/".join(part) for part in parts if not any(p.startswith(".") for p in part)]

    def _listed(self, path: str) -> ManifestFile:
        if path not in self.listed:
            raise DataError(f"{self.directory}/{path} is missing, and not listed in {MANIFEST}")
        return self.listed[path]

    def _own_lock(self) -> ContextManager:
        if self._process != os.getpid():  # the parent's threads are not here
            self._begin()
        return self._lock

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                path = self._waiting.popleft()
                self._taken.add(path)
            try:
                self.fetch(path)
            except Exception:
                with self._lock:
                    self._waiting.clear()

    def _is_whole(self, path: str) -> bool:
        """Whether a file of the right size is there; only whole ones have its name."""
        try:
            return os.path.getsize(os.path.join(self.folder, path)) == self.listed[path].bytes
        except OSError:
            return False

    def _as_published(self, path: str, local: str) -> bool:
        """Whether what is in the cache can be used; a file that was changed there is removed."""
        if not os.path.exists(local):
            return False
        file = self.listed[path]
        if self._is_whole(path) and (not self._verify or file_sha256(local) == file.sha256):
            with suppress(OSError):  # the file may be another user's
                os.utime(local)  # it is the most recently used now
            return True
        os.unlink(local)
        return False

    def _download(self, file: ManifestFile, local: str) -> None:
        """Fetches a file to a temporary name, checks it, and gives it its own."""
        part = local + PART
        try:
            for tries in range(1, TRIES + 1):
                try:
                    self._fill(file, part)
                    break
                except WrongFile:
                    if tries == TRIES:
                        raise
                    time.sleep(random.uniform(0, 0.5))
            os.replace(part, local)
        except OSError as error:
            raise DataError(
                f"{self.directory}/{file.path} cannot be kept on this machine: {error}. Free some "
                "space, or give another --cache_dir"
            ) from error

    def _fill(self, file: ManifestFile, part: str) -> None:
        """Goes on with a download where it was cut.

        Raises:
          WrongFile: it is not what the manifest says; nothing is left of it.
        """
        url, digest = f"{self.directory}/{file.path}", hashlib.sha256()
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
