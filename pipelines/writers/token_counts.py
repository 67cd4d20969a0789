"""How often each token occurs in a set: token_counts.npy, int64 [vocabulary].

An id's count is at its place, as a trainer wants it (sampled losses, class weights, vocabulary
cuts) and `np.load` gives it without parsing: 250,000 ids are 2 MB, where JSON would be as large and
take a hundred times as long to read.
"""

import io
import os
import re
from collections.abc import Iterable

import numpy as np

from schemas.agreement import TOKEN_COUNTS as TOKEN_COUNTS
from schemas.errors import DataError
from schemas.manifest import check_unchanged
from schemas.metadata import SetInfo

_HEAD = 128  # bytes of a .npy file before its values
_OF_COUNTS = re.compile(
    rb"\x93NUMPY\x01\0v\0\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,10}),\), \} *\n"
)
_CHUNK = 1 << 20  # ids; bincount makes int64 of them, 8 MB. 9 ms for 7 million, in one go 16
NO_COUNTS = np.zeros(0, np.int64)


def count_tokens(streams: Iterable[np.ndarray], vocab_size: int) -> np.ndarray:
    """int64 [vocab_size]: occurrences of each id in streams of unmasked ids without padding."""
    counts = np.zeros(vocab_size, np.int64)
    for ids in streams:
        for start in range(0, len(ids), _CHUNK):
            counts += np.bincount(ids[start : start + _CHUNK], minlength=vocab_size)
    return counts


def add_token_counts(counts: Iterable[np.ndarray]) -> np.ndarray:
    """Their sum; any of them may be empty, which is no counts."""
    total = NO_COUNTS
    for some in counts:
        if len(some):
            total = total + some if len(total) else some
    return total


def counts_bytes(counts: np.ndarray) -> bytes:
    """Encodes counts as a .npy file, which is the same on any machine."""
    file = io.BytesIO()
    np.save(file, counts.astype("<i8"), allow_pickle=False)
    return file.getvalue()


def read_token_counts(info: SetInfo) -> np.ndarray:
    """The counts of a finished set.

    Raises:
      DataError: the file is not as it was written.
    """
    [listed] = (file for file in info.manifest.files if file.path == TOKEN_COUNTS)
    path, size = info.locate(TOKEN_COUNTS), info.schema.vocab_size
    with open(path, "rb") as file:
        head, rest = file.read(_HEAD), os.fstat(file.fileno()).st_size - _HEAD
    # Only so does numpy write such counts; it would believe a head that asks for all memory.
    found = _OF_COUNTS.fullmatch(head)
    if found is None or int(found[1]) != size or rest != 8 * size:
        raise DataError(
            f"{path} does not hold int64 [{size}], a count for each id: copy the set again or "
            "build it anew"
        )
    check_unchanged(path, listed)
    return np.fromfile(path, "<i8", offset=_HEAD).astype(np.int64, copy=False)


def count_problems(info: SetInfo) -> list[str]:
    """Where the counts cannot be those of the set's rows: each a sentence that names the file.

    Masked copies of a row are counted once: their sum times `mask_copies` is the rows' tokens.

    Raises:
      DataError: the file is not as it was written.
    """
    counts = read_token_counts(info)
    below = np.flatnonzero(counts < 0)
    if len(below):
        return [f"{TOKEN_COUNTS}: id {below[0]} occurs {counts[below[0]]:,} times"]
    counted, copies = int(counts.sum()), info.schema.mask_copies
    in_rows = info.stats.total().tokens_in_rows
    if counted * copies != in_rows:
        once = f", {in_rows // copies:,} in each of {copies} masked copies" if copies > 1 else ""
        return [f"{TOKEN_COUNTS} counts {counted:,} tokens, where the rows have {in_rows:,}{once}"]
    return []
