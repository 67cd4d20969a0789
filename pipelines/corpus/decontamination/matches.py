"""Finds text of targets in documents. Pure.

A document holds a text if it contains at least --decontaminate_share of the text's n-grams, and at
least one. N-grams are found by hashes, and count only if their words are equal too.

Legend: H hits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.gram_index import GramIndex
from pipelines.corpus.decontamination.match_loop import find_hits, judge_hits
from pipelines.rows.text_bytes import slices, utf8_bytes
from pipelines.rows.word_hashes import Words, are_same_words, character_table, hash_some_words

_AT_ONCE = 1 << 18  # bytes of text searched together, so that their words fit the CPU's cache
_LONGEST = 300  # bytes shown of an overlap


@dataclass(frozen=True)
class Overlap:
    """An overlap of a document with a target text.

    Attributes:
      document: number of the document.
      text: number of the target text.
      found: number of different n-grams of the text in the document.
      texts: number of all target texts that the document holds.
      words: longest run of common words, as it occurs in the document, at most _LONGEST bytes.
    """

    document: int
    text: int
    found: int
    texts: int
    words: str


@dataclass(frozen=True)
class Contamination:
    """Target texts found in documents.

    Attributes:
      spans: int64 [n, 3]: the document, and the bytes where an n-gram of a held text begins and
        ends.
      overlaps: the best matches, at most MOST_LISTED for each document.
    """

    spans: np.ndarray
    overlaps: tuple[Overlap, ...]


@dataclass(frozen=True)
class _Look:
    """A slice of documents with hits: number of the first, bytes, bounds, words and hits."""

    first: int
    data: np.ndarray
    bounds: np.ndarray
    words: Words
    hits: np.ndarray


class Finder:
    """Finds the n-grams of an index in documents."""

    def __init__(self, index: GramIndex):
        """Builds the lookup tables."""
        self._index = index
        self._bitmap, self._shift = index.bitmap()
        self._prefix_P, self._bounds_P = index.prefixes()
        self.total_T, self._need_T = index.total_T, index.need_T
        self._data, _ = utf8_bytes(index.targets.text)

    @property
    def index(self) -> GramIndex:
        """The index of target n-grams."""
        return self._index

    def find(self, text: pa.LargeStringArray) -> Contamination:
        """Finds target texts in documents."""
        spans, overlaps = [np.zeros((0, 3), np.int64)], []
        for look in self._look(text):
            counted_H, listed = self._judge(look.hits)
            document, word, gram = look.hits[counted_H].T
            begins = look.words.starts[word] - look.bounds[document]
            ends = look.words.stops[word + self._index.length_G[gram] - 1] - look.bounds[document]
            spans.append(np.stack([document + look.first, begins, ends], axis=1))
            overlaps += [_overlap(look, row) for row in listed.tolist()]
        return Contamination(np.concatenate(spans), tuple(overlaps))

    def count(self, text: pa.LargeStringArray) -> np.ndarray:
        """int64 [n, 2], ascending: distinct pairs of document and n-gram."""
        pairs = [np.zeros((0, 2), np.int64)]
        for look in self._look(text):
            pairs.append(_distinct(look.hits) + np.array([look.first, 0]))
        return np.concatenate(pairs)

    def _look(self, text: pa.LargeStringArray) -> Iterator[_Look]:
        """Yields slices of documents with hits, after comparing their words letter by letter."""
        index, first = self._index, 0
        for some in slices(text, _AT_ONCE):
            data, bounds = utf8_bytes(some)
            words = hash_some_words(data, bounds)
            hits = find_hits(
                *(words.hashes, words.offsets, index.least, self._bitmap, self._shift),
                *(self._prefix_P, self._bounds_P, index.length_G, index.hash_G),
            )
            if len(hits):
                hits = hits[self._are_same(data, words, hits)]
            if len(hits):
                yield _Look(first, data, bounds, words, hits)
            first += len(some)

    def _are_same(self, data: np.ndarray, words: Words, hits: np.ndarray) -> np.ndarray:
        index = self._index
        _, word, gram = np.ascontiguousarray(hits.T)
        return are_same_words(
            *(data, words.starts, words.stops, word),
            *(self._data, index.starts_W, index.stops_W, index.place_G[gram]),
            *(index.length_G[gram], character_table()),
        )

    def _judge(self, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = self._index
        return judge_hits(
            *(hits, _distinct(hits), index.bounds_G, index.text_G, index.length_G),
            *(self.total_T, self._need_T),
        )


def _overlap(look: _Look, row: list[int]) -> Overlap:
    document, text, found, begin, stop, texts = row
    start, end = int(look.words.starts[begin]), int(look.words.stops[stop - 1])
    shown = look.data[start : min(end, start + _LONGEST)].tobytes().decode(errors="ignore")
    return Overlap(document + look.first, text, found, texts, shown)


def _distinct(hits: np.ndarray) -> np.ndarray:
    """int64 [n, 2], ascending: distinct pairs of document and n-gram of hits."""
    return np.unique(hits[:, [0, 2]], axis=0)
