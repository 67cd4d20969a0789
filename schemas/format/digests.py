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
from textmill.schemas.format.row_documents import DIGEST_BYTES

_DIGEST = re.compile(r"[0-9A-Fa-f]{32}")
_SHOWN = 60  # characters of a line in a message


class Digests:
    """A set of digests.

    Attributes:
      names: the digests in hexadecimal, ascending, each once.
    """

    def __init__(self, content: bytes):
        """Takes digests of 16 bytes, in any order."""
        self._sorted = np.unique(np.frombuffer(content, f"S{DIGEST_BYTES}"))

    def __len__(self) -> int:
        """The number of different digests."""
        return len(self._sorted)

    @property
    def names(self) -> list[str]:
        """The digests in hexadecimal, ascending."""
        content = self.content
        starts = range(0, len(content), DIGEST_BYTES)
        return [content[start : start + DIGEST_BYTES].hex() for start in starts]

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
        if not len(self) or not len(digests):
            return np.zeros(0, np.int64)
        wanted = np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").reshape(-1)
        place = np.minimum(np.searchsorted(self._sorted, wanted), len(self) - 1)
        return np.flatnonzero(self._sorted[place] == wanted)


def read_digests(path: str, name: str) -> Digests:
    """Reads a list of digests.

    Args:
      path: a text file, on a disk or in an object store.
      name: the flag that names it, for messages.

    Raises:
      UsageError: the file cannot be read, has a line that is no digest, or has no digest.
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
        if not _DIGEST.fullmatch(digest):
            shown = digest if len(digest) <= _SHOWN else digest[:_SHOWN] + "…"
            raise UsageError(
                f"{flag(name, path)}, line {number}: {shown!r} is no digest of 32 hexadecimal "
                "digits: correct or remove the line"
            )
        digests.append(digest)
    if not digests:
        raise UsageError(f"{flag(name, path)} has no digest: give one in each line")
    return Digests(bytes.fromhex("".join(digests)))
