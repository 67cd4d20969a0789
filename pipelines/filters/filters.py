"""Which documents are kept, and in what normal form.

What is dropped here was good input that is not wanted; `Documents.rejects` are the refused ones.
Normalization comes first, before the hash, so that documents which it makes equal are duplicates.
"""

import functools
import hashlib
import importlib
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from pipelines.readers.documents import Documents, Role
from schemas.drops import total_counts
from schemas.errors import DataError, UsageError

Normalize = Literal["none", "nfc", "nfkc"]
_LONGEST_REASON = 60
_MOST_REASONS = 100  # of a user's function in one block: more are no reasons but remarks


@dataclass(frozen=True)
class Filtered:
    """What filters made of documents.

    Attributes:
      documents: those that are kept, normalized.
      dropped: reason to number of the others, with those that were refused when they were read;
        reasons of the user's function begin with `filter:`.
      lines: the dropped documents as JSON Lines with their reasons, if they are to be kept.
    """

    documents: Documents
    dropped: dict[str, int]
    lines: bytes = b""

    @property
    def read(self) -> int:
        """Documents found, kept or not."""
        return len(self.documents.text) + sum(self.dropped.values())


@dataclass(frozen=True)
class Filters:
    """Flags that choose documents. What counts is all text of one, its roles together."""

    normalize: Normalize = "none"
    """Unicode normal form that texts are brought into, before anything else."""
    min_chars: int = 0
    """Drop documents of fewer characters."""
    max_chars: int = 0
    """Drop documents of more characters; 0 for any number."""
    min_words: int = 0
    """Drop documents of fewer words, as white space separates them."""
    max_repetition: float = 1.0
    """Drop documents of which a larger share is repeated lines or their most frequent pair of
    words; Gopher's limit is 0.2."""
    filter: str = ""
    """package.module:function, called with each document that the others keep, a dict of its roles
    ({"text": "..."}); returns why it is dropped, or None to keep it."""
    keep_rejects: bool = False
    """Keep the text of dropped documents, in rejects/filtered.jsonl."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        if self.normalize not in get_args(Normalize):
            raise UsageError(
                f"--normalize={self.normalize}: one of {', '.join(get_args(Normalize))}"
            )
        for name in ("min_chars", "max_chars", "min_words"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name}={getattr(self, name)}: at least 0")
        if 0 < self.max_chars < self.min_chars:
            raise UsageError(
                f"--max_chars={self.max_chars} is below --min_chars={self.min_chars}: no document "
                "could be kept"
            )
        if not 0 <= self.max_repetition <= 1:
            raise UsageError(
                f"--max_repetition={self.max_repetition}: a share from 0 to 1; Gopher's limit is "
                "0.2, and 1 keeps all"
            )
        if self.filter and len([part for part in self.filter.split(":") if part]) != 2:
            raise UsageError(
                f"--filter={self.filter}: not package.module:function, as in my_filters:is_spam"
            )

    def parameters(self) -> dict[str, Any]:
        """What decides, by flag name, for the fingerprint of what is made.

        With `filter_sha256`, of the file that holds the function: an edited filter is another one.
        With `unicode`, whose version decides the normal form of characters new to it.

        Raises:
          UsageError: the function cannot be imported.
        """
        values = asdict(self)
        del values["keep_rejects"]
        if self.filter:
            values["filter_sha256"] = _source_sha256(self.filter)
        if self.normalize != "none":
            values["unicode"] = unicodedata.unidata_version
        return values

    def apply(self, documents: Documents, roles: tuple[Role, ...]) -> Filtered:
        """Normalizes documents and drops what is not wanted; each for the first reason found.

        Raises:
          UsageError: the function cannot be imported here.
          DataError: the function failed or returned no reason; names it and the document.
        """
        if self == Filters():
            return Filtered(documents, documents.dropped)
        # Imports numba and pyarrow.compute: --help needs the flags alone.
        from pipelines.filters.normalization import normalize_texts
        from pipelines.filters.rules import find_dropped

        texts = [role.name for role in roles if role.values.is_text]
        columns = documents.columns
        if self.normalize != "none":
            columns = normalize_texts(columns, texts, self.normalize)
        reasons = find_dropped(columns, texts, self)
        if self.filter:
            left = np.delete(np.arange(len(columns)), list(reasons))
            asked = columns.take(pa.array(left))
            reasons |= _ask_function(self.filter, asked, left, documents.path)
        reasons = dict(sorted(reasons.items()))
        if not reasons:
            return Filtered(replace(documents, columns=columns), documents.dropped)
        kept = np.ones(len(columns), bool)
        kept[list(reasons)] = False
        dropped = total_counts(documents.dropped, Counter(reasons.values()))
        return Filtered(
            replace(documents, columns=columns.filter(pa.array(kept))),
            dropped,
            _lines(columns, reasons) if self.keep_rejects else b"",
        )


def _ask_function(
    name: str, columns: pa.RecordBatch, places: np.ndarray, path: str
) -> dict[int, str]:
    """Asks the user's function about every document."""
    function = load_filter(name)
    reasons: dict[int, str] = {}
    for place, document in zip(places.tolist(), columns.to_pylist(), strict=True):
        try:
            reason = function(dict(document))
        except (Exception, SystemExit) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise DataError(
                f"--filter={name} failed with {said} on a document of {path}, {_brief(document)}: "
                "mend the function; it is given a dict of the document's roles"
            ) from error
        if not reason and not isinstance(reason, bool):
            continue
        if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
            raise DataError(
                f"--filter={name} returned {reason!r:.100} for a document of {path}, "
                f"{_brief(document)}: it must return a reason of at most {_LONGEST_REASON} "
                "characters to drop the document, or None to keep it"
            )
        reasons[place] = f"filter:{reason}"
    if len(set(reasons.values())) > _MOST_REASONS:
        raise DataError(
            f"--filter={name} gave {len(set(reasons.values())):,} different reasons for "
            f"{len(places):,} documents, such as {min(reasons.values())!r}: reasons are counted, "
            f"so let there be at most {_MOST_REASONS}"
        )
    return reasons


@functools.cache
def load_filter(name: str) -> Callable[[dict[str, Any]], object]:
    """Imports `package.module:function`.

    Raises:
      UsageError: it cannot be imported, or is no function; says why.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"--filter={name}: {module_name} cannot be imported ({said}); it must lie where you "
            "run the command, or on PYTHONPATH, on every worker"
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        functions = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise UsageError(
            f"--filter={name}: {module_name} has no function {attribute!r}; it has "
            f"{', '.join(sorted(functions)[:9]) or 'none'}"
        )
    return function


def _source_sha256(name: str) -> str:
    """Of the file that holds the function; "" of a module without one."""
    load_filter(name)
    path = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    if not path:
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _brief(document: dict[str, Any]) -> str:
    """A document's id, if it has one, and how it begins."""
    named = f"with id {document['id']!r}, " if document.get("id") else ""
    begins = next(value for key, value in document.items() if key != "id")
    return f"{named}which begins {str(begins)[:60]!r}"


def _lines(columns: pa.RecordBatch, reasons: dict[int, str]) -> bytes:
    """`{"reason": ..., "text": ...}` a dropped document: readable, and an input again."""
    dropped = columns.take(pa.array(list(reasons), pa.int64())).to_pylist()
    return "".join(
        json.dumps({"reason": reason, **document}, ensure_ascii=False) + "\n"
        for reason, document in zip(reasons.values(), dropped, strict=True)
    ).encode()
