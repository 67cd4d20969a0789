"""The files of a dataset, in a directory, or in an object store with a local cache.

    files = open_files("gs://bucket/set", Cache("/disk/cache", gigabytes=50))
    files.fetch("schema.json")          # its path on this machine
    files.prefetch([...])               # in the background, in this order
    with files.open_temporarily("train-00000-of-00004.tfrecord") as path: ...  # not kept

Textmill compares a download with the manifest's size and sha256 before it gets its final name in
the cache, and again when another run uses it. An interrupted download is resumed, also by another
process; a wrong one is repeated, and the third wrong one raises an error. Processes that share a
cache download a file once.

    CACHE/.lock                     held while files are removed to make room
    CACHE/<sha256 of a manifest>/   the downloaded files of a dataset
        train-00000-of-00004.tfrecord ...
        pieces/                     downloaded pieces of shards, see `schemas.files.piece_files`
        *.part                      downloads that are in progress or interrupted
        .locks/                     a lock for each downloaded file

Locks are those of the kernel, which releases them when a process is killed. Python 3.8 syntax.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import (
    Any,
    Iterator,
    NamedTuple,
    Sequence,
    Union,
)

from textmill.schemas.errors import DataError, describe_refusal, either, flag
from textmill.schemas.files import object_store, store
from textmill.schemas.files.cache import Cache, cache_key, mark_used
from textmill.schemas.format.manifest import (
    MANIFEST,
    Manifest,
    ManifestFile,
    changed,
    check_unchanged,
    parse_manifest,
)
from textmill.schemas.typed_json import MAX_BYTES, read_bounded

REQUEST_BYTES = 8 << 20  # size of a request, the most that an interruption loses
THREADS = 4  # that download in the background
TRIES = 3  # of a download with wrong bytes
_PART = ".part"


class FilePart(NamedTuple):
    """A file of a dataset or a piece of a shard: it is downloaded and checked at once.

    Attributes:
      path: of the file, in the dataset.
      bytes: of the part.
      sum: the hash of its bytes, hexadecimal: a file's sha256, a piece's XXH3-64.
      begin: where it begins; None for a whole file.
    """

    path: str
    bytes: int
    sum: str
    begin: int | None = None

    def hasher(self) -> Any:
        """A new hash of the kind of `sum`."""
        if self.begin is None:
            return hashlib.sha256()
        # Imported here: reading a directory does not need the package.
        from xxhash import xxh3_64

        return xxh3_64()

    def is_in(self, local: str) -> bool:
        """Whether a local file has these bytes."""
        digest = self.hasher()
        with open(local, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
        return digest.hexdigest() == self.sum

    def __str__(self) -> str:
        """Its name in errors, after the directory."""
        if self.begin is None:
            return self.path
        return f"{self.path} (bytes {self.begin:,} to {self.begin + self.bytes:,})"


def whole_file(file: ManifestFile) -> FilePart:
    """All of a file."""
    return FilePart(file.path, file.bytes, file.sha256)


class WrongFileError(DataError):
    """A file that differs from the manifest.

    Attributes:
      found: its actual size and sum.
    """

    def __init__(self, message: str, size: int, found_sum: str):
        super().__init__(message)
        self.found = (size, found_sum)


class MissingFile(DataError):
    """A file that the manifest lists is not in the object store."""


def local_names(directory: str) -> list[str]:
    """All files of a directory at any depth, except hidden ones."""
    names = (
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _, names in os.walk(directory)  # a link to itself is a name, too
        for name in names
    )
    paths = (name.replace(os.sep, "/") for name in names)
    return sorted(path for path in paths if not f"/{path}".count("/."))


class LocalFiles:
    """A dataset in a directory, which needs no downloads.

    The directory may be a link, and its links may point into it. Other links are followed only on
    request (the cache of huggingface_hub consists of them): otherwise a dataset from an untrusted
    source could make a reader open any file of this machine.
    """

    def __init__(self, directory: str, manifest: Manifest, *, follow_links: bool = False):
        self.directory, self.manifest = directory, manifest
        self._follow_links = follow_links

    def check_sizes(self) -> None:
        """Compares the size of every file with the manifest.

        Raises:
          DataError: a file is missing, has a different size, or is a link out of the directory.
        """
        for file in self.manifest.files:
            path, size = self.fetch(file.path), None
            try:
                status = os.stat(path)
                size = status.st_size if stat.S_ISREG(status.st_mode) else "is not a regular file"
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise describe_refusal(path, error) from error
            if size != file.bytes:
                raise _wrong_size(path, size, file)

    def check_bytes(self) -> None:
        """Compares the sha256 of every file with the manifest.

        Raises:
          FileNotFoundError: a file is missing.
          DataError: a file differs, or cannot be read.
        """
        files = self.manifest.files
        paths = [os.path.join(self.directory, file.path) for file in files]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing releases the GIL
            list(pool.map(check_unchanged, paths, files))

    def fetch(self, path: str) -> str:
        """The path of a file of the dataset, which may be missing.

        Raises:
          DataError: it is a link out of the directory.
        """
        local = os.path.join(self.directory, path)
        if "/" in path or os.path.islink(local):
            check_link(self.directory, path, follow=self._follow_links)
        return local

    def reserve(self, paths: Sequence[str]) -> None:
        """Does nothing: local files need no room in a cache."""

    def prefetch(self, paths: Sequence[str]) -> None:
        """Does nothing: the files are local."""

    def all_here(self, paths: Sequence[str]) -> bool:
        """Whether the files are on this machine: always True."""
        return True

    @contextmanager
    def open_temporarily(self, path: str) -> Iterator[str]:
        """The path of a file of the dataset."""
        yield self.fetch(path)

    def names(self) -> list[str]:
        """All files of the directory, in the manifest or not, except hidden ones."""
        return local_names(self.directory)


class CachedFiles:
    """A dataset in an object store. It may be pickled and forked.

    Attributes:
      directory: its URL.
      manifest: its manifest, read from the object store.
      folder: its directory in the cache.
    """

    def __init__(self, url: str, cache: Cache, *, verify: bool = True):
        """Downloads the manifest.

        Args:
          url: the URL of the dataset.
          cache: the cache for its files.
          verify: whether to compare the sha256 of files that other runs left in the cache;
            downloads are always compared.

        Raises:
          DataError: there is no finished dataset, or the object store does not answer.
          UsageError: no package reads this object store, or the cache cannot be written.
        """
        self.directory, self._cache, self._verify = url.rstrip("/"), cache, verify
        place = f"{self.directory}/{MANIFEST}"
        try:
            content = store.read(place, 0, MAX_BYTES + 1)
        except FileNotFoundError:
            raise no_manifest(self.directory) from None
        if len(content) > MAX_BYTES:
            raise DataError(f"{place} has more than {MAX_BYTES:,} bytes: it is not of a dataset")
        self.manifest = parse_manifest(content, place)
        self._listed = {file.path: file for file in self.manifest.files}
        self._key = cache_key(content)
        self.folder = cache.folder(self._key)
        self._good: set[str] = set()  # paths whose files this process has checked
        self._reserved: set[str] = set()  # paths for which there is room
        self._waiting: deque[str] = deque()  # paths that threads will download
        self._taken: set[str] = set()  # paths that a thread has taken
        self._threads: list[threading.Thread] = []

    def __getstate__(self) -> dict[str, Any]:
        """The state without downloads in progress; a forked process sees its threads as dead."""
        idle = {"_waiting": deque(), "_taken": set(), "_threads": []}
        return {**self.__dict__, "_good": self._good.copy(), **idle}

    def reserve(self, paths: Sequence[str]) -> None:
        """Makes room for files before they are downloaded.

        Raises:
          DataError: the cache or its disk is too small.
        """
        if self._reserved.issuperset(paths):
            return
        files = [self._listed[path] for path in self._reserved.union(paths)]
        missing = sum(file.bytes for file in files if not self._is_whole(file))
        needed = sum(file.bytes for file in files)
        self._cache.make_room(self._key, needed, missing, name=self.directory)
        self._reserved.update(paths)

    def fetch(self, path: str) -> str:
        """Downloads a file unless it is in the cache; returns its local path.

        Raises:
          DataError: the manifest does not list it, the object store does not return it, or its
            bytes are wrong.
        """
        file, local = self._find(path), os.path.join(self.folder, path)
        if path in self._good and self._is_whole(file):
            return local
        self.reserve([path])
        self.bring(whole_file(file), local, lock=path)
        self._good.add(path)
        return local

    def bring(self, part: FilePart, local: str, *, lock: str) -> int:
        """Downloads a file or a piece unless it is at its local path; returns the bytes downloaded.

        Args:
          part: what is downloaded.
          local: its path in the cache.
          lock: the name of the lock that all processes take for it.

        Raises:
          DataError: as `fetch`.
        """
        with self._cache.file_lock(self._key, lock):
            if self._is_as_published(part, local):
                return 0
            self._download(part, local)
            return part.bytes

    def make_room(self, ahead: int) -> None:
        """Makes room for this many bytes of pieces; raises like `reserve`."""
        whole = sum(self._listed[path].bytes for path in self._reserved.copy())
        self._cache.make_room(self._key, whole + ahead, ahead, name=self.directory)

    @property
    def bound(self) -> float:
        """The most bytes that the cache may hold."""
        return self._cache.bound

    def check_room(self, needed: int) -> None:
        """Raises DataError if the cache can never hold this many bytes of pieces."""
        self._cache.check_room(needed, name=self.directory)

    def prefetch(self, paths: Sequence[str]) -> None:
        """Downloads files in the background, in this order, before those requested earlier.

        Errors are ignored there, since `fetch` of the same file raises them again.
        """
        wanted = [path for path in paths if path not in self._good and path not in self._taken]
        self._waiting = deque(dict.fromkeys([*wanted, *self._waiting.copy()]))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(min(THREADS, len(wanted)) - len(self._threads)):
            thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
            self._threads.append(thread)
            thread.start()

    def all_here(self, paths: Sequence[str]) -> bool:
        """Whether this process has downloaded and checked all of these files."""
        return self._good.issuperset(paths)

    @contextmanager
    def open_temporarily(self, path: str) -> Iterator[str]:
        """Downloads a file for the duration of the block, without using room in the cache.

        Raises:
          DataError: as `fetch`.
        """
        file = self._find(path)
        if path in self._good and self._is_whole(file):
            yield os.path.join(self.folder, path)
            return
        with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
            local = os.path.join(folder, os.path.basename(path))
            self._download(whole_file(file), local)
            yield local

    def check_sizes(self) -> None:
        """Compares the size of every object with the manifest.

        Raises:
          DataError: one is missing or has a different size.
        """
        there = store.sizes(self.directory)
        for file in self.manifest.files:
            place, size = f"{self.directory}/{file.path}", there.get(file.path)
            if size != file.bytes:  # a listing may be out of date
                size = store.size(place)
            if size != file.bytes:
                raise _wrong_size(place, size, file)

    def names(self) -> list[str]:
        """All files of the dataset in the object store, in the manifest or not."""
        parts = (name.split("/") for name in store.sizes(self.directory))
        return ["/".join(part) for part in parts if not any(p.startswith(".") for p in part)]

    def _find(self, path: str) -> ManifestFile:
        if path not in self._listed:
            raise DataError(f"{self.directory}/{path} is not listed in {MANIFEST}")
        return self._listed[path]

    def _work(self) -> None:
        with suppress(Exception):  # no path is waiting, or `fetch` will raise the error again
            while True:
                path = self._waiting.popleft()
                self._taken.add(path)
                self.fetch(path)
        self._waiting.clear()

    def _is_whole(self, file: ManifestFile) -> bool:
        """Whether the cache has a file of the right size; incomplete ones have another name."""
        try:
            return os.path.getsize(os.path.join(self.folder, file.path)) == file.bytes
        except OSError:
            return False

    def _is_as_published(self, part: FilePart, local: str) -> bool:
        """Whether the file in the cache can be used; removes it if it was changed."""
        try:
            is_whole = os.path.getsize(local) == part.bytes
            if is_whole and (not self._verify or part.is_in(local)):
                mark_used(local)
                return True
            os.unlink(local)
        except FileNotFoundError:  # or another process has just removed it to make room
            pass
        except OSError as error:
            raise describe_refusal(local, error) from error
        return False

    def _download(self, part: FilePart, local: str) -> None:
        """Downloads a file or a piece to a temporary name, checks it, and renames it."""
        may_pass = (WrongFileError, FileNotFoundError)
        try:
            object_store.retry(
                lambda: self._fill(part, local), lambda error: isinstance(error, may_pass), TRIES
            )
        except OSError as error:
            raise DataError(
                f"{self.directory}/{part} cannot be stored on this machine: {error}; free "
                f"some space, or use another {flag('cache_dir')}"
            ) from error

    def _fill(self, part: FilePart, local: str) -> None:
        """Starts or resumes a download.

        Raises:
          WrongFileError: it differs from the manifest, and was deleted.
          FileNotFoundError: another process has removed it to make room.
        """
        url, digest, partial = f"{self.directory}/{part.path}", part.hasher(), local + _PART
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(partial, "ab+") as out:
            out.seek(0)
            for chunk in iter(lambda: out.read(1 << 20), b""):
                digest.update(chunk)
            size = out.tell()
            while size < part.bytes:
                stop = min(size + REQUEST_BYTES, part.bytes)
                # One more byte at the end detects a file that is too long.
                more = part.begin is None and stop == part.bytes
                try:
                    content = store.read(url, (part.begin or 0) + size, stop - size + more)
                except FileNotFoundError as error:
                    os.unlink(partial)
                    raise MissingFile(
                        f"{url} is missing, although {MANIFEST} lists it: copy or build the "
                        "dataset again"
                    ) from error
                out.write(content)
                digest.update(content)
                size += len(content)
                if size != stop:
                    break
        found = digest.hexdigest()
        if (size, found) == (part.bytes, part.sum):
            os.replace(partial, local)
            return
        os.unlink(partial)
        if size != part.bytes:
            what = f"has {size:,} bytes, but {MANIFEST} lists {part.bytes:,}"
        else:
            kind = "sha256" if part.begin is None else "XXH3"
            what = f"has {kind} {found}, but {MANIFEST} lists {part.sum}"
        raise WrongFileError(
            f"{self.directory}/{part} {what} (after {TRIES} downloads): copy or build the "
            "dataset again; if it was replaced while it was read, run the command again",
            size,
            found,
        )


FinishedFiles = Union[LocalFiles, CachedFiles]


def _wrong_size(path: str, found: int | str | None, file: ManifestFile) -> DataError:
    """The error for a file of a different size; None: it is missing, a phrase: another problem."""
    state = "is missing" if found is None else found
    state = f"has {state:,} bytes" if isinstance(state, int) else state
    return DataError(
        f"{path} {state}, but {MANIFEST} lists {file.bytes:,} bytes: copy or build it again"
    )


def check_link(directory: str, path: str, *, follow: bool) -> None:
    """Checks that a file of a dataset is not a link out of its directory, unless `follow` is set.

    Raises:
      DataError: it is such a link.
    """
    link = os.path.join(directory, path)
    if follow:
        return
    inside, place = os.path.join(os.path.realpath(directory), ""), os.path.realpath(link)
    if not os.path.join(place, "").startswith(inside):
        raise DataError(
            f"{link} is a link out of its directory, to {place}, which is not followed because the "
            "directory may come from an untrusted source: if you trust it, add "
            f"{flag('follow_links', True)}{either(' (in Python follow_links=True)', '')}, or copy "
            "it with its files (cp -rL)"
        )


def read_listed(files: FinishedFiles, name: str, *, keep: bool = True) -> bytes:
    """Reads a metadata file of a dataset or corpus, and compares its sha256 with the manifest.

    With `keep`, a downloaded file stays in the cache.

    Raises:
      DataError: the manifest does not list it, or it is missing, too large or was changed.
    """
    for file in files.manifest.files:
        if file.path == name:
            with nullcontext(files.fetch(name)) if keep else files.open_temporarily(name) as path:
                content = read_bounded(path)
                if hashlib.sha256(content).hexdigest() != file.sha256:
                    raise changed(path)
                return content
    place = os.path.join(files.directory, MANIFEST)
    raise DataError(f"{place} does not list {name}: copy or build it again")


def no_manifest(directory: str) -> DataError:
    """The error for a directory without a manifest."""
    if not store.is_url(directory) and not os.path.lexists(directory):
        return DataError(
            f"{directory} does not exist: give the output of build_shards, build_corpus or "
            "train_tokenizer"
        )
    return DataError(
        f"{directory} is not a finished dataset, corpus or tokenizer: it has no {MANIFEST}. Give "
        "the output of build_shards, build_corpus or train_tokenizer; if its run was interrupted, "
        "run the same command again"
    )


def open_files(
    directory: str,
    cache: Cache | None = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> FinishedFiles:
    """Opens the dataset in a directory or at a URL.

    Args:
      directory: the directory or URL with MANIFEST.json.
      cache: the cache for files from an object store; by default that of the user.
      verify: see `CachedFiles`.
      follow_links: see `LocalFiles`.

    Raises:
      DataError: there is no finished dataset, it cannot be read, or the object store does not
        answer.
      UsageError: no package reads this object store, or the cache cannot be written.
    """
    if store.is_url(directory):
        return CachedFiles(directory, cache or Cache(), verify=verify)
    path = os.path.join(directory, MANIFEST)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait
            raise no_manifest(directory)
        check_link(directory, MANIFEST, follow=follow_links)
        manifest = parse_manifest(read_bounded(path), path)
        return LocalFiles(directory, manifest, follow_links=follow_links)
    except (FileNotFoundError, NotADirectoryError):
        raise no_manifest(directory) from None
    except OSError as error:
        raise describe_refusal(path, error) from error
