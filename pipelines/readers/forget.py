"""Skips the documents that --forget lists by their digests.

A digest names a document as it is read, in its normal form, or as a rule or the corpus holds it.
Workers read the list from the staging folder. Only digests of forgotten documents are recorded.
"""

import functools
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro

from textmill.pipelines.readers.documents import Documents
from textmill.schemas.files import store
from textmill.schemas.format.digests import Digests, read_digests
from textmill.schemas.format.manifest import FORGOTTEN

REASON = "forgotten"  # in counts of dropped documents
_STAGED = "forget.digests"

ForgetFlag = Annotated[
    str,
    tyro.conf.arg(
        help="Skip the documents whose digests this file lists, one of 32 hexadecimal digits "
        "in each line; # begins a comment. forgotten.txt of the output lists which were found.",
        metavar="FILE",
    ),
]


def forget_parameters(path: str) -> dict[str, Any]:
    """The part of --forget in the fingerprint; {} without it.

    Raises:
      UsageError: see `read_digests`.
    """
    return {"forget_sha256": read_digests(path, "forget").sha256} if path else {}


def stage_digests(path: str, staging: str) -> str:
    """Writes the list for workers into the staging folder; returns its path, "" without a list."""
    if not path:
        return ""
    staged = os.path.join(staging, _STAGED)
    store.write_file(staged, read_digests(path, "forget").content)
    return staged


@functools.lru_cache(2)
def load_digests(staged: str) -> Digests | None:
    """The list that `stage_digests` wrote, read once a process; None for ""."""
    return Digests(store.read(staged)) if staged else None


@dataclass(frozen=True)
class Found:
    """Documents to forget among some documents.

    Attributes:
      numbers: their numbers.
      digests: digest, in hexadecimal, to the number of documents that it names.
    """

    numbers: frozenset[int] = frozenset()
    digests: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: "Found") -> "Found":
        """Joins what two digests of the same documents found."""
        names = {name: max(self.digests.get(name, 0), n) for name, n in other.digests.items()}
        return Found(self.numbers | other.numbers, {**self.digests, **names})


def find_documents(
    listed: Digests, digests: np.ndarray, numbers: np.ndarray | None = None
) -> Found:
    """Finds documents by their digests, uint8 [n, 16]; `numbers` are theirs if not 0 to n - 1."""
    rows = listed.find(digests)
    names = Counter(digests[row].tobytes().hex() for row in rows.tolist())
    own = rows if numbers is None else numbers[rows]
    return Found(frozenset(own.tolist()), dict(names))


def without(documents: Documents, numbers: frozenset[int]) -> Documents:
    """The documents without those with these numbers, as if they had not been read."""
    left = np.delete(np.arange(len(documents.text)), sorted(numbers))
    pages = tuple(page for page in documents.pages if page.document not in numbers)
    columns = documents.columns.take(pa.array(left))
    return replace(documents, pages=pages).keep(left, columns)


def forgotten_file(staged: str, found: Mapping[str, int]) -> dict[str, bytes]:
    """Name and content of the list of all digests and of how many documents had each.

    It is a list of digests again. {} without --forget.
    """
    listed = load_digests(staged)
    if listed is None:
        return {}
    counts = ((name, found.get(name, 0)) for name in listed.names)
    lines = (f"{name}  # {count or 'not found'}\n" for name, count in counts)
    return {FORGOTTEN: "".join(lines).encode()}
