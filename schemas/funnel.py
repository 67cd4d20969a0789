"""What the documents that were left out had in them: sizes by reason, and a few to look at.

A document is *given* once it could be read and its task takes it; refused ones have places of their
own in rejects/. Each given document is kept, or removed for one reason:

    text_bytes given = text_bytes of the kept + of all removed + what edits took from the kept
    tokens given = tokens of the kept + of all removed

Samples are the documents with the smallest hashes: the same ones for any way to run. Python 3.8
syntax.
"""

import re
from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, List, Mapping, Tuple

from schemas.drops import REFUSED, check_counts, drop_of
from schemas.errors import DataError
from schemas.typed_json import quote

SAMPLES = 20  # of a reason
SAMPLED_REASONS = 100  # a user's function may give any number of them
LONGEST = 300  # characters of an excerpt


def shorten(text: str) -> str:
    """The beginning of a text, with an ellipsis where there was more."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


@dataclass(frozen=True, order=True)
class Sample:
    """A document that was left out.

    Attributes:
      document: its hash, 32 hexadecimal digits.
      excerpt: how it begins; of one that was left out after the shuffle, as its ids spell it.
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
      tokens: that the tokenizer made of them.
      samples: those with the smallest hashes, each once, by hash.
    """

    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
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


SIZES = ("documents", "text_bytes", "tokens")


def sizes(counted: "Removed | Funnel") -> Dict[str, int]:
    """Its documents, text_bytes and tokens."""
    return {name: getattr(counted, name) for name in SIZES}


@dataclass(frozen=True)
class Funnel:
    """What was given, and what of it was removed, by reason; funnels add up.

    Attributes:
      documents: given.
      text_bytes: UTF-8 bytes of them, normalized.
      tokens: that the tokenizer made of them; of edited documents, after the edits.
      edited_bytes: that filters took from the documents which they kept.
      removed: reason to what was left out for it.
    """

    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
    edited_bytes: int = 0
    removed: Dict[str, Removed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses counts below zero."""
        check_counts(dict(sizes(self), edited_bytes=self.edited_bytes))

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
            **_add_sizes(parts),
        )

    def broken_equations(
        self, kept: Mapping[str, int], dropped: Mapping[str, int]
    ) -> Iterator[str]:
        """What does not add up, each a sentence.

        Args:
          kept: documents, text_bytes and tokens of the set.
          dropped: reason to number of all documents that were left out.
        """
        for name, given in sizes(self).items():
            removed = sum(getattr(one, name) for one in self.removed.values())
            edited = self.edited_bytes if name == "text_bytes" else 0
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
