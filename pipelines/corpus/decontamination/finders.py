"""Applies the index of target n-grams on workers: stages it, counts n-grams, cuts what is found.

N-grams in more documents of the input than a limit are common language. Each n-gram keeps the
`limit + 1` smallest hashes of the documents that contain it. So equal documents count once, and the
result does not depend on the order of addition.
"""

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.ngram_index import (
    NgramIndex,
    pack_index,
    unpack_index,
)
from textmill.pipelines.corpus.rules.rule import RuleResult
from textmill.pipelines.readers.documents import BOUNDARIES
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files import store

COMMON = "common_ngrams"  # in the staging folder: int64, numbers of n-grams
# uint64 [n, 2], ascending: an n-gram, and the hash of a document that contains it.
NO_HOLDERS = np.zeros((0, 2), np.uint64)
_LOADING = threading.Lock()


def stage_index(index: NgramIndex, folder: str) -> str:
    """Writes an index into a folder that all workers can read, and returns its path."""
    content = pack_index(index)
    path = os.path.join(folder, f"ngrams-{hashlib.sha256(content).hexdigest()}.arrow")
    store.write_file(path, content)
    return path


def load_finder(path: str) -> Finder:
    """Loads the finder for the index at a path, once a process.

    Raises:
      DataError: the path does not exist on this machine, or the file was changed.
    """
    with _LOADING:  # threads of one process share it: an index may be large
        return _load(path)


@lru_cache(1)  # a process serves one run at a time
def _load(path: str) -> Finder:
    try:
        content = store.read(path)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist on a worker: put {flag('output')} on a file system that all "
            "workers share"
        ) from error
    # Compiled loops trust the bounds in the index.
    if hashlib.sha256(content).hexdigest() not in path:
        raise DataError(f"{path} was changed after the run wrote it: run again")
    return Finder(unpack_index(content))


def find_holders(finder: Finder, text: pa.LargeStringArray) -> np.ndarray:
    """The n-grams in documents, with the first half of each document's xxh3_128."""
    pairs = finder.count(text)
    documents, place = np.unique(pairs[:, 0], return_inverse=True)
    digests = content_digests(text.take(pa.array(documents)))
    halves = np.ascontiguousarray(digests[:, :8]).view(">u8").ravel().astype(np.uint64)
    return np.stack([pairs[:, 1].astype(np.uint64), halves[place]], axis=1)


def add_holders(parts: Iterable[np.ndarray], limit: int) -> np.ndarray:
    """Joins holders; keeps at most `limit + 1` for each n-gram.

    [[7, 1], [7, 5]] and [[7, 3], [7, 5], [8, 2]] with a limit of 1 -> [[7, 1], [7, 3], [8, 2]].
    """
    holders = np.unique(np.concatenate([NO_HOLDERS, *parts]), axis=0)
    rank = np.arange(len(holders)) - np.searchsorted(holders[:, 0], holders[:, 0])
    return holders[rank <= limit]


def find_common(holders: np.ndarray, limit: int) -> np.ndarray:
    """int64, ascending: the n-grams with more holders than the limit."""
    grams, counts = np.unique(holders[:, 0], return_counts=True)
    return grams[counts > limit].astype(np.int64)


def judge_texts(text: pa.LargeStringArray, finder: Finder, unit: str) -> RuleResult:
    """Drops documents that contain a target, or cuts the units that do.

    Args:
      text: large_string [n], the documents.
      finder: the finder of targets.
      unit: document, paragraph or line.
    """
    found, reason, after = finder.find(text), np.zeros(len(text), bool), None
    if unit == "document":
        reason[found.spans[:, 0]] = True
    else:
        after = cut_out(text, found.spans, unit)
    first = Counter({document: hit.target for document, hit in reversed(found.hits)}.values())
    return RuleResult(reason, after, {"contaminated": first} if first else {}, found.hits)


def cut_out(text: pa.LargeStringArray, spans: np.ndarray, unit: str) -> pa.LargeStringArray:
    r"""Removes the units that overlap spans; a document is "" if only white space is left.

    "a\n\nb c\n\nd" without the paragraph of its bytes 3 to 6 -> "a\n\nd".

    Args:
      text: large_string [n], the documents.
      spans: int64 [m, 3], sorted: document, first byte, and the byte after the last.
      unit: paragraph or line, as `BOUNDARIES` ends them.
    """
    documents, firsts = np.unique(spans[:, 0], return_index=True)
    parts = np.split(spans[:, 1:], firsts[1:])
    edited = [
        _without(text[document].as_py().encode(), part, unit)
        for document, part in zip(documents.tolist(), parts, strict=False)
    ]
    is_edited = np.zeros(len(text), bool)
    is_edited[documents] = True
    return pc.replace_with_mask(text, pa.array(is_edited), pa.array(edited, pa.large_string()))


def _without(data: bytes, spans: np.ndarray, unit: str) -> str:
    """The text of a document without the units that overlap spans."""
    begins, stops, ends = map(np.array, zip(*_units(data, unit), strict=True))
    touched = np.zeros(len(begins) + 1, np.int64)
    np.add.at(touched, np.searchsorted(ends, spans[:, 0], side="right"), 1)
    np.add.at(touched, np.searchsorted(begins, spans[:, 1]), -1)
    kept = np.flatnonzero(np.cumsum(touched)[:-1] == 0).tolist()
    pieces = [data[begins[unit] : ends[unit]] for unit in kept]
    if kept and kept[-1] < len(begins) - 1:  # cuts the separator at the end
        pieces[-1] = data[begins[kept[-1]] : stops[kept[-1]]]
    left = b"".join(pieces).decode()
    return left if left.strip() else ""


def _units(data: bytes, unit: str) -> Iterator[tuple[int, int, int]]:
    """Begin and stop of each unit, and begin of the next one."""
    begin = 0
    for end in BOUNDARIES[unit].finditer(data):
        yield begin, end.start(), end.end()
        begin = end.end()
    if begin < len(data):
        yield begin, len(data), len(data)
