"""Finds the files that --input names, and opens them, on a disk or in an object store."""

import glob
import itertools
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import BinaryIO

# In a worker, files of s3:// are opened with the flags of its job.
import textmill.pipelines.runtime.s3_flags  # noqa: F401
from textmill.pipelines.readers.compression import PACKINGS, inner_extension, is_compressed
from textmill.pipelines.readers.formats.table import FORMATS, formats_of
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError, FieldDataError, FieldError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus, kind_of

# Extensions that a directory is searched for. A file that is named itself may have any.
KNOWN = tuple(dict.fromkeys(ending for row in FORMATS.values() for ending in row.endings))
_WEB = {ending for row in FORMATS.values() if row.is_web for ending in row.endings}
HUGGING_FACE = "hf:"
_SAVED_DATASET = ("dataset_dict.json", "state.json")
_LIST = "@"
_BRACES = re.compile(r"\{([^{},]*+,[^{}]*+)\}")
_PART_STARS = re.compile(r"[^/]\*\*|\*\*[^/]")  # object stores do not match these
_LIST_BYTES = 64 << 20
_STARS = re.compile(r"(^|/)\*\*(?:/|$)")  # folders at any depth
_MANY_STARS = re.compile(r"(?:\*\*/){2,}")  # equivalent to one
_MOST, _MOST_BRACES, _MOST_STARS = 10_000, 100, 3
_MAGIC = re.compile(r"[*?[]")
_MANY = {"corpus": "corpora"}
_SHOWN = 3  # names in a note
_OURS = ("MANIFEST.json", "tokenizer.json")  # in folders whose JSON is not input


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Opens a file for reading its bytes as they are stored.

    Raises:
      DataError: it cannot be opened.
    """
    try:
        file = store.open_file(path)
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror or error}") from error
    with file:
        yield file


def check_size(raw: BinaryIO, path: str, size: int) -> None:
    """Checks that a file has the size that it had when the run was planned."""
    if store.is_url(path):  # the size when it was opened
        place = raw.tell()
        now = raw.seek(0, os.SEEK_END)
        raw.seek(place)
    else:
        now = os.fstat(raw.fileno()).st_size
    if now != size:
        raise DataError(
            f"{path} had {size:,} bytes when the run began and has {now:,} now: do not change "
            "inputs during a run; run again"
        )


def expand_lists(patterns: tuple[str, ...], field: str) -> list[str]:
    """Replaces each `@list.txt` by the patterns in the file.

    Args:
      patterns: the value of a field.
      field: of a command's options; errors name it.

    Raises:
      DataError: a list cannot be read or is empty.
    """
    expanded: list[str] = []
    for pattern in patterns:
        expanded += _read_list(pattern, field) if pattern.startswith(_LIST) else [pattern]
    return expanded


def _read_list(value: str, field: str) -> list[str]:
    path = value.removeprefix(_LIST)
    try:
        if not store.is_url(path) and os.path.exists(path) and not os.path.isdir(path):
            _size(path)  # rejects a FIFO, which may block forever
        with open_file(path) as file:
            content = file.read(_LIST_BYTES + 1)
    except DataError as error:
        raise FieldDataError(field, value, error.marked) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FieldDataError(
            field, value, f"the list is not UTF-8 at byte {error.start}: convert it"
        ) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    patterns = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(content) > _LIST_BYTES or any("\0" in pattern for pattern in patterns):
        raise FieldDataError(
            field, value, "not a list of paths: give a text file with one path in each line"
        )
    for pattern in patterns:
        if pattern.startswith(_LIST):
            raise FieldDataError(
                field, value, f"the list names another list, {pattern}: copy its paths"
            )
    if not patterns:
        raise FieldDataError(field, value, "the list names no file: give one path in each line")
    return patterns


class FileFinder:
    """Finds the files that patterns name, and remembers what it does not read of directories.

    Attributes:
      label_folders: whether folders of text files are labels.
      web_pages: whether to include WARC and HTML files of directories.
      any_name: whether to include files without extension of directories.
      follow_links: whether to follow links out of a directory, or out of the folder in which a glob
        searches.
      field: of a command's options, which holds the patterns.
    """

    def __init__(
        self,
        *,
        label_folders: bool = False,
        web_pages: bool = False,
        any_name: bool = False,
        follow_links: bool = False,
        field: str = "input",
    ):
        self._label_folders, self._follow_links = label_folders, follow_links
        self._web_pages, self._any_name, self._field = web_pages, any_name, field
        self._unknown: list[str] = []
        self._private: list[str] = []
        self._links: list[str] = []
        self._corpora: list[str] = []

    def find(self, pattern: str) -> list[tuple[str, int]]:
        """Finds the paths and sizes of the files that a pattern names, sorted.

        Args:
          pattern: a file, a directory (its files with known extensions, at any depth), or a glob
            with *, ?, [], ** and {a,b}.

        Raises:
          DataError: no file matches.
          UsageError: a directory of label folders also has text files of its own.
        """
        files = self._remote(pattern) if store.is_url(pattern) else self._local(pattern)
        if not files:
            raise FieldDataError(self._field, pattern, f"no file matches{self._reason()}")
        return files

    def note(self) -> str:
        """Describes what was not read so far, with remedies; "" if everything was."""
        parts = (
            _describe_unread(
                self._unknown, "file of unknown format", "name such a file, or rename it"
            ),
            _describe_unread(self._private, "name that begins with _", "name it to read it"),
            _describe_unread(
                self._links,
                "link out of its folder",
                f"give {flag('follow_links', True)} if you trust it",
            ),
            _describe_unread(self._corpora, "corpus in a folder", "name it to read it"),
        )
        return "; ".join(filter(None, parts))

    def _reason(self) -> str:
        note = self.note()
        return note and f"; {note}"

    def _remote(self, pattern: str) -> list[tuple[str, int]]:
        if _PART_STARS.search(pattern):
            raise FieldError(self._field, pattern, "** matches whole folders only: a/**/b or a/**")
        matched: list[tuple[str, int]] = []
        for alternative in _alternatives(self._field, pattern) if not pattern.endswith("/") else ():
            matched += [
                (path, size)
                for path, size in store.matches(alternative).items()
                if self._is_matched(path, alternative)
            ]
        if not matched and not glob.has_magic(pattern):  # may be a folder
            folder = pattern.rstrip("/") + "/"
            for name, size in store.sizes(folder).items():
                *folders, base = name.split("/")
                if any(_is_private(part) for part in folders):
                    first = next(i for i, part in enumerate(folders) if _is_private(part))
                    if not _is_hidden(folders[first]):
                        self._private.append(folder + "/".join(folders[: first + 1]))
                elif self._takes(folder + name, base, size):
                    matched.append((folder + name, size))
        return sorted(set(matched))

    def _is_matched(self, path: str, pattern: str) -> bool:
        is_matched = _matches_private(path, pattern)
        if not is_matched and not any(map(_is_hidden, path.split("/"))):
            self._private.append(path)
        return is_matched

    def _local(self, pattern: str) -> list[tuple[str, int]]:
        # A name that exists is taken literally, even if it contains [ or *.
        names = [pattern]
        if not os.path.lexists(pattern):
            names = [
                name for one in _alternatives(self._field, pattern) for name in self._glob(one)
            ]
        paths: list[str] = []
        for name in names:
            if not os.path.isdir(name):
                paths.append(name)
            elif name == pattern:  # folders that match a glob are not searched
                paths += self._in_folder(name)
        if names == [pattern] and not paths:
            endings = " ".join(end for end in KNOWN if self._web_pages or end not in _WEB)
            raise FieldDataError(
                self._field,
                pattern,
                f"a folder without files to read; known extensions: {endings}, and "
                f"{', '.join(PACKINGS)} after those of text formats{self._reason()}",
            )
        if names and not paths:
            raise FieldDataError(
                self._field, pattern, f"this matches folders only, such as {min(names)}: name one"
            )
        once: dict[tuple[str, str], str] = {}  # the shortest name of a file, which links may repeat
        for path in sorted(set(paths), key=lambda path: (len(path), path)):
            once.setdefault(identity(path, label_folders=self._label_folders), path)
        return sorted((path, _size(path)) for path in once.values())

    def _glob(self, pattern: str) -> list[str]:
        """The names that match, without links out of the folder in which the glob searches."""
        names = _glob(pattern, self._private)
        magic = _MAGIC.search(pattern)
        if magic is None or self._follow_links:
            return names
        root = os.path.realpath(os.path.dirname(pattern[: magic.start()]) or ".")
        return [name for name in names if self._is_inside(name, root)]

    def _is_inside(self, path: str, root: str) -> bool:
        real = os.path.realpath(path)
        is_inside = real == root or real.startswith(os.path.join(root, ""))
        if not is_inside:
            self._links.append(path)
        return is_inside

    def _in_folder(self, folder: str) -> list[str]:
        if any(os.path.exists(os.path.join(folder, name)) for name in _SAVED_DATASET):
            raise FieldError(self._field, folder, f"a saved Hugging Face dataset: give hf:{folder}")
        paths = list(self._walk(folder))
        if self._label_folders:
            _check_labels(self._field, folder, paths)
        return paths

    def _walk(self, top: str) -> Iterator[str]:
        """Yields the files to read, at any depth; a folder that links name again only once."""
        root, seen, waiting = os.path.realpath(top), set(), [top]
        while waiting:
            folder = waiting.pop()
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
            try:
                with os.scandir(folder) as scanned:
                    entries = sorted(scanned, key=lambda entry: entry.name)
            except OSError as error:
                raise DataError(
                    f"the folder {error.filename} cannot be read: {error.strerror}"
                ) from error
            for entry in entries:
                if _is_hidden(entry.name):
                    continue
                if entry.is_symlink() and not self._follow_links:
                    if not self._is_inside(entry.path, root) or entry.is_dir():
                        continue
                if not entry.is_dir():
                    if self._takes(entry.path, entry.name):
                        yield entry.path
                elif _is_private(entry.name):
                    self._private.append(entry.path)
                elif not any(os.path.exists(os.path.join(entry.path, ours)) for ours in _OURS):
                    waiting.append(entry.path)
                elif kind_of(entry.path) is Corpus:
                    self._corpora.append(entry.path)

    def _takes(self, path: str, name: str, size: int | None = None) -> bool:
        """Whether to read a file of a directory, by its name; notes it if not."""
        ending = inner_extension(name)
        is_known = any(
            (self._web_pages or not row.is_web) and (row.packs or not is_compressed(name))
            for row in formats_of(ending)
        ) or (self._any_name and not ending)
        if _is_private(name):
            if is_known and not _is_hidden(name):
                self._private.append(path)
            return False
        if not is_known and (store.size(path) if size is None else size):
            self._unknown.append(path)
        return is_known


def _describe_unread(paths: list[str], what: str, remedy: str) -> str:
    """Describes what was not read: `2 files of unknown format were not read (a, b): ...`."""
    if not paths:
        return ""
    paths = sorted(set(paths))
    one, _, rest = what.partition(" ")
    count = number_of(len(paths), what, f"{_MANY.get(one, one + 's')} {rest}")
    verb = "was" if len(paths) == 1 else "were"
    shown = ", ".join(paths[:_SHOWN]) + ", ..." * (len(paths) > _SHOWN)
    return f"{count} {verb} not read ({shown}): {remedy}"


def _glob(pattern: str, private: list[str]) -> list[str]:
    """`glob.glob`, but following circular links only once; adds folders that ** skips."""
    stars = _STARS.search(pattern)
    if stars is None:
        return glob.glob(pattern)
    start = pattern[: stars.end(1)]
    rest = pattern[stars.end() :]
    paths = []
    for top in glob.glob(start) if start else [""]:
        for folder in _folders(top, private):
            inside = os.path.join(glob.escape(folder), rest or "*")
            paths += _glob(inside, private) + [folder] * (not rest)
    return paths


def _folders(top: str, private: list[str]) -> Iterator[str]:
    """A folder and all folders below it that are not private, each by its shortest name."""
    waiting, seen = deque([top]), set()
    while waiting:
        folder = waiting.popleft()
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(folder or "."):
            continue
        seen.add(real)
        yield folder
        names = []
        with suppress(OSError), os.scandir(folder or ".") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            if not _is_private(name):
                waiting.append(os.path.join(folder, name))
            elif not _is_hidden(name):
                private.append(os.path.join(folder, name))


def _size(path: str) -> int:
    """The size of a regular file with a name in UTF-8; raises DataError for others."""
    try:
        path.encode()
        status = os.stat(path)
    except UnicodeEncodeError as error:
        raise DataError(
            f"the name of {path!r} is not UTF-8, so reports cannot contain it: rename the file"
        ) from error
    except OSError as error:
        what = "is a broken link" if os.path.islink(path) else "cannot be looked up"
        raise DataError(f"{path} {what}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(
            f"{path} is not a regular file: write its content to one, because inputs are read in "
            "parts and more than once"
        )
    return status.st_size


def _check_labels(field: str, folder: str, paths: list[str]) -> None:
    """Raises FieldError for text files beside folders that would be labels."""
    rows = [(path, row) for path in paths for row in formats_of(inner_extension(path))]
    texts = [path for path, row in rows if row.labels == "folder"]
    top = sorted(path for path in texts if os.path.dirname(path) == folder.rstrip("/"))
    below = sorted({os.path.relpath(path, folder).split(os.sep)[0] for path in texts})
    inner = [name for name in below if os.path.isdir(os.path.join(folder, name))]
    if top and inner:
        first = os.path.join(folder, inner[0])
        raise FieldError(
            field,
            folder,
            f"text files ({os.path.basename(top[0])}{', ...' if len(top) > 1 else ''}) are beside "
            f"folders that would be labels ({', '.join(inner)}): name the folders, {first} and so "
            "on",
        )


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_private(name: str) -> bool:
    """Whether it is read only if a pattern names it, as in Spark and pyarrow."""
    return name.startswith((".", "_"))


def _matches_private(path: str, pattern: str) -> bool:
    """Whether a URL matches a glob whose ** and * pass over private names, as on a disk."""
    *folders, base = path.split("/")
    parts = [part for part in pattern.split("/") if part != "**"]
    return all(
        any(fnmatchcase(name, part) and (part[:1] == "." or name[0] == "_") for part in parts)
        for name in (*filter(_is_private, folders), *filter(_is_hidden, [base]))
    )


def _alternatives(field: str, pattern: str) -> list[str]:
    """`a/{b,c}/*` -> [`a/b/*`, `a/c/*`]; inner braces first."""
    expanded = _expand_braces(_MANY_STARS.sub("**/", pattern))
    many = len(_BRACES.findall(pattern)) > _MOST_BRACES
    patterns = [] if many else list(itertools.islice(expanded, _MOST + 1))
    if many or len(patterns) > _MOST:
        raise FieldError(
            field,
            pattern[:200],
            f"this expands to more than {_MOST:,} patterns: write a list of files, one path in "
            "each line, and give @LIST.txt",
        )
    if patterns[0].count("**") > _MOST_STARS:
        raise FieldError(
            field,
            pattern[:200],
            f"more than {_MOST_STARS} ** take too long to search: name folders instead",
        )
    return patterns


def _expand_braces(pattern: str) -> Iterator[str]:
    match = _BRACES.search(pattern)
    if match is None:
        yield pattern
        return
    for option in match[1].split(","):
        yield from _expand_braces(pattern[: match.start()] + option + pattern[match.end() :])


def identity(path: str, *, label_folders: bool) -> tuple[str, str]:
    """A key that is equal for all names of a file with the same label."""
    if store.is_url(path):
        return path, ""
    return os.path.realpath(path), os.path.basename(os.path.dirname(path)) * label_folders
