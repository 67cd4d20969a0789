"""Lists overlaps of documents with evaluation texts: rejects/contamination.jsonl. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

LISTED = "rejects/contamination.jsonl"
_MOST = 10_000  # lines; reports carry them


@dataclass(frozen=True, order=True)
class Hit:
    """A document and an evaluation text that it contains.

    Attributes:
      document: xxh3_128 of the document's text before anything was cut.
      target: path of the file with the evaluation text.
      field: field of the record.
      record: number of the record among those of the file with text in the field.
      path: file of the document; the first by name if several files contain it.
      found: number of n-grams of the text in the document.
      of: number of n-grams of the text that count.
      texts: number of all evaluation texts in the document; the best matches are listed.
      overlap: longest run of common words, as it occurs in the document.
    """

    document: str
    target: str
    field: str
    record: int
    path: str
    found: int
    of: int
    texts: int
    overlap: str


def add_hits(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits to list: each document and text once, and at most _MOST, the smallest."""
    first: dict[tuple[str, str, str, int], Hit] = {}
    for hit in sorted(hits):
        first.setdefault((hit.document, hit.target, hit.field, hit.record), hit)
        if len(first) == _MOST:
            break
    return tuple(first.values())


def hits_file(hits: Iterable[Hit]) -> dict[str, bytes]:
    """Name and content of the file; {} without hits."""
    lines = [json.dumps(asdict(hit), ensure_ascii=False) + "\n" for hit in add_hits(hits)]
    return {LISTED: "".join(lines).encode()} if lines else {}
