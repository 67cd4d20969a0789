"""Dropped documents: reasons, counts, sizes and samples.

Counts are `dropped: {reason: number}` everywhere, and documents read = kept + all dropped. A reason
that is not in DROPS is that of a reader or a task, which rejected a document (not_utf8), or of a
rule, GROUP:RULE (`gopher:min_words`, or `filter:spam` of the user's function). Other counts of
filters are `observed`.

A corpus has a funnel, with sizes by reason. A document is *given* if it could be read; rejected
ones are in rejects/. Each given document is kept, or removed for one reason:

    text_bytes given = text_bytes of the kept + of all removed + what edits took from the kept
    words given = words of the kept + of all removed

Samples are the documents with the smallest hashes, so they do not depend on the run. Python 3.8
syntax.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, Union

from textmill.schemas.errors import DataError
from textmill.schemas.typed_json import quote

FILTERED, REJECTED = "filtered", "rejected"
Observed = Dict[str, Dict[str, int]]  # section to key to number: {"language": {"nb": 3}}
MOST = 1 << 53  # counts are below it: numbers of other languages are exact up to here
SAMPLES = 20  # the most samples of a reason
SAMPLED_REASONS = 100  # the most reasons with samples; a user's function may return any number
LONGEST = 300  # characters of an excerpt


@dataclass(frozen=True)
class Drop:
    """A reason why documents are dropped.

    Attributes:
      name: the key in counts and in stats.json: {"held_out": 30}.
      title: the title of its line in summaries; reasons with one title share a line.
      by_shard: whether it is counted by shard, in a separate field of stats.json. Others are
        counted when documents are read, in documents_rejected.
      words: text after the number; "" for the reason's name.
      color: color in the report's flow of documents.
      is_sampled: whether a corpus shows the beginnings of some of its documents.
    """

    name: str
    title: str
    by_shard: bool = False
    words: str = ""
    color: str = "red"
    is_sampled: bool = True


DROPS = {
    drop.name: drop
    for drop in (
        Drop("duplicates", "duplicates", True, "dropped", "amber"),
        Drop("held_out", "held out", True, "also in an evaluation split", "violet"),
        Drop("near_duplicates", "near duplicates", False, "dropped", "amber"),
        Drop("duplicate_paragraphs", FILTERED),
        Drop("min_chars", FILTERED),
        Drop("max_chars", FILTERED),
        Drop("min_words", FILTERED),
        Drop("max_repetition", FILTERED),
        Drop("contaminated", FILTERED),
        Drop("forgotten", "forgotten", words="as requested", is_sampled=False),
        Drop("older_duplicates", "duplicates", words="of older corpora", color="amber"),
        Drop("not_best", FILTERED),
    )
}
BY_SHARD = tuple(drop for drop in DROPS.values() if drop.by_shard)


def mark_of(reason: str) -> int:
    """The number of a reason of DROPS, from 1 on."""
    return list(DROPS).index(reason) + 1


def drop_of(reason: str) -> Drop:
    """The entry of a reason in DROPS, or a new one for another reason."""
    title = FILTERED if ":" in reason else REJECTED
    return DROPS.get(reason) or Drop(reason, title, is_sampled=not reason.startswith("respect:"))


def spaced(name: str) -> str:
    """Writes a name as words: min_words -> min words, near_duplicates -> near-duplicates."""
    return name.replace("near_dup", "near-dup").replace("_", " ")


def total_counts(*parts: Mapping[str, int]) -> Dict[str, int]:
    """Adds counts by name; omits zeros."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {name: count for name, count in total.items() if count}


def add_observed(total: Observed, more: Mapping[str, Mapping[str, int]]) -> None:
    """Adds counts by section and name, in place; omits zeros."""
    for section, counts in more.items():
        total[section] = total_counts(total.get(section, {}), counts)


def total_observed(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Observed:
    """Adds counts by section and name."""
    total: Observed = {}
    for part in parts:
        add_observed(total, part)
    return total


def check_counts(counts: Mapping[str, int]) -> None:
    """Raises DataError for the first number that is not from 0 to 2**53 - 1."""
    if counts and (min(counts.values()) < 0 or max(counts.values()) >= MOST):
        name = next(name for name, count in counts.items() if not 0 <= count < MOST)
        raise DataError(f"{name} is {quote(counts[name])}: a count is at least 0, and below 2**53")


def describe_dropped(
    dropped: Mapping[str, float],
    always: Sequence[str] = (),
    write: Callable[[Drop, float], str] = lambda drop, number: f"{number:,}",
) -> Dict[str, str]:
    """Describes dropped documents, one line per title.

        {"duplicates": 7, "too_long": 2, "empty": 1} ->
        {"duplicates": "7 dropped", "rejected": "1 empty, 2 too long"}

    Args:
      dropped: reason to number.
      always: titles that have a line even without documents.
      write: formats the number of a reason.
    """
    order = list(dict.fromkeys(drop.title for drop in DROPS.values())) + [REJECTED]
    lines: Dict[str, List[str]] = {title: [] for title in order}
    for reason, number in sorted(dropped.items()):
        drop = drop_of(reason)
        if number:
            lines[drop.title].append(f"{write(drop, number)} {drop.words or spaced(reason)}")
    return {
        title: ", ".join(parts) or "none"
        for title, parts in lines.items()
        if parts or title in always
    }


# The funnel: sizes of dropped documents


def shorten(text: str) -> str:
    """The first LONGEST characters of a text, with an ellipsis if it is longer."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


@dataclass(frozen=True, order=True)
class DroppedDocument:
    """A dropped document.

    Attributes:
      document: its hash, 32 hexadecimal digits.
      excerpt: its beginning.
      detail: details of the reason, such as the nearest document of a near-duplicate:
        "similarity 0.871 to 04d2ddc2..."; "" if there are none.
    """

    document: str
    excerpt: str
    detail: str = ""

    def __post_init__(self) -> None:
        """Rejects an invalid hash, and texts that are too long."""
        if not re.fullmatch("[0-9a-f]{32}", self.document):
            raise DataError(f"document is {quote(self.document)}, not 32 hexadecimal digits")
        for name in ("excerpt", "detail"):
            if len(getattr(self, name)) > LONGEST + 1:
                raise DataError(
                    f"{name} has {len(getattr(self, name)):,} characters, at most {LONGEST + 1}"
                )


@dataclass(frozen=True)
class Removed:
    """The documents that were dropped for one reason.

    Attributes:
      documents: their number.
      text_bytes: their UTF-8 bytes.
      words: their words (separated by white space).
      samples: the documents with the smallest hashes, sorted by hash, each once.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    samples: Tuple[DroppedDocument, ...] = ()

    def __post_init__(self) -> None:
        """Rejects negative counts, and samples that are too many or not sorted."""
        check_counts(sizes(self))
        names = [sample.document for sample in self.samples]
        if len(names) > min(SAMPLES, self.documents) or sorted({*names}) != names:
            raise DataError(
                f"{len(names)} samples of {self.documents:,} documents: must be at most {SAMPLES} "
                "different documents, sorted by hash"
            )


SIZES = ("documents", "text_bytes", "words")


def sizes(counted: "Union[Removed, Funnel]") -> Dict[str, int]:
    """The documents, text_bytes and words of a funnel or of removed documents."""
    return {name: getattr(counted, name) for name in SIZES}


@dataclass(frozen=True)
class Funnel:
    """The given documents, and those removed by reason; funnels add up.

    Attributes:
      documents: number of given documents.
      text_bytes: their UTF-8 bytes, normalized.
      words: their words (separated by white space); for edited documents, those after the edits.
      edited_bytes: bytes that edits removed from kept documents; below 0 if they added some.
      removed: reason to the documents that were dropped for it.
      edited_words: words that edits removed from kept documents.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    edited_bytes: int = 0
    removed: Dict[str, Removed] = field(default_factory=dict)
    edited_words: int = 0

    def __post_init__(self) -> None:
        """Rejects negative counts."""
        check_counts({**sizes(self), "edits": abs(self.edited_bytes) + abs(self.edited_words)})

    @staticmethod
    def sum(parts: "Iterable[Funnel]") -> "Funnel":
        """Adds up funnels; the result does not depend on their order."""
        parts = tuple(parts)
        of_reason: Dict[str, List[Removed]] = {}
        for part in parts:
            for reason, removed in part.removed.items():
                of_reason.setdefault(reason, []).append(removed)
        sampled = {*sorted(of_reason)[:SAMPLED_REASONS]}
        return Funnel(
            removed={
                reason: Removed(
                    samples=_fewest(some) if reason in sampled else (), **_add_sizes(some)
                )
                for reason, some in of_reason.items()
            },
            edited_bytes=sum(part.edited_bytes for part in parts),
            edited_words=sum(part.edited_words for part in parts),
            **_add_sizes(parts),
        )

    def broken_equations(
        self, kept: Mapping[str, int], dropped: Mapping[str, int]
    ) -> Iterator[str]:
        """Yields each equation that does not hold, a sentence.

        Args:
          kept: documents, text_bytes and words of the corpus.
          dropped: reason to number of all dropped documents.
        """
        for name, given in sizes(self).items():
            removed = sum(getattr(one, name) for one in self.removed.values())
            edited = {"text_bytes": self.edited_bytes, "words": self.edited_words}.get(name, 0)
            if given != kept[name] + removed + edited:
                yield (
                    f"funnel: {name} given {given:,} != kept {kept[name]:,} + removed {removed:,}"
                    + f" + edited {edited:,}" * bool(edited)
                )
        counted = {reason: n for reason, n in dropped.items() if drop_of(reason).title != REJECTED}
        own = {reason: removed.documents for reason, removed in self.removed.items()}
        for reason in sorted({**counted, **own}):
            if counted.get(reason) != own.get(reason):
                yield (
                    f"funnel: {reason}: documents removed {own.get(reason, 0):,} != counted "
                    f"{counted.get(reason, 0):,}"
                )


def _add_sizes(parts: Iterable[Union[Removed, Funnel]]) -> Dict[str, int]:
    parts = tuple(parts)
    return {name: sum(getattr(part, name) for part in parts) for name in SIZES}


def _fewest(parts: Iterable[Removed]) -> Tuple[DroppedDocument, ...]:
    """The SAMPLES samples with the smallest hashes, the first of each document."""
    samples: Dict[str, DroppedDocument] = {}
    for sample in sorted(sample for part in parts for sample in part.samples):
        samples.setdefault(sample.document, sample)
        if len(samples) == SAMPLES:
            break
    return tuple(samples.values())
