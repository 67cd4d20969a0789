"""What documents have in common with evaluation texts -> rejects/contamination.jsonl. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

LISTED = "rejects/contamination.jsonl"
_MOST = 10_000  # lines; they come with reports


@dataclass(frozen=True, order=True)
class Hit:
    """A document and a text that it holds.

    Attributes:
      document: the xxh3_128 of its text, as it was before anything was cut out of it.
      target: the file of the text.
      field: of the record.
      record: number of the record among those of the file that have text in the field.
      path: a file that holds the document; of several the first by name.
      found: n-grams of the text that the document holds.
      of: n-grams of the text that count.
      texts: that the document holds in all; those of which most is found are listed.
      overlap: the longest run of common words, as the document has it.
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
    """Those to list: each document and text once, and the smallest if they are too many."""
    first: dict[tuple[str, str, str, int], Hit] = {}
    for hit in sorted(hits):
        first.setdefault((hit.document, hit.target, hit.field, hit.record), hit)
        if len(first) == _MOST:
            break
    return tuple(first.values())


def hits_file(hits: Iterable[Hit]) -> dict[str, bytes]:
    """The file's name and content; nothing if nothing was found."""
    lines = [json.dumps(asdict(hit), ensure_ascii=False) + "\n" for hit in add_hits(hits)]
    return {LISTED: "".join(lines).encode()} if lines else {}
