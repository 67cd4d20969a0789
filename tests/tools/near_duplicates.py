"""Near-duplicates in one process: documents, what is found among them, and what should be."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from textmill.pipelines.corpus.near_duplicates.buckets import find_pairs
from textmill.pipelines.corpus.near_duplicates.flags import Bands, NearDuplicateRule, Shingle
from textmill.pipelines.corpus.near_duplicates.resolve import resolve
from textmill.pipelines.corpus.near_duplicates.rows import (
    ASK,
    EDGE,
    MEMBER,
    distinct,
    of_batch,
    sets_of,
)
from textmill.pipelines.corpus.near_duplicates.steps import (
    make_members,
    make_sets,
    sign,
    verify_pairs,
)
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.routing import content_digests


def near_documents(count: int) -> list[str]:
    """Random documents; every second one is an earlier one of which some words were changed."""
    draw = random.Random(0)
    vocabulary = [f"w{number}" for number in range(2000)]
    documents: list[str] = []
    for _ in range(count):
        if documents and draw.random() < 0.5:
            changed = draw.choice(documents[-20:]).split()
            for _ in range(draw.choice((0, 1, 1, 2, 3))):
                changed[draw.randrange(len(changed))] = draw.choice(vocabulary)
            documents.append(" ".join(changed))
        else:
            documents.append(" ".join(draw.choices(vocabulary, k=draw.randint(1, 120))))
    return documents


# ---- what should be found, in plain Python ----


def digest_of(document: str) -> bytes:
    """The hash that names a document."""
    return xxhash.xxh3_128_digest(document.encode())


def plain_set(text: str, shingle: str = "word:5") -> set[tuple[str, ...]]:
    """The shingles of a document as tuples; a Chinese character is a word of its own."""
    unit, size = shingle.split(":")
    pattern = r"[一-鿿]|[^\W_一-鿿]+" if unit == "word" else r"[^\W_]+"
    words = re.findall(pattern, text.lower())
    units = words if unit == "word" else " ".join(words)
    starts = range(max(len(units) - int(size) + 1, 1))
    return {tuple(units[start : start + int(size)]) for start in starts} if units else set()


def plain_similarity(one: str, other: str, shingle: str = "word:5") -> Fraction:
    """Jaccard's of two documents."""
    sets = plain_set(one, shingle), plain_set(other, shingle)
    union = len(sets[0] | sets[1])
    return Fraction(len(sets[0] & sets[1]), union) if union else Fraction(0)


def removals(
    documents: list[str],
    shingle: str = "word:5",
    threshold: str = "0.8",
    older: Collection[str] = (),
) -> dict[str, tuple[str, float]]:
    """Removed document to representative and similarity, by all pairs; equal ones count once.

    Every pair that has a shingle in common is compared: the others are not similar at all. `older`
    documents stay, and are the representatives of all that are near them.
    """
    new = {*documents} - {*older}
    ranked = [*older, *sorted(new, key=lambda d: (-len(d.encode()), digest_of(d)))]
    sizes: dict[str, int] = {}
    holders: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    removed: dict[str, tuple[str, float]] = {}
    for document in ranked:
        shingles = plain_set(document, shingle)
        sizes[document] = len(shingles)
        common = Counter(other for one in shingles for other in holders[one])
        near = []
        for other, both in common.items() if document in new else ():
            either = len(shingles) + sizes[other] - both
            if other not in removed and Fraction(both, either) >= Fraction(threshold):
                near.append((other in new, -both / either, digest_of(other), other))
        if near:
            _, similarity, _, representative = min(near)
            removed[document] = representative, -similarity
        for one in shingles:
            holders[one].append(document)
    return removed


# ---- what is found ----


class Found(NamedTuple):
    """Near-duplicates among some texts, by their numbers.

    Attributes:
      pairs: int64 [p, 2], candidates, each once, the higher rank first.
      removed: {document: (representative, similarity)}.
      uncompared: members that found no room in large buckets.
    """

    pairs: np.ndarray
    removed: dict[int, tuple[int, float]]
    uncompared: int


def find_near(
    texts: list[str] | pa.LargeStringArray,
    shingle: str = "word:5",
    bands: str = "14x8",
    threshold: str = "0.8",
) -> Found:
    """Finds what is removed, by the steps of the job in one partition; equal texts count once."""
    text = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    rule = NearDuplicateRule(Fraction(threshold), Shingle.parse(shingle), Bands.parse(bands))
    _, number = np.unique(content_digests(text).view("V16").reshape(-1), return_index=True)
    text = text.take(pa.array(number))
    made = (make_members(0, signed, 1) for signed in sign(text, rule))
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
