"""Documents of which some are nearly equal, and what should be found among them, by hand."""

import random
import re
from itertools import combinations

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


def similarity(one: str, other: str, size: int = 5) -> float:
    """Jaccard's, of the runs of words."""
    sets = []
    for document in (one, other):
        words = re.findall(r"\w+", document.lower())
        runs = range(max(len(words) - size + 1, 1))
        sets.append({tuple(words[place : place + size]) for place in runs})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def removals(
    documents: list[str], threshold: float = 0.8, held_out: frozenset[str] = frozenset()
) -> dict[str, tuple[str, float]]:
    """Removed document to representative and similarity: every pair is compared.

    Args:
      documents: equal ones count once.
      threshold: from which on two are near.
      held_out: those that rank first.
    """
    ranked = sorted(
        set(documents), key=lambda d: (d not in held_out, -len(d.encode()), digest_of(d))
    )
    near: dict[str, list[tuple[float, str]]] = {}
    for higher, lower in combinations(ranked, 2):
        found = similarity(higher, lower)
        if found >= threshold:
            near.setdefault(lower, []).append((found, higher))
    removed: dict[str, tuple[str, float]] = {}
    for document in ranked:
        kept = [pair for pair in near.get(document, ()) if pair[1] not in removed]
        if kept:
            best, whom = min(kept, key=lambda pair: (-pair[0], digest_of(pair[1])))
            removed[document] = whom, best
    return removed
