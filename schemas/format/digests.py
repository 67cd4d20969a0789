"""Lists of documents' digests, such as those to forget: DIGESTS.txt.

A digest is the xxh3_128 hash of a document, 32 hexadecimal digits: column `id` of a corpus, and
what `inspect_shards --row` and `trace` print. A list has one in each line; a `#` begins a comment,
and blank lines are skipped. Python 3.8 syntax.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store

DIGEST_BYTES = 16
_DIGEST = re.compile(r"[0-9A-Fa-f]{32}")
_BITS, _MOST_BITS = 4, 24  # of a digest's begin, more than those that number the set; at most
_SHOWN = 60  # characters of a line in a message


class Digests:
    """A set of digests."""

    def __init__(self, content: bytes):
        """Takes digests of 16 bytes, in any order."""
        self._sorted = np.unique(np.frombuffer(content, f"S{DIGEST_BYTES}"))
        # Most other digests begin with bits that none in the set begins with.
        self._shift = np.uint64(64 - min(_MOST_BITS, len(self).bit_length() + _BITS))
        self._is_begin = np.zeros(1 << (64 - int(self._shift)), bool)
        self._is_begin[self._begins(self.digests)] = True

    def __len__(self) -> int:
        """The number of different digests."""
        return len(self._sorted)

    @property
    def names(self) -> list[str]:
        """The digests in hexadecimal, ascending."""
        names = self.content.hex()
        return [names[start : start + 32] for start in range(0, len(names), 32)]

    @property
    def digests(self) -> np.ndarray:
        """The digests, ascending: uint8 [n, 16]."""
        return self._sorted.view(np.uint8).reshape(-1, DIGEST_BYTES)

    @property
    def content(self) -> bytes:
        """The digests, ascending, 16 bytes each."""
        return self._sorted.tobytes()

    @property
    def sha256(self) -> str:
        """A hash of the set."""
        return hashlib.sha256(self.content).hexdigest()

    def find(self, digests: np.ndarray) -> np.ndarray:
        """The rows of `digests`, uint8 [n, 16], that are in the set: int64, ascending."""
        some = np.flatnonzero(self._is_begin[self._begins(digests)])
        wanted = np.ascontiguousarray(digests[some]).view(f"S{DIGEST_BYTES}").reshape(-1)
        place = np.minimum(np.searchsorted(self._sorted, wanted), len(self) - 1)
        return some[self._sorted[place] == wanted]

    def _begins(self, digests: np.ndarray) -> np.ndarray:
        """The first bits of each digest, as a number."""
        heads = np.ascontiguousarray(digests[:, :8]).view(">u8").reshape(-1)
        return heads.astype(np.uint64) >> self._shift


def parse_digest(text: str) -> bytes:
    """A digest from its hexadecimal digits.

    Raises:
      ValueError: it has not 32 of them.
    """
    if not _DIGEST.fullmatch(text):
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise ValueError(f"{shown!r} is not a digest of 32 hexadecimal digits")
    return bytes.fromhex(text)


def read_digests(path: str, name: str) -> Digests:
    """Reads a list of digests.

    Args:
      path: a text file, on a disk or in an object store.
      name: the flag that names it, for messages.

    Raises:
      UsageError: the file cannot be read, has a line that is not a digest, or has no digest.
    """
    try:
        lines = store.read(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{flag(name, path)} cannot be read ({error}): give a text file of digests"
        ) from error
    digests = []
    for number, line in enumerate(lines, 1):
        digest = line.partition("#")[0].strip()
        if not digest:
            continue
        try:
            digests.append(parse_digest(digest))
        except ValueError as error:
            raise UsageError(
                f"{flag(name, path)}, line {number}: {error}: correct or remove the line"
            ) from error
    if not digests:
        raise UsageError(f"{flag(name, path)} has no digest: give one in each line")
    return Digests(b"".join(digests))
