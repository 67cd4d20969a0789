"""Counts kept documents by the values of fields that many corpora have. Pure.

Values are untrusted, so that each field has a fixed set of keys, or years.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.corpus_metadata import FILLED
from textmill.schemas.format.drops import Observed

_YEAR = re.compile(r"([12][0-9]{3})-[0-9]{2}")
_CREATIVE_COMMONS = re.compile(
    r"creativecommons\.org/(?:licenses/(by(?:-nc)?(?:-sa|-nd)?)/([1-4]\.[0-9])"
    r"|publicdomain/(zero|mark)/(1\.0))(?![0-9])",
    re.IGNORECASE,
)
_DIRECTIVES = ("noai", "noimageai", "noindex", "noarchive", "nofollow", "nosnippet", "none")


def count_fields(columns: pa.RecordBatch, names: Iterable[str]) -> Observed:
    """Number of documents with each field, and by section and key of fields that have sections.

    {"documents_with_field": {"date": 3, "license": 2},
     "documents_by_year": {"2024": 3}, "documents_by_license": {"cc-by-4.0": 2, "other": 1}}

    Args:
      columns: of the documents.
      names: those of the kept fields.
    """
    observed: Observed = {}
    filled: dict[str, int] = {}
    for name in names:
        filled[name] = int(np.count_nonzero(pc.binary_length(columns[name]).to_numpy()))
        if name in _KEYS:
            section, shortest, keys_of = _KEYS[name]
            values = columns[name]
            values = pc.utf8_slice_codeunits(values, 0, shortest) if shortest else values
            counts: Counter[str] = Counter()
            for each in pc.value_counts(values).to_pylist():
                counts.update(dict.fromkeys(keys_of(each["values"]), each["counts"]))
            if counts:
                observed[f"documents_by_{section}"] = dict(counts)
    return {FILLED: filled, **observed} if filled else observed


def _years(value: str) -> set[str]:
    match = _YEAR.match(value)
    return {match[1]} if match else set()


def licenses(value: str) -> set[str]:
    """Names of the licences in a field: cc-by-sa-4.0, cc-zero-1.0, or other."""
    found = set()
    for url in value.split():
        match = _CREATIVE_COMMONS.search(url)
        found.add(f"cc-{match[1] or match[3]}-{match[2] or match[4]}".lower() if match else "other")
    return found


def _directives(value: str) -> set[str]:
    words = {part.rpartition(":")[2].strip() for part in value.lower().split(",")}
    return words & {*_DIRECTIVES}


def _reservations(value: str) -> set[str]:
    return {value} & {"0", "1"}


# Field -> section, characters that decide (0 for all), and the keys of a value.
_KEYS: dict[str, tuple[str, int, Callable[[str], set[str]]]] = {
    "date": ("year", len("2024-05"), _years),
    "license": ("license", 0, licenses),
    "robots": ("robots", 0, _directives),
    "x_robots_tag": ("x_robots_tag", 0, _directives),
    "tdm_reservation": ("tdm_reservation", 0, _reservations),
}
SECTIONS = tuple(f"documents_by_{section}" for section, _, _ in _KEYS.values())
