"""Documents of which some are nearly equal, and what should be found among them, by hand."""

import random
import re
from collections import Counter

import xxhash


def near_documents(count: int, seed: int = 0, words: int = 60) -> list[str]:
    """Random documents; every second one is an earlier one of which some words were changed."""
    draw = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(2000)]
    documents: list[str] = []
    for _ in range(count):
        if documents and draw.random() < 0.5:
            changed = draw.choice(documents[-20:]).split()
            for _ in range(draw.choice((0, 1, 1, 2, 3))):
                changed[draw.randrange(len(changed))] = draw.choice(vocabulary)
            documents.append(" ".join(changed))
        else:
            documents.append(" ".join(draw.choices(vocabulary, k=draw.randint(1, 2 * words))))
    return documents


def digest_of(document: str) -> bytes:
    """What names a document."""
    return xxhash.xxh3_128_digest(document.encode())


def removals(documents: list[str], threshold: float = 0.8) -> dict[str, tuple[str, float]]:
    """Removed document to representative and similarity, of runs of five words, by all pairs.

    Every pair that has a run in common is compared: the others are not similar at all.

    Args:
      documents: equal ones count once.
      threshold: the similarity from which two are near.
    """
    ranked = sorted(set(documents), key=lambda d: (-len(d.encode()), digest_of(d)))
    sizes: dict[str, int] = {}
    holders: dict[tuple[str, ...], list[str]] = {}
    removed: dict[str, tuple[str, float]] = {}
    for document in ranked:
        words = re.findall(r"\w+", document.lower())
        runs = {tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1))}
        sizes[document] = len(runs)
        common = Counter(other for run in runs for other in holders.get(run, ()))
        near = [
            (both / (len(runs) + sizes[other] - both), other)
            for other, both in common.items()
            if other not in removed
        ]
        near = [pair for pair in near if pair[0] >= threshold]
        if near:
            best, whom = min(near, key=lambda pair: (-pair[0], digest_of(pair[1])))
            removed[document] = whom, best
        for run in runs:
            holders.setdefault(run, []).append(document)
    return removed
