"""How often each token occurs in a set: token_counts.npy, int64 [vocabulary]. Pure.

An id's count is at its place, as a trainer wants it (sampled losses, class weights, vocabulary
cuts) and `np.load` gives it without parsing: 250,000 ids are 2 MB, where JSON would be as large and
take a hundred times as long to read.
"""

import io
from collections.abc import Iterable

import numpy as np

from schemas.errors import DataError
from schemas.sidecar import SetInfo

TOKEN_COUNTS = "token_counts.npy"
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


def token_counts_file(counts: np.ndarray) -> dict[str, bytes]:
    """The file's name and content, which is the same on any machine."""
    return {TOKEN_COUNTS: counts_bytes(counts)}


def counts_bytes(counts: np.ndarray) -> bytes:
    """Counts as a .npy file."""
    file = io.BytesIO()
    np.save(file, counts.astype("<i8"), allow_pickle=False)
    return file.getvalue()


def read_counts(path: str) -> np.ndarray:
    """The inverse, from a file.

    Raises:
      DataError: it is not as it was written.
    """
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}; copy the set again or build it anew") from error


def read_token_counts(info: SetInfo) -> np.ndarray | None:
    """The counts of a finished set; None if it has none.

    Raises:
      DataError: the file is not as it was written.
    """
    if TOKEN_COUNTS not in {file.path for file in info.manifest.files}:
        return None
    path = info.locate(TOKEN_COUNTS)
    counts = read_counts(path)
    size = info.schema.vocab_size
    if counts.shape != (size,) or counts.dtype != np.int64:
        raise DataError(
            f"{path} holds {counts.dtype} {list(counts.shape)}, where int64 [{size}] is due: copy "
            "the set again or build it anew"
        )
    return counts


def count_problems(info: SetInfo) -> list[str]:
    """Where the counts cannot be those of the set's rows: each a sentence that names the file.

    Masked copies of a row are counted once: their sum times `mask_copies` is the rows' tokens.

    Raises:
      DataError: the file is not as it was written.
    """
    counts = read_token_counts(info)
    if counts is None:
        return []
    below = np.flatnonzero(counts < 0)
    if len(below):
        return [f"{TOKEN_COUNTS}: id {below[0]} occurs {counts[below[0]]:,} times"]
    counted, copies = int(counts.sum()), info.schema.mask_copies
    in_rows = info.stats.total().tokens_in_rows
    if counted * copies != in_rows:
        once = f", {in_rows // copies:,} in each of {copies} masked copies" if copies > 1 else ""
        return [f"{TOKEN_COUNTS} counts {counted:,} tokens, where the rows have {in_rows:,}{once}"]
    return []
