"""A corpus with known near-duplicates, and how many of them the core finds.

    python -m tests.benchmarks.planted_duplicates --documents=1000000 --bands=14x8,16x7,20x13
    python -m tests.benchmarks.planted_duplicates --write=planted.jsonl
    python -m pipelines.build_corpus --near_duplicates=jaccard:0.8 --input=planted.jsonl \\
        --output=corpus
    python -m tests.benchmarks.planted_duplicates --check=corpus

Documents are of words of ../shared/data's reviews, as frequent as there, in sentences. A fifth
stand between two of 50 paragraphs of boilerplate. Of the others two in five have a copy, changed in
one of five ways, whose similarity is counted by plain sets of Python. Everything that is removed is
checked in the same way against what it is removed for.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tyro

from tests.benchmarks.corpora import REVIEWS, reviews
from tests.tools.near_duplicates import find_near, plain_similarity
from textmill.pipelines.corpus.near_duplicates.flags import Bands, s_curve
from textmill.pipelines.rows.routing import content_digests

CHANGES = ("words changed", "a passage changed", "sentences moved", "other boilerplate", "case")
_SHARES = (0.3, 0.3, 0.2, 0.15, 0.05)
_BOILERPLATES = 50
_SENTENCE = 11


class Planted(NamedTuple):
    """A corpus.

    Attributes:
      text: [n], of different documents in no order.
      pairs: int64 [p, 2], each document and its copy.
      change: int64 [p], how each pair's copy was changed: a place in CHANGES.
    """

    text: pa.LargeStringArray
    pairs: np.ndarray
    change: np.ndarray


def plant(documents: int, seed: int = 0) -> Planted:
    """Makes a corpus; the same for the same seed."""
    generator = np.random.default_rng(seed)
    words, cumulative = _words()
    pairs = documents // 4
    rows: list[np.ndarray] = []
    boilerplates = [
        _draw(generator, cumulative, length) for length in generator.integers(2, 13, _BOILERPLATES)
    ]
    change = generator.choice(len(CHANGES), pairs, p=_SHARES)
    lengths = generator.integers(50, 101, documents - pairs)
    for number, length in enumerate(lengths.tolist()):
        kind = int(change[number]) if number < pairs else -1
        body = _draw(generator, cumulative, 3 * length if kind == 2 else length)
        around = generator.integers(_BOILERPLATES, size=4)
        if kind == 3 or number % 5 == 0:
            first = np.concatenate([boilerplates[around[0]], body, boilerplates[around[1]]])
        else:
            first = body
        rows.append(first)
        if kind == 3:
            rows.append(np.concatenate([boilerplates[around[2]], body, boilerplates[around[3]]]))
        elif kind >= 0:
            rows.append(_change(generator, first, kind, cumulative))
    place = generator.permutation(documents)  # of the document that is made as number i
    text = _join(rows, words, np.argsort(place))
    found = place[np.arange(2 * pairs)].reshape(pairs, 2)
    digests = content_digests(text)[found]
    differ = (digests[:, 0] != digests[:, 1]).any(axis=1)  # a word may be drawn again
    return Planted(text, found[differ], change[differ])


@cache
def _words() -> tuple[list[str], np.ndarray]:
    """Words of small letters, and their cumulative frequencies."""
    counts = Counter(word for review in reviews(*REVIEWS) for word in review["text"].split())
    some = [(word, count) for word, count in counts.items() if word.isalpha() and word.islower()]
    return [word for word, _ in some], np.cumsum([count for _, count in some])


def _draw(generator: np.random.Generator, cumulative: np.ndarray, count: int) -> np.ndarray:
    """Numbers of words, as frequent as they are."""
    return np.searchsorted(cumulative, generator.random(count) * cumulative[-1], side="right")


def _change(
    generator: np.random.Generator, words: np.ndarray, kind: int, cumulative: np.ndarray
) -> np.ndarray:
    """A copy; case is bit 30 of a word's number."""
    copy = words.copy()
    if kind == 0:
        places = generator.choice(len(words), generator.integers(1, 6), replace=False)
        copy[places] = _draw(generator, cumulative, len(places))
    elif kind == 1:
        length = int(generator.integers(1, len(words) // 4))
        start = int(generator.integers(len(words) - length))
        copy[start : start + length] = _draw(generator, cumulative, length)
    elif kind == 2:
        sentences = [words[i : i + _SENTENCE] for i in range(0, len(words), _SENTENCE)]
        for _ in range(generator.integers(1, 4)):
            taken = int(generator.integers(1, len(sentences)))
            sentences.insert(int(generator.integers(taken)), sentences.pop(taken))
        copy = np.concatenate(sentences)
    else:
        copy |= (generator.random(len(copy)) < 0.3).astype(np.int64) << 30
    return copy


def _join(rows: list[np.ndarray], words: list[str], order: np.ndarray) -> pa.LargeStringArray:
    """Texts: a full stop after every eleventh word."""
    forms = pa.array([form for word in words for form in (word, word + ".", word.upper(), "-")])
    ordered = [rows[number] for number in order]
    lengths = np.array([len(row) for row in ordered])
    ids = np.concatenate(ordered)
    offsets = np.append(0, np.cumsum(lengths))
    is_last = (np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)) % _SENTENCE == _SENTENCE - 1
    is_upper = ids >> 30
    forms_of = (ids & (1 << 30) - 1) * 4 + np.where(is_upper, 2, is_last)
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), forms.take(pa.array(forms_of)))
    joined = pc.binary_join(column, " ")  # pyright: ignore[reportAttributeAccessIssue]
    return joined.cast(pa.large_string())


@dataclass(frozen=True)
class Options:
    """What to make and to check."""

    documents: int = 1_000_000
    """Of the corpus."""
    bands: str = "14x8"
    """Those to measure, with commas between."""
    threshold: str = "0.8"
    """From which similarity on documents are removed."""
    seed: int = 0
    """Of the corpus."""
    write: Path | None = None
    """Writes the corpus as JSON Lines, and measures nothing."""
    check: Path | None = None
    """A corpus of build_corpus, whose list is checked instead of what the core finds here."""


def main(options: Options) -> None:
    """Makes the corpus and says what is found of it."""
    planted = plant(options.documents, options.seed)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in planted.text.to_pylist())
        return
    similarity = np.array([_similarity(planted.text, *pair) for pair in planted.pairs.tolist()])
    print(f"{options.documents:,} documents, {planted.text.nbytes / 1e6:,.0f} MB")
    for name in options.bands.split(","):
        if options.check:
            removed, met = _read(options.check, planted.text), np.zeros(0, bool)
        else:
            began = time.process_time()
            found = find_near(planted.text, bands=name, threshold=options.threshold)
            removed, met = found.removed, _among(planted.pairs, found.pairs)
            print(f"\n{name}: {time.process_time() - began:.1f} s of processor time")
            print(f"{len(found.pairs):,} candidates, {found.uncompared} uncompared")
        _tell(planted, similarity, removed, met, Bands.parse(name), options.threshold)


def _similarity(text: pa.LargeStringArray, one: int, other: int) -> Fraction:
    return plain_similarity(text[one].as_py(), text[other].as_py())


def _among(pairs: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Which pairs are candidates, whichever of the two ranks higher."""
    one, other = (np.sort(some, axis=1) @ np.array([1 << 32, 1]) for some in (pairs, candidates))
    return np.isin(one, other)


def _read(folder: Path, text: pa.LargeStringArray) -> dict[int, tuple[int, float]]:
    """{removed: (representative, similarity)} of a corpus, by numbers of documents."""
    found = [pq.read_table(path) for path in sorted(folder.glob("removed/near_*.parquet"))]
    place = {digest.tobytes().hex(): i for i, digest in enumerate(content_digests(text))}
    names = ("id", "representative", "similarity")
    columns = (pa.concat_tables(found)[name].to_pylist() for name in names)
    return {
        place[document]: (place[other], similarity)
        for document, other, similarity in zip(*columns, strict=True)
    }


def _tell(
    planted: Planted,
    similarity: np.ndarray,
    removed: dict[int, tuple[int, float]],
    met: np.ndarray,
    bands: Bands,
    threshold: str,
) -> None:
    """Prints the curve, recall by change, and how many removals break the rule.

    Args:
      planted: the corpus.
      similarity: [p] fractions, of its pairs.
      removed: {document: (representative, similarity)}.
      met: bool [p], which pairs were candidates; empty if that is not known.
      bands: the signature's.
      threshold: of the rule.
    """
    least = Fraction(threshold)
    is_removed = np.array([one in removed or other in removed for one, other in planted.pairs])
    exact = similarity.astype(float)
    print("similarity      pairs  candidates  by the curve  removed")
    for low, high in (*pairwise(np.arange(0.5, 1.01, 0.05).round(2)), (0.8, 0.81)):
        within = (exact >= low) & ((exact < high) | (high == 1))
        row = [f"{met[within].mean():11.4f}" if len(met) else "          -"]
        row += [f"{s_curve(bands, exact[within]).mean():13.4f} {is_removed[within].mean():8.4f}"]
        print(f"{low:.2f} to {high:.2f} {within.sum():8,}", *row)
    due = similarity >= least
    print(f"recall at {threshold} and above: {is_removed[due].mean():.4f} of {due.sum():,}")
    for number, name in enumerate(CHANGES):
        some = due & (planted.change == number)
        print(f"  {name:20} {is_removed[some].mean():.4f} of {some.sum():,}")
    broken = 0
    for document, (other, said) in removed.items():
        found = _similarity(planted.text, document, other)
        broken += found < least or float(found) != said or other in removed
    print(f"removed {len(removed):,}, of which break the rule: {broken}")
    if broken:
        sys.exit(1)


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
