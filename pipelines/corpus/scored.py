"""Scores of a model of quality: samples of each tenth, means by language and host. Pure.

All documents that the model scored are counted, also those that are dropped later. Samples are the
documents with the smallest hashes, and hosts those whose names have the smallest hashes, so the
result does not depend on how documents are divided, nor on their order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from textmill.pipelines.linear_model.scores import COLUMN, name_tenth, tenths_of
from textmill.pipelines.readers.page_hosts import MOST_HOSTS, fewest_hosts, host_of
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.drops import LONGEST, Observed, shorten

SAMPLES = 5  # of a tenth
URLS = ("url", "source_url")  # columns that may hold the address of a page
_LANGUAGES = ("language", "lang")  # columns that may hold the language, if no rule identifies it
FIELDS = (*_LANGUAGES, *URLS)


@dataclass(frozen=True, order=True)
class ScoredDocument:
    """A document.

    Attributes:
      document: its hash, 32 hexadecimal digits.
      score: its score.
      excerpt: its beginning.
    """

    document: str
    score: float
    excerpt: str


@dataclass(frozen=True)
class ScoreSum:
    """The scores of some documents.

    Attributes:
      documents: their number.
      millionths: the sum of their scores, each rounded to millionths.
    """

    documents: int = 0
    millionths: int = 0

    @property
    def mean(self) -> float:
        """The mean score."""
        return self.millionths / 1e6 / max(self.documents, 1)


@dataclass(frozen=True)
class Scored:
    """The scored documents; parts add up.

    Attributes:
      samples: tenth, such as "0.3 to 0.4", to at most SAMPLES of its documents, sorted by hash.
      languages: language to the scores of its documents.
      hosts: host to the scores of its pages; of all hosts, the MOST_HOSTS with the smallest hashes.
    """

    samples: dict[str, tuple[ScoredDocument, ...]] = field(default_factory=dict)
    languages: dict[str, ScoreSum] = field(default_factory=dict)
    hosts: dict[str, ScoreSum] = field(default_factory=dict)

    @staticmethod
    def sum(parts: "Iterable[Scored]") -> "Scored":
        """Adds up parts."""
        parts = [part for part in parts if part.samples]
        samples: dict[str, set[ScoredDocument]] = {}
        for part in parts:
            for tenth, documents in part.samples.items():
                samples.setdefault(tenth, set()).update(documents)
        return Scored(
            {tenth: _first(samples[tenth]) for tenth in sorted(samples)},
            _add(part.languages for part in parts),
            _add(part.hosts for part in parts),
        )

    def broken_equations(self, observed: Observed) -> Iterator[str]:
        """Yields each contradiction to the counts of stats.json, a sentence."""
        tenths = observed.get(COLUMN, {})
        if {*self.samples} != {*tenths}:
            yield f"samples of {sorted(self.samples)}, but scores of {sorted(tenths)}"
        total = sum(tenths.values())
        for name, sums in (("languages", self.languages), ("hosts", self.hosts)):
            number = sum(one.documents for one in sums.values())
            if number > total or (number < total and 0 < len(sums) < MOST_HOSTS):
                yield f"{name} have {number:,} documents, but {total:,} have a score"


def score_documents(
    scores: np.ndarray, text: pa.LargeStringArray, columns: Mapping[str, Sequence[str]]
) -> Scored:
    """The scored documents of a piece of a block.

    Args:
      scores: float32 [n].
      text: the texts.
      columns: their fields, of which languages and hosts are taken.
    """
    digests, tenths, samples = content_digests(text), tenths_of(scores), {}
    halves = digests.view(">u8").reshape(-1, 2)
    order = np.lexsort((scores, halves[:, 1], halves[:, 0]))
    for tenth in np.unique(tenths).tolist():
        some = []
        for row in order[tenths[order] == tenth].tolist():
            name = digests[row].tobytes().hex()
            if some and some[-1].document == name:
                continue
            start = pc.utf8_slice_codeunits(text.slice(row, 1), 0, LONGEST + 1)[0].as_py()
            some.append(ScoredDocument(name, float(str(scores[row])), shorten(start)))
            if len(some) == SAMPLES:
                break
        samples[name_tenth(tenth)] = tuple(some)
    languages = next((columns[name] for name in _LANGUAGES if name in columns), ())
    urls = next((columns[name] for name in URLS if name in columns), ())
    millionths = np.rint(scores.astype(np.float64) * 1e6).astype(np.int64)
    return Scored(
        samples,
        _by_name([name or "unknown" for name in languages], millionths),
        _by_name([host_of(url) or "unknown" for url in urls], millionths),
    )


def _by_name(names: list[str], millionths: np.ndarray) -> dict[str, ScoreSum]:
    if not names:
        return {}
    known, codes = np.unique(names, return_inverse=True)
    sums = np.zeros(len(known), np.int64)
    np.add.at(sums, codes, millionths)
    counts = np.bincount(codes, minlength=len(known))
    found = zip(known.tolist(), counts.tolist(), sums.tolist(), strict=True)
    return _fewest({name: ScoreSum(*numbers) for name, *numbers in found})


def _first(documents: Iterable[ScoredDocument]) -> tuple[ScoredDocument, ...]:
    """The first documents, each once: edits may give a text several scores."""
    first: dict[str, ScoredDocument] = {}
    for one in sorted(documents):
        first.setdefault(one.document, one)
        if len(first) == SAMPLES:
            break
    return tuple(first.values())


def _add(parts: Iterable[Mapping[str, ScoreSum]]) -> dict[str, ScoreSum]:
    total: dict[str, ScoreSum] = {}
    for part in parts:
        for name, one in part.items():
            before = total.get(name, ScoreSum())
            total[name] = ScoreSum(
                before.documents + one.documents, before.millionths + one.millionths
            )
    return _fewest(total)


def _fewest(sums: dict[str, ScoreSum]) -> dict[str, ScoreSum]:
    """Those of the MOST_HOSTS names with the smallest hashes."""
    return {name: sums[name] for name in sorted(fewest_hosts(sums))}
