"""How often each token occurs in a dataset: token_counts.npy, int64 [vocabulary].

The array is indexed by id, as trainers need it (sampled losses, class weights, vocabulary cuts),
and `np.load` reads it without parsing: 250,000 ids are 2 MB; JSON would be as large and take a
hundred times as long to read.
"""

import io
import os
import re
from collections.abc import Iterable

import numpy as np

from textmill.pipelines.runtime.compiled import entry
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.agreement import TOKEN_COUNTS as TOKEN_COUNTS
from textmill.schemas.format.manifest import check_unchanged

_HEAD = 128  # bytes of a .npy file before its values
_HEADER = re.compile(
    rb"\x93NUMPY\x01\0v\0\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,10}),\), \} *\n"
)
NO_COUNTS = np.zeros(0, np.int64)


def count_tokens(streams: Iterable[np.ndarray], vocab_size: int) -> np.ndarray:
    """Occurrences of each id in streams of unmasked ids without padding: int64 [vocab_size].

    Raises:
      ValueError: an id is not below `vocab_size`.
    """
    counts = np.zeros((2, vocab_size), np.int64)
    for ids in streams:
        if len(ids) and ids.max() >= vocab_size:
            raise ValueError(f"the id {ids.max()} is not below the vocabulary's {vocab_size}")
        _count(ids, counts)
    return counts.sum(axis=0)


@entry()
def _count(ids, counts):
    # By turns, since adding to a count waits for an addition to it just before.
    for place in range(ids.size):
        counts[np.uint64(place & 1), np.uint64(ids[np.uint64(place)])] += 1


def add_token_counts(counts: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of counts; an empty array stands for none."""
    total = NO_COUNTS
    for some in counts:
        if len(some):
            total = total + some if len(total) else some
    return total


def counts_bytes(counts: np.ndarray) -> bytes:
    """Encodes counts as a .npy file, with the same bytes on any machine."""
    file = io.BytesIO()
    np.save(file, counts.astype("<i8"), allow_pickle=False)
    return file.getvalue()


def read_token_counts(info: DatasetInfo) -> np.ndarray:
    """The counts of a finished dataset: int64 [vocabulary].

    Raises:
      DataError: the file is damaged.
    """
    [listed] = (file for file in info.manifest.files if file.path == TOKEN_COUNTS)
    path, size = info.locate(TOKEN_COUNTS), info.schema.vocab_size
    with open(path, "rb") as file:
        head, rest = file.read(_HEAD), os.fstat(file.fileno()).st_size - _HEAD
    # Only the header that numpy writes is accepted: np.load would allocate whatever one claims.
    match = _HEADER.fullmatch(head)
    if match is None or int(match[1]) != size or rest != 8 * size:
        raise DataError(
            f"{path} does not hold int64 [{size}], a count for each id: copy or build the dataset "
            "again"
        )
    check_unchanged(path, listed)
    return np.fromfile(path, "<i8", offset=_HEAD).astype(np.int64, copy=False)


def count_problems(info: DatasetInfo) -> list[str]:
    """Messages about counts that do not match the dataset's rows, each naming the file.

    Masked copies of a row are counted once.

    Raises:
      DataError: the file is damaged.
    """
    counts = read_token_counts(info)
    below = np.flatnonzero(counts < 0)
    if len(below):
        return [f"{TOKEN_COUNTS}: id {below[0]} occurs {counts[below[0]]:,} times"]
    counted, splits = int(counts.sum()), info.stats.splits()
    in_rows = sum(n.tokens_in_rows // info.schema.copies_of(name) for name, n in splits.items())
    if counted != in_rows:
        once = ", without masked copies" if info.schema.mask_copies > 1 else ""
        return [f"{TOKEN_COUNTS} counts {counted:,} tokens, but the rows have {in_rows:,}{once}"]
    return []
