"""The user's own filter (`--filter=package.module:function`): loads, calls and checks it.

The function receives a document as a dict of its roles ({"text": "..."}), and returns the reason to
drop the document, or None to keep it. Reasons are counted as `filter:REASON`.
"""

import functools
import hashlib
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro

from textmill.pipelines.readers.documents import Documents
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.drops import total_counts

_LONGEST_REASON = 60
_MOST_REASONS = 100  # of one block: a function with more returns remarks, not reasons

FilterFlag = Annotated[
    str,
    tyro.conf.arg(
        help="Your own rule, as package.module:function. Textmill calls it with each document "
        '({"text": "..."}) after all other rules; a string that it returns is the reason to drop '
        "the document.",
        metavar="MODULE:FUNCTION",
    ),
]


def check_name(name: str) -> None:
    """Refuses a value of --filter that does not name a function of a module; "" passes.

    Raises:
      UsageError: shows the right form.
    """
    if name and (not re.fullmatch(r"[\w.]+:\w+", name) or ".py:" in name):
        raise UsageError(
            f"{flag('filter', name)}: not package.module:function, such as my_filters:is_spam; "
            "give the module's name as Python imports it, without folders and .py"
        )


@functools.cache
def load_filter(name: str) -> Callable[[dict[str, Any]], object]:
    """Imports `package.module:function`, once per process.

    Raises:
      UsageError: the import failed, or the name is not a function; gives the cause.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{flag('filter', name)}: {module_name} cannot be imported ({_in_a_line(error)}); "
            "modules must be where you run the command, or on PYTHONPATH, on every worker"
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        functions = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise UsageError(
            f"{flag('filter', name)}: {module_name} has no function {attribute!r}; it has "
            f"{', '.join(sorted(functions)[:9]) or 'none'}"
        )
    return function


def filter_parameters(name: str) -> dict[str, str]:
    """The filter's part of the fingerprint: the name, and `filter_sha256` of the function's file.

    Empty without --filter.

    Raises:
      UsageError: see `load_filter`.
    """
    if not name:
        return {}
    load_filter(name)
    path = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    if not path:  # a built-in module
        return {"filter": name, "filter_sha256": ""}
    with open(path, "rb") as file:
        return {"filter": name, "filter_sha256": hashlib.sha256(file.read()).hexdigest()}


@dataclass(frozen=True)
class Chosen:
    """The documents that a filter keeps.

    Attributes:
      documents: those that are kept.
      dropped: reason to number of the others, including those rejected when they were read.
    """

    documents: Documents
    dropped: dict[str, int]

    @property
    def read(self) -> int:
        """Number of documents, kept or not."""
        return len(self.documents.text) + sum(self.dropped.values())


def choose_documents(name: str, documents: Documents) -> Chosen:
    """Drops the documents for which the user's function returns a reason; "" drops none.

    Raises:
      UsageError, DataError: see `ask_filter`.
    """
    reasons = ask_filter(name, documents) if name else {}
    if not reasons:
        return Chosen(documents, documents.dropped)
    left = np.delete(np.arange(len(documents.text)), list(reasons))
    kept = documents.keep(left, documents.columns.take(pa.array(left)))
    return Chosen(kept, total_counts(documents.dropped, Counter(reasons.values())))


def ask_filter(name: str, documents: Documents) -> dict[int, str]:
    """Calls the user's function with every document.

    Returns:
      position to `filter:REASON` of the documents to drop, ascending.

    Raises:
      UsageError: see `load_filter`.
      DataError: the function failed, or what it returned is not a reason; names the function and
        the document.
    """
    function = load_filter(name)
    reasons: dict[int, str] = {}
    for place, document in enumerate(documents.columns.to_pylist()):
        try:
            reason = function(dict(document))
        except (Exception, SystemExit) as error:
            raise DataError(
                f"{flag('filter', name)} failed with {_in_a_line(error)} on a document of "
                f"{_show(documents, place, document)}: fix the function; it receives a dict of the "
                "document's roles"
            ) from error
        if not reason and not isinstance(reason, bool):
            continue
        if not isinstance(reason, str) or not reason.isprintable() or len(reason) > _LONGEST_REASON:
            raise DataError(
                f"{flag('filter', name)} returned {reason!r:.100} for a document of "
                f"{_show(documents, place, document)}: it must return a reason of at most "
                f"{_LONGEST_REASON} printable characters to drop the document, or None to keep it"
            )
        reasons[place] = f"filter:{reason}"
    if len(set(reasons.values())) > _MOST_REASONS:
        raise DataError(
            f"{flag('filter', name)} returned {len(set(reasons.values())):,} different reasons for "
            f"{len(documents.text):,} documents, such as {min(reasons.values())!r}: reasons are "
            f"counted, so return at most {_MOST_REASONS} different ones"
        )
    return reasons


def _in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _show(documents: Documents, place: int, document: dict[str, Any]) -> str:
    """Where a document is, its id if it has one, and its first characters."""
    named = f"with id {document['id']!r}, " if document.get("id") else ""
    begins = next(value for key, value in document.items() if key != "id")
    return f"{documents.reject(place, '', '').place}, {named}which begins {str(begins)[:60]!r}"
