"""The core of near-duplicates from texts to what is removed, in one process."""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.corpus.near_duplicates.buckets import find_pairs
from pipelines.corpus.near_duplicates.flags import Bands, Rule, Shingle
from pipelines.corpus.near_duplicates.resolve import resolve
from pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    distinct,
    of_batch,
    sets_of,
)
from pipelines.corpus.near_duplicates.steps import make_members, make_sets, verify_pairs
from pipelines.rows.ragged import Ragged
from pipelines.rows.routing import content_digests


class Found(NamedTuple):
    """What is found in some texts, by their numbers.

    Attributes:
      pairs: int64 [p, 2], candidates, each once, the higher rank first.
      removed: {document: (representative, similarity)}.
      uncompared: members that found no room in large buckets.
    """

    pairs: np.ndarray
    removed: dict[int, tuple[int, float]]
    uncompared: int


def plain_set(text: str, shingle: str = "word:5") -> set[tuple[str, ...]]:
    """The shingles of a text of letters, spaces and full stops, as tuples."""
    unit, size = shingle.split(":")
    words = text.lower().replace(".", "").split()
    units = words if unit == "word" else " ".join(words)
    starts = range(max(len(units) - int(size) + 1, 1))
    return {tuple(units[start : start + int(size)]) for start in starts} if units else set()


def plain_similarity(one: str, other: str, shingle: str = "word:5") -> Fraction:
    """Jaccard's of two such texts."""
    sets = plain_set(one, shingle), plain_set(other, shingle)
    union = len(sets[0] | sets[1])
    return Fraction(len(sets[0] & sets[1]), union) if union else Fraction(0)


def find_near(
    texts: list[str] | pa.LargeStringArray,
    shingle: str = "word:5",
    bands: str = "14x8",
    threshold: str = "0.8",
) -> Found:
    """Finds what is removed, by the steps of the job in one partition; equal texts count once."""
    text = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    rule = Rule(Fraction(threshold), Shingle.parse(shingle), Bands.parse(bands))
    _, number = np.unique(content_digests(text).view("V16").reshape(-1), return_index=True)
    text = text.take(pa.array(number))
    made = (batches for batches, _ in make_members(0, text, rule, 1))
    members = [of_batch(batch, MEMBER) for batches in made for _, batch in batches]
    members = np.concatenate([np.zeros(0, MEMBER), *members])
    proposed = list(find_pairs(members, rule.bands, rule.threshold))
    pairs = distinct(np.concatenate([some for some, _ in proposed]))
    asks = np.zeros(len(pairs), ASK)
    asks["higher"] = pairs["higher"]

    def read_sets() -> Iterator[tuple[np.ndarray, Ragged]]:
        made = make_sets(asks, text, rule)
        return filter(None, (sets_of(batch) for batches in made for _, batch in batches))

    edges = [some for some, _ in verify_pairs(pairs, read_sets, text, rule)]
    removed = resolve(np.concatenate([np.zeros(0, EDGE), *edges]))
    return Found(
        np.stack([number[pairs["higher"]], number[pairs["lower"]]], axis=1),
        {
            int(number[edge["lower"]]): (int(number[edge["higher"]]), float(edge["similarity"]))
            for edge in removed
        },
        sum(number for _, number in proposed),
    )
