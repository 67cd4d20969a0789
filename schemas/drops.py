"""Why documents are left out, and what they had in them: reasons, counts, sizes and samples.

Counts are `dropped: {reason: number}` everywhere. A reason without a row is that of a reader or a
task which refused a document, such as not_utf8; or of a rule, FAMILY:RULE: `gopher:min_words`,
`filter:spam` of the user's function. Documents read = kept + all that were
dropped. What filters count besides is `observed`.

A corpus' funnel has sizes by reason. A document is *given* once it could be read; refused ones are
in rejects/. Each given document is kept, or removed for one reason:

    text_bytes given = text_bytes of the kept + of all removed + what edits took from the kept
    words given = words of the kept + of all removed

Samples are the documents with the smallest hashes: the same ones for any way to run. Python 3.8
syntax.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from schemas.errors import DataError
from schemas.typed_json import quote

FILTERED, REFUSED = "filtered", "refused"
Observed = Dict[str, Dict[str, int]]  # section to key to number: {"language": {"nb": 3}}
MOST = 1 << 53  # of a count: what other languages' numbers hold
SAMPLES = 20  # of a reason
SAMPLED_REASONS = 100  # a user's function may give any number of them
LONGEST = 300  # characters of an excerpt


@dataclass(frozen=True)
class Drop:
    """A reason for which documents are left out.

    Attributes:
      name: in counts, {"held_out": 30}, and in stats.json.
      title: of the line where people read the number; reasons of one title share a line.
      by_shard: whether it is counted shard by shard, in a field of its own in stats.json. Others
        are counted where documents are read, in documents_rejected.
      words: that follow the number; "" for the reason's name.
      color: in the report's flow of documents.
    """

    name: str
    title: str
    by_shard: bool = False
    words: str = ""
    color: str = "red"


DROPS = {
    drop.name: drop
    for drop in (
        Drop("duplicates", "duplicates", True, "dropped", "amber"),
        Drop("held_out", "held out", True, "that a given evaluation split has", "violet"),
        Drop("near_duplicates", "near duplicates", False, "dropped", "amber"),
        Drop("duplicate_paragraphs", FILTERED),
        Drop("min_chars", FILTERED),
        Drop("max_chars", FILTERED),
        Drop("min_words", FILTERED),
        Drop("max_repetition", FILTERED),
        Drop("contaminated", FILTERED),
    )
}
BY_SHARD = tuple(drop for drop in DROPS.values() if drop.by_shard)


def mark_of(reason: str) -> int:
    """The number of a reason that has a row, from 1 on."""
    return list(DROPS).index(reason) + 1


def drop_of(reason: str) -> Drop:
    """The row of a reason; of one that has none, what can be said of it."""
    return DROPS.get(reason) or Drop(reason, FILTERED if ":" in reason else REFUSED)


def total_counts(*parts: Mapping[str, int]) -> Dict[str, int]:
    """Adds counts by name, without those of 0."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {name: count for name, count in total.items() if count}


def add_observed(total: Observed, more: Mapping[str, Mapping[str, int]]) -> None:
    """Adds counts by section and name, in place; those of 0 are left out."""
    for section, counts in more.items():
        total[section] = total_counts(total.get(section, {}), counts)


def total_observed(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Observed:
    """Adds counts by section and name."""
    total: Observed = {}
    for part in parts:
        add_observed(total, part)
    return total


def check_counts(counts: Mapping[str, int]) -> None:
    """Refuses numbers that are no counts; names the first."""
    if counts and (min(counts.values()) < 0 or max(counts.values()) >= MOST):
        name = next(name for name, count in counts.items() if not 0 <= count < MOST)
        raise DataError(f"{name} is {quote(counts[name])}: a count is at least 0, and below 2**53")


def describe_dropped(
    dropped: Mapping[str, float],
    always: Sequence[str] = (),
    write: Callable[[Drop, float], str] = lambda drop, number: f"{number:,}",
) -> Dict[str, str]:
    """What became of documents that were left out, a line a title.

        {"duplicates": 7, "too_long": 2, "empty": 1} ->
        {"duplicates": "7 dropped", "refused": "1 empty, 2 too_long"}

    Args:
      dropped: reason to number.
      always: titles that have a line even where there is nothing to say.
      write: puts the number of a reason into words.
    """
    order = list(dict.fromkeys(drop.title for drop in DROPS.values())) + [REFUSED]
    lines: Dict[str, List[str]] = {title: [] for title in order}
    for reason, number in sorted(dropped.items()):
        drop = drop_of(reason)
        if number:
            lines[drop.title].append(f"{write(drop, number)} {drop.words or reason}")
    return {
        title: ", ".join(told) or "none" for title, told in lines.items() if told or title in always
    }


# The funnel: what the documents that were left out had in them


def shorten(text: str) -> str:
    """The beginning of a text, with an ellipsis where there was more."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


@dataclass(frozen=True, order=True)
class Sample:
    """A document that was left out.

    Attributes:
      document: its hash, 32 hexadecimal digits.
      excerpt: how it begins.
      detail: what more is known of the reason; of near-duplicates, what they are near:
        "similarity 0.871 to 04d2ddc2..."; "" of others.
    """

    document: str
    excerpt: str
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuses what is no hash, and texts that are no excerpts."""
        if not re.fullmatch("[0-9a-f]{32}", self.document):
            raise DataError(f"document is {quote(self.document)}, not 32 hexadecimal digits")
        for name in ("excerpt", "detail"):
            if len(getattr(self, name)) > LONGEST + 1:
                raise DataError(
                    f"{name} has {len(getattr(self, name)):,} characters: at most {LONGEST + 1}"
                )


@dataclass(frozen=True)
class Removed:
    """The documents that were left out for one reason.

    Attributes:
      documents: how many.
      text_bytes: UTF-8 bytes of them.
      words: of them, between white space.
      samples: those with the smallest hashes, each once, by hash.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    samples: Tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        """Refuses counts below zero, and samples that are too many or in another order."""
        check_counts(sizes(self))
        names = [sample.document for sample in self.samples]
        if len(names) > min(SAMPLES, self.documents) or sorted({*names}) != names:
            raise DataError(
                f"{len(names)} samples of {self.documents:,} documents: at most {SAMPLES}, each "
                "of another document, in the order of their hashes"
            )


SIZES = ("documents", "text_bytes", "words")


def sizes(counted: "Removed | Funnel") -> Dict[str, int]:
    """Its documents, text_bytes and words."""
    return {name: getattr(counted, name) for name in SIZES}


@dataclass(frozen=True)
class Funnel:
    """What was given, and what of it was removed, by reason; funnels add up.

    Attributes:
      documents: given.
      text_bytes: UTF-8 bytes of them, normalized.
      words: of them, between white space; of edited documents, after the edits.
      edited_bytes: that edits took from the documents which were kept; below 0 if they added some.
      removed: reason to what was left out for it.
      edited_words: that edits took from the documents which were kept.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    edited_bytes: int = 0
    removed: Dict[str, Removed] = field(default_factory=dict)
    edited_words: int = 0

    def __post_init__(self) -> None:
        """Refuses counts below zero."""
        check_counts({**sizes(self), "edits": abs(self.edited_bytes) + abs(self.edited_words)})

    @staticmethod
    def sum(parts: "Iterable[Funnel]") -> "Funnel":
        """All of them as one; the result does not depend on their order."""
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
        """What does not add up, each a sentence.

        Args:
          kept: documents, text_bytes and words of the corpus.
          dropped: reason to number of all documents that were left out.
        """
        for name, given in sizes(self).items():
            removed = sum(getattr(one, name) for one in self.removed.values())
            edited = {"text_bytes": self.edited_bytes, "words": self.edited_words}.get(name, 0)
            if given != kept[name] + removed + edited:
                yield (
                    f"funnel: {name} given {given:,} != kept {kept[name]:,} + removed {removed:,}"
                    + f" + edited {edited:,}" * bool(edited)
                )
        due = {reason: n for reason, n in dropped.items() if drop_of(reason).title != REFUSED}
        told = {reason: removed.documents for reason, removed in self.removed.items()}
        for reason in sorted({**due, **told}):
            if due.get(reason) != told.get(reason):
                yield (
                    f"funnel: {reason}: documents removed {told.get(reason, 0):,} != counted "
                    f"{due.get(reason, 0):,}"
                )


def _add_sizes(parts: "Iterable[Removed | Funnel]") -> Dict[str, int]:
    parts = tuple(parts)
    return {name: sum(getattr(part, name) for part in parts) for name in SIZES}


def _fewest(parts: Iterable[Removed]) -> Tuple[Sample, ...]:
    """The samples with the smallest hashes; of one document the first."""
    found: Dict[str, Sample] = {}
    for sample in sorted(sample for part in parts for sample in part.samples):
        found.setdefault(sample.document, sample)
        if len(found) == SAMPLES:
            break
    return tuple(found.values())
