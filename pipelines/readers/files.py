"""Finds the files that --input names, and opens them, on a disk or in an object store."""

import glob
import itertools
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from pipelines import store
from pipelines.readers.formats.table import FORMATS, formats_of
from pipelines.readers.stored import inner_extension, is_compressed
from pipelines.store import is_url
from schemas import object_store as stores
from schemas.errors import DataError, UsageError

# Extensions that a directory is searched for. A file that is named itself may have any.
KNOWN = tuple(dict.fromkeys(ending for row in FORMATS.values() for ending in row.endings))
_WEB = {ending for row in FORMATS.values() if row.is_web for ending in row.endings}
HUGGING_FACE = "hf:"
_SAVED_DATASET = ("dataset_dict.json", "state.json")
_LIST = "@"
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_PART_STARS = re.compile(r"[^/]\*\*|\*\*[^/]")  # object stores do not match these
_LIST_BYTES = 64 << 20
_STARS = re.compile(r"(^|/)\*\*(?:/|$)")  # folders at any depth
_MANY_STARS = re.compile(r"(?:\*\*/){2,}")  # equivalent to one
_MOST, _MOST_BRACES, _MOST_STARS = 10_000, 100, 3
_OURS = ("MANIFEST.json", "tokenizer.json")  # in folders whose JSON is no input


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
    if is_url(path):  # the size when it was opened
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


def expand_lists(patterns: tuple[str, ...]) -> list[str]:
    """Replaces each `@list.txt` by the patterns in the file.

    Raises:
      DataError: a list cannot be read or is empty.
    """
    expanded: list[str] = []
    for pattern in patterns:
        expanded += _read_list(pattern[1:]) if pattern.startswith(_LIST) else [pattern]
    return expanded


def _read_list(path: str) -> list[str]:
    if not is_url(path) and os.path.exists(path) and not os.path.isdir(path):
        _size(path)  # rejects a FIFO, which may block forever
    with open_file(path) as file:
        content = file.read(_LIST_BYTES + 1)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"the list {path} is not UTF-8 at byte {error.start}: convert it"
        ) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    patterns = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(content) > _LIST_BYTES or any("\0" in pattern for pattern in patterns):
        raise DataError(f"{path} is no list of paths: give a text file with one path in each line")
    for pattern in patterns:
        if pattern.startswith(_LIST):
            raise DataError(f"the list {path} names another list, {pattern}: copy its paths")
    if not patterns:
        raise DataError(f"the list {path} names no file: give one path in each line")
    return patterns


def find_files(
    pattern: str, *, label_folders: bool, web_pages: bool = False
) -> list[tuple[str, int]]:
    """Finds the paths and sizes of the files that a pattern names, sorted.

    Args:
      pattern: a file, a directory (its files with known extensions, at any depth), or a glob with
        *, ?, [], ** and {a,b}.
      label_folders: whether folders of text files are labels.
      web_pages: whether to include WARC and HTML files of directories.

    Raises:
      DataError: no file matches.
      UsageError: a directory of label folders also has text files of its own.
    """
    if is_url(pattern):
        files = _remote(pattern, web_pages)
    else:
        files = _local(pattern, label_folders, web_pages)
    if not files:
        raise DataError(f"no file matches --input={pattern}")
    return files


def _remote(pattern: str, web_pages: bool) -> list[tuple[str, int]]:
    if _PART_STARS.search(pattern):
        raise UsageError(f"--input={pattern}: ** matches whole folders only: a/**/b or a/**")
    matched: list[tuple[str, int]] = []
    for alternative in _alternatives(pattern) if not pattern.endswith("/") else ():
        matched += [
            (path, size)
            for path, size in stores.matches(alternative).items()
            if not _is_hidden(_base(path)) or _is_hidden(_base(alternative))  # like glob
        ]
    if not matched and not glob.has_magic(pattern):  # may be a folder
        folder = pattern.rstrip("/") + "/"
        matched = [
            (folder + name, size)
            for name, size in store.sizes(folder).items()
            if _is_known(name, web_pages) and not _is_hidden(name)
        ]
    return sorted(set(matched))


def _local(pattern: str, label_folders: bool, web_pages: bool) -> list[tuple[str, int]]:
    # A name that exists is taken literally, even if it contains [ or *.
    names = [pattern]
    if not os.path.lexists(pattern):
        names = [n for p in _alternatives(pattern) for n in _glob(p)]
    paths: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            paths.append(name)
        elif name == pattern:  # folders that match a glob are not searched
            paths += _in_folder(name, label_folders, web_pages)
    if names == [pattern] and not paths:
        endings = " ".join(end for end in KNOWN if web_pages or end not in _WEB)
        raise DataError(
            f"--input={pattern} is a folder without files to read; known extensions: {endings}, "
            "and .gz, .bz2, .xz or .zst after those of text formats"
        )
    if names and not paths:
        raise DataError(f"--input={pattern} matches folders only, such as {min(names)}: name one")
    once: dict[tuple[str, str], str] = {}  # the shortest name of each file, which links may repeat
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        once.setdefault(identity(path, label_folders=label_folders), path)
    return sorted((path, _size(path)) for path in once.values())


def _glob(pattern: str) -> list[str]:
    """`glob.glob`, but following circular links only once."""
    stars = _STARS.search(pattern)
    if stars is None:
        return glob.glob(pattern)
    start = pattern[: stars.end(1)]
    rest = pattern[stars.end() :]
    paths = []
    for top in glob.glob(start) if start else [""]:
        for folder in _folders(top):
            inside = os.path.join(glob.escape(folder), rest or "*")
            paths += _glob(inside) + [folder] * (not rest)
    return paths


def _folders(top: str) -> Iterator[str]:
    """A folder and all folders below it that are not hidden, each by its shortest name."""
    waiting, seen = deque([top]), set()
    while waiting:
        folder = waiting.popleft()
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(folder or "."):
            continue
        seen.add(real)
        yield folder
        with suppress(OSError), os.scandir(folder or ".") as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
            waiting += [os.path.join(folder, name) for name in names if not _is_hidden(name)]


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


def _in_folder(folder: str, label_folders: bool, web_pages: bool) -> list[str]:
    if any(os.path.exists(os.path.join(folder, name)) for name in _SAVED_DATASET):
        raise UsageError(
            f"--input={folder} is a saved Hugging Face dataset: give --input=hf:{folder}"
        )
    paths = []
    for parent, folders, names in os.walk(folder, onerror=_refuse_folder):
        folders[:] = [
            name
            for name in folders
            if not _is_hidden(name)
            and not any(os.path.exists(os.path.join(parent, name, ours)) for ours in _OURS)
        ]
        paths += [
            os.path.join(parent, name)
            for name in names
            if _is_known(name, web_pages) and not _is_hidden(name)
        ]
    if label_folders:
        rows = [(path, row) for path in paths for row in formats_of(inner_extension(path))]
        texts = [path for path, row in rows if row.labels == "folder"]
        top = sorted(path for path in texts if os.path.dirname(path) == folder.rstrip("/"))
        below = sorted({os.path.relpath(path, folder).split(os.sep)[0] for path in texts})
        inner = [name for name in below if os.path.isdir(os.path.join(folder, name))]
        if top and inner:
            first = os.path.join(folder, inner[0])
            raise UsageError(
                f"--input={folder} has text files ({os.path.basename(top[0])}"
                f"{', ...' if len(top) > 1 else ''}) beside folders that would be labels "
                f"({', '.join(inner)}): name the folders, --input={first} and so on"
            )
    return paths


def _refuse_folder(error: OSError) -> None:
    raise DataError(f"the folder {error.filename} cannot be read: {error.strerror}") from error


def _is_hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in relative.split("/"))


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_known(path: str, web_pages: bool) -> bool:
    return any(
        (web_pages or not row.is_web) and (row.packs or not is_compressed(path))
        for row in formats_of(inner_extension(path))
    )


def _alternatives(pattern: str) -> list[str]:
    """`a/{b,c}/*` -> [`a/b/*`, `a/c/*`]; inner braces first."""
    expanded = _expand_braces(_MANY_STARS.sub("**/", pattern))
    many = len(_BRACES.findall(pattern)) > _MOST_BRACES
    patterns = [] if many else list(itertools.islice(expanded, _MOST + 1))
    if many or len(patterns) > _MOST:
        raise UsageError(
            f"--input={pattern:.200} expands to more than {_MOST:,} patterns: write a list of "
            "files, one path in each line, and give --input=@LIST.txt"
        )
    if patterns[0].count("**") > _MOST_STARS:
        raise UsageError(
            f"--input={pattern:.200} has more than {_MOST_STARS} **, which take too long to "
            "search: name folders instead"
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
    if is_url(path):
        return path, ""
    return os.path.realpath(path), os.path.basename(os.path.dirname(path)) * label_folders
