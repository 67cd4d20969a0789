"""Finds text of targets in documents, and lists it in rejects/contamination.jsonl. Pure.

A document holds a text if it contains at least --decontaminate_share of the text's n-grams, and at
least one. N-grams are found by hashes, and count only if their words are equal too.

Legend: W words of the documents, H hits, G n-grams, P their prefixes (the first words of an n-gram,
as many as the shortest has), T texts of the targets.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import xxhash

from textmill.pipelines.corpus.decontamination.ngram_index import BASE, SPREAD, NgramIndex
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes
from textmill.pipelines.rows.word_hashes import (
    HashedWords,
    are_same_words,
    character_table,
    hash_some_words,
)
from textmill.pipelines.runtime.compiled import entry, inner

MOST_LISTED = 10  # target texts listed for one document
_LISTED = "rejects/contamination.jsonl"
_MOST = 10_000  # lines of the list; reports carry them
_AT_ONCE = 1 << 18  # bytes of text searched together, so that their words fit the CPU's cache
_LONGEST = 300  # bytes shown of an overlap


@dataclass(frozen=True, order=True)
class Hit:
    """A document and an evaluation text that it contains.

    Attributes:
      document: xxh3_128 of the document's text before anything was cut.
      target: path of the file with the evaluation text.
      field: field of the record.
      record: number of the record among those of the file with text in the field.
      path: file of the document, which `LoadedFilters` knows; the first by name of several.
      found: number of different n-grams of the text in the document.
      of: number of n-grams of the text that count.
      texts: number of all evaluation texts in the document; the best matches are listed.
      overlap: longest run of common words, as it occurs in the document, at most _LONGEST bytes.
    """

    document: str
    target: str
    field: str
    record: int
    path: str
    found: int
    of: int
    texts: int
    overlap: str


@dataclass(frozen=True)
class Contamination:
    """Target texts found in documents.

    Attributes:
      spans: int64 [n, 3]: the document, and the bytes where an n-gram of a held text begins and
        ends.
      hits: number of a document, and its best matches, at most MOST_LISTED.
    """

    spans: np.ndarray
    hits: tuple[tuple[int, Hit], ...]


@dataclass(frozen=True)
class _Look:
    """A slice of documents with hits: number of the first, bytes, bounds, words and hits."""

    first: int
    data: np.ndarray
    bounds: np.ndarray
    words: HashedWords
    hits: np.ndarray


class Finder:
    """Finds the n-grams of an index of targets in documents.

    Attributes:
      index: the index.
    """

    def __init__(self, index: NgramIndex):
        """Builds the lookup tables."""
        self.index = index
        self._bitmap, self._shift = index.bitmap()
        self._prefix_P, self._bounds_P = index.prefixes()
        self._total_T, self._need_T = index.total_T, index.need_T
        self._data, _ = utf8_bytes(index.targets.text)

    def find(self, text: pa.LargeStringArray) -> Contamination:
        """Finds target texts in documents."""
        spans, hits = [np.zeros((0, 3), np.int64)], []
        for look in self._look(text):
            counted_H, listed = judge_hits(
                *(look.hits, _distinct(look.hits), self.index.bounds_G, self.index.text_G),
                *(self.index.length_G, self._total_T, self._need_T),
            )
            document, word, gram = look.hits[counted_H].T
            begins = look.words.starts[word] - look.bounds[document]
            ends = look.words.stops[word + self.index.length_G[gram] - 1] - look.bounds[document]
            spans.append(np.stack([document + look.first, begins, ends], axis=1))
            hits += [self._hit(look, row) for row in listed.tolist()]
        return Contamination(np.concatenate(spans), tuple(hits))

    def count(self, text: pa.LargeStringArray) -> np.ndarray:
        """int64 [n, 2], ascending: distinct pairs of document and n-gram."""
        pairs = [np.zeros((0, 2), np.int64)]
        for look in self._look(text):
            pairs.append(_distinct(look.hits) + np.array([look.first, 0]))
        return np.concatenate(pairs)

    def _look(self, text: pa.LargeStringArray) -> Iterator[_Look]:
        """Yields slices of documents with hits, after comparing their words letter by letter."""
        index, first = self.index, 0
        for some in slices(text, _AT_ONCE):
            data, bounds = utf8_bytes(some)
            words = hash_some_words(data, bounds)
            hits = find_hits(
                *(words.hashes, words.offsets, index.least, self._bitmap, self._shift),
                *(self._prefix_P, self._bounds_P, index.length_G, index.hash_G),
            )
            if len(hits):
                _, word, gram = np.ascontiguousarray(hits.T)
                is_same = are_same_words(
                    *(data, words.starts, words.stops, word),
                    *(self._data, index.starts_W, index.stops_W, index.place_G[gram]),
                    *(index.length_G[gram], character_table()),
                )
                hits = hits[is_same]
            if len(hits):
                yield _Look(first, data, bounds, words, hits)
            first += len(some)

    def _hit(self, look: _Look, row: list[int]) -> tuple[int, Hit]:
        document, text, found, begin, stop, texts = row
        start, end = int(look.words.starts[begin]), int(look.words.stops[stop - 1])
        content = look.data[look.bounds[document] : look.bounds[document + 1]]
        targets = self.index.targets
        return document + look.first, Hit(
            document=xxhash.xxh3_128_hexdigest(content.tobytes()),
            target=targets.files[targets.file_T[text]][0],
            field=targets.fields[targets.field_T[text]],
            record=int(targets.record_T[text]),
            path="",
            found=found,
            of=int(self._total_T[text]),
            texts=texts,
            overlap=look.data[start : min(end, start + _LONGEST)].tobytes().decode(errors="ignore"),
        )


def _distinct(hits: np.ndarray) -> np.ndarray:
    """int64 [n, 2], ascending: distinct pairs of document and n-gram of hits."""
    return np.unique(hits[:, [0, 2]], axis=0)


def add_hits(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits to list: each document and text once, and at most _MOST, the smallest."""
    first: dict[tuple[str, str, str, int], Hit] = {}
    for hit in sorted(hits):
        first.setdefault((hit.document, hit.target, hit.field, hit.record), hit)
        if len(first) == _MOST:
            break
    return tuple(first.values())


def hits_file(hits: Iterable[Hit]) -> dict[str, bytes]:
    """Name and content of the list; {} without hits."""
    lines = [json.dumps(asdict(hit), ensure_ascii=False) + "\n" for hit in add_hits(hits)]
    return {_LISTED: "".join(lines).encode()} if lines else {}


# ---- compiled ----


@inner
def _find(keys, wanted, first, last):
    """The first index in keys[first:last], which ascend, of a key that is not below `wanted`."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first


@inner
def _grown(hits, count):
    if count < len(hits):
        return hits
    larger = np.empty((2 * len(hits), 3), np.int64)
    larger[:count] = hits
    return larger


@entry()
def find_hits(word_W, offsets, least, bitmap, shift, prefix_P, bounds_P, length_G, hash_G):
    """Finds every occurrence of every n-gram, by the hashes of its words.

    A rolling hash covers `least` words. If it is in the bitmap and in the table of prefixes, it is
    extended to the lengths of the n-grams with this prefix.

    Args:
      word_W: uint64, hash of each word.
      offsets: int64 [n + 1], where the words of each document begin.
      least: number of words of a prefix.
      bitmap: uint64, with a bit set for each prefix at `prefix * SPREAD >> shift`.
      shift: uint64, 64 minus log2 of the bitmap's bits.
      prefix_P: uint64, prefixes, ascending.
      bounds_P: int64 [P + 1], where the n-grams of each prefix begin.
      length_G: int64, number of words of each n-gram, ascending within a prefix.
      hash_G: uint64, hash of each n-gram, ascending within a length.

    Returns:
      int64 [H, 3]: the document, the first word, and the number of the n-gram.
    """
    top = np.uint64(1)
    for _ in range(least):
        top *= BASE
    hits, count = np.empty((64, 3), np.int64), 0
    for document in range(len(offsets) - 1):
        begin, end = offsets[document], offsets[document + 1]
        rolling = np.uint64(0)
        for word in range(begin, end):
            rolling = rolling * BASE + word_W[word]
            start = word - least + 1
            if start > begin:
                rolling -= word_W[start - 1] * top
            elif start < begin:
                continue
            bit = (rolling * SPREAD) >> shift
            if not (bitmap[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                continue
            prefix = _find(prefix_P, rolling, 0, len(prefix_P))
            if prefix == len(prefix_P) or prefix_P[prefix] != rolling:
                continue
            gram, last = bounds_P[prefix], bounds_P[prefix + 1]
            whole, words = rolling, least
            while gram < last:
                length = length_G[gram]
                if start + length > end:
                    break
                while words < length:
                    whole = whole * BASE + word_W[start + words]
                    words += 1
                next_length = _find(length_G, length + 1, gram, last)
                found = _find(hash_G, whole, gram, next_length)
                if found < next_length and hash_G[found] == whole:
                    hits = _grown(hits, count)
                    hits[count, 0], hits[count, 1], hits[count, 2] = document, start, found
                    count += 1
                gram = next_length
    return hits[:count]


@inner
def _has(text_G, wanted, first, last):
    found = _find(text_G, wanted, first, last)
    return found < last and text_G[found] == wanted


@inner
def _longest_run(hits, first, last, bounds_G, text_G, length_G, text):
    """Start and stop of the longest run of words that a text's n-grams cover; hits are sorted."""
    best_start = best_stop = start = stop = np.int64(0)
    for hit in range(first, last):
        gram = hits[hit, 2]
        if not _has(text_G, text, bounds_G[gram], bounds_G[gram + 1]):
            continue
        begin = hits[hit, 1]
        if begin > stop or stop == 0:
            start, stop = begin, begin
        stop = max(stop, begin + length_G[gram])
        if stop - start > best_stop - best_start:
            best_start, best_stop = start, stop
    return best_start, best_stop


@inner
def _is_fuller(text, other, count_T, total_T):
    """Whether a larger share of a text is found than of another; ties go to the first text."""
    here, there = count_T[text] * total_T[other], count_T[other] * total_T[text]
    return here > there or (here == there and text < other)


@inner
def _rank_texts(touched, count_T, need_T, total_T, best):
    """Fills `best` in the order of `_is_fuller`; returns how many texts are held, and listed."""
    held = kept = 0
    for text in touched:
        if count_T[text] < need_T[text]:
            continue
        held += 1
        place = kept
        while place > 0 and _is_fuller(text, best[place - 1], count_T, total_T):
            place -= 1
        if place < MOST_LISTED:
            kept = min(kept + 1, MOST_LISTED)
            best[place + 1 : kept] = best[place : kept - 1].copy()
            best[place] = text
    return held, kept


@inner
def _mark_hits(hits, first, last, bounds_G, text_G, count_T, need_T, counted_H):
    """Marks the hits of n-grams that occur in a held text."""
    for hit in range(first, last):
        gram = hits[hit, 2]
        for text in text_G[bounds_G[gram] : bounds_G[gram + 1]]:
            if count_T[text] >= need_T[text]:
                counted_H[hit] = True
                break


@entry()
def judge_hits(hits, distinct, bounds_G, text_G, length_G, total_T, need_T):
    """Decides which target texts each document holds: those with enough n-grams in it.

    Args:
      hits: int64 [H, 3], confirmed hits, sorted by document and word.
      distinct: int64 [N, 2], distinct pairs of document and n-gram, sorted.
      bounds_G: int64 [G + 1], where the texts of each n-gram begin in `text_G`.
      text_G: int64, the texts that contain each n-gram, ascending.
      length_G: int64, number of words of each n-gram.
      total_T: int64, number of n-grams of each text that count.
      need_T: int64, number of n-grams of each text that a document must contain.

    Returns:
      bool [H], whether the hit belongs to a held text; int64 [N, 6], the best matches of each
      document: document, text, number of its n-grams found, first word of their longest run, the
      word after it, and number of held texts.
    """
    counted_H = np.zeros(len(hits), np.bool_)
    count_T, touched = np.zeros(len(total_T), np.int64), np.empty(len(total_T), np.int64)
    best = np.empty(MOST_LISTED, np.int64)
    listed, size = np.empty((64 + MOST_LISTED, 6), np.int64), 0
    first = last = pair = 0
    while pair < len(distinct):
        document, texts = distinct[pair, 0], 0
        while pair < len(distinct) and distinct[pair, 0] == document:
            gram = distinct[pair, 1]
            for text in text_G[bounds_G[gram] : bounds_G[gram + 1]]:
                if not count_T[text]:
                    touched[texts] = text
                    texts += 1
                count_T[text] += 1
            pair += 1
        while last < len(hits) and hits[last, 0] == document:
            last += 1
        held, kept = _rank_texts(touched[:texts], count_T, need_T, total_T, best)
        if held:
            _mark_hits(hits, first, last, bounds_G, text_G, count_T, need_T, counted_H)
        if size + kept > len(listed):
            listed = np.concatenate((listed, np.empty_like(listed)))
        for text in best[:kept]:
            begin, stop = _longest_run(hits, first, last, bounds_G, text_G, length_G, text)
            listed[size] = document, text, count_T[text], begin, stop, held
            size += 1
        count_T[touched[:texts]] = 0
        first = last
    return counted_H, listed[:size]
