"""The features of texts, as fastText has them: rows of a model's input matrix. Pure.

The features of a text are its words, their n-grams of characters with < and > at the ends, and
n-grams of words: words by their bytes, n-grams by a bucket of their hash. Words are separated by
ASCII white space; newlines count as spaces, and the text ends in the word `</s>`, as fastText
reads a line.
"""

from dataclasses import dataclass

import numpy as np

from textmill.pipelines.linear_model.model_file import LABEL, ModelFile
from textmill.pipelines.runtime.compiled import entry, inner

EOS = b"</s>"


@dataclass(frozen=True)
class Vocabulary:
    """The tables by which loops turn text into rows.

    Attributes:
      entries, bounds, slots: bytes of words and labels, where each begins, and a hash table of
        their numbers.
      words: number of words; larger numbers are labels.
      end: number of `</s>`, -1 if it is none of the words.
      pruned: int32 [buckets], the row of each bucket, or [0] if each has its own.
      settings: int64 [5]: n-grams of words, buckets (0 if n-grams have no rows), minn, maxn, words.
    """

    entries: np.ndarray
    bounds: np.ndarray
    slots: np.ndarray
    pruned: np.ndarray
    settings: np.ndarray

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """The arrays that compiled loops take."""
        return self.entries, self.bounds, self.slots, self.pruned, self.settings

    @classmethod
    def of(cls, model: ModelFile) -> "Vocabulary":
        """The vocabulary of a stored model."""
        number = len(model.counts)
        slots = np.full(1 << (2 * number + 1).bit_length(), -1, np.int32)
        fill_slots(model.entries, model.bounds, slots)
        own, pruned = model.settings, model.pruned
        has_rows = own.hashes and (pruned is None or (pruned >= 0).any())
        settings = [own.word_ngrams, own.buckets * has_rows, own.minn, own.maxn, model.words]
        no_rows = np.zeros(0, np.int32)
        return cls(
            model.entries,
            model.bounds,
            slots,
            no_rows if pruned is None else pruned,
            np.array(settings, np.int64),
        )


# ---- compiled ----

_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)
_MIX = np.uint64(116049371)
_ROOM = 1 << 16  # for distinct words, at first
_OPEN, _CLOSE = np.uint8(0x3C), np.uint8(0x3E)
_EOS_BYTES = np.frombuffer(EOS, np.uint8)
_LABEL_BYTES = np.frombuffer(LABEL.encode(), np.uint8)


@inner
def _hash_byte(code, byte):
    return np.uint32(np.uint32(code ^ np.uint32(np.int8(byte))) * _PRIME)


@inner
def _hash_bytes(data, start, stop):
    code = _BASIS
    for place in range(start, stop):
        code = _hash_byte(code, data[place])
    return code


@inner
def _find(data, start, stop, code, entries, bounds, slots):
    """The number of the entry with these bytes, -1 if there is none."""
    mask = np.uint32(len(slots) - 1)
    slot, size = np.int64(code & mask), stop - start
    while slots[slot] >= 0:
        number = slots[slot]
        first = bounds[number]
        if bounds[number + 1] - first == size:
            i = 0
            while i < size and entries[first + i] == data[start + i]:
                i += 1
            if i == size:
                return np.int64(number)
        slot = (slot + 1) & np.int64(mask)
    return np.int64(-1)


@entry()
def fill_slots(entries, bounds, slots):
    """Fills the hash table of entries; of equal ones the first counts."""
    mask = len(slots) - 1
    for number in range(len(bounds) - 1):
        start, stop = bounds[number], bounds[number + 1]
        code = _hash_bytes(entries, start, stop)
        if _find(entries, start, stop, code, entries, bounds, slots) < 0:
            slot = np.int64(code) & mask
            while slots[slot] >= 0:
                slot = (slot + 1) & mask
            slots[slot] = number


@inner
def _is_space(byte):
    # \0 \t \n \v \f \r and the space
    return byte == 0 or byte == 0x20 or (9 <= byte and byte <= 13)


@inner
def _next_word(data, place, stop):
    """Where the next word of data[place:stop] begins and ends, and its hash; at `stop` if none."""
    while place < stop and _is_space(data[place]):
        place += 1
    begin, code = place, _BASIS
    while place < stop and not _is_space(data[place]):
        code = _hash_byte(code, data[place])
        place += 1
    return begin, place, code


@entry()
def count_entries(data, texts):
    """Counts words: where each first begins and ends, and its number; int64 [distinct] each.

    Args:
      data: uint8, bytes of all texts.
      texts: int64 [D + 1], where each begins.
    """
    codes, spans = np.empty(_ROOM, np.uint32), np.empty((3, _ROOM), np.int64)
    slots, used = np.full(2 * _ROOM, -1, np.int64), 0
    for text in range(len(texts) - 1):
        place, stop = texts[text], texts[text + 1]
        while True:
            begin, place, code = _next_word(data, place, stop)
            if begin == stop:
                break
            mask = np.int64(len(slots) - 1)
            slot, number = np.int64(code) & mask, np.int64(-1)
            while slots[slot] >= 0:
                other = slots[slot]
                first = spans[0, other]
                if codes[other] == code and spans[1, other] - first == place - begin:
                    i = 0
                    while i < place - begin and data[first + i] == data[begin + i]:
                        i += 1
                    if i == place - begin:
                        number = other
                        break
                slot = (slot + 1) & mask
            if number >= 0:
                spans[2, number] += 1
                continue
            codes[used], slots[slot] = code, used
            spans[0, used], spans[1, used], spans[2, used] = begin, place, 1
            used += 1
            if used == len(codes):
                codes = np.concatenate((codes, np.empty_like(codes)))
                spans = np.concatenate((spans, np.empty_like(spans)), axis=1)
                slots = np.full(2 * len(slots), -1, np.int64)
                for word in range(used):
                    slot = np.int64(codes[word]) & np.int64(len(slots) - 1)
                    while slots[slot] >= 0:
                        slot = (slot + 1) & np.int64(len(slots) - 1)
                    slots[slot] = word
    return spans[0, :used].copy(), spans[1, :used].copy(), spans[2, :used].copy()


@inner
def _begins_with(data, start, stop, wanted):
    if stop - start < len(wanted):
        return False
    for i in range(len(wanted)):
        if data[start + i] != wanted[i]:
            return False
    return True


@inner
def _row_of(bucket, words, pruned):
    if len(pruned):
        row = pruned[bucket]
        return np.int64(-1) if row < 0 else words + np.int64(row)
    return words + np.int64(bucket)


@inner
def list_characters(data, start, stop, settings, pruned, features, used):
    """Appends the rows of the n-grams of characters of `<word>`; returns the number of features."""
    buckets, minn, maxn, words = settings[1], settings[2], settings[3], settings[4]
    if buckets == 0:
        return used
    size = stop - start + 2
    for i in range(size):
        first = _OPEN if i == 0 else (_CLOSE if i == size - 1 else data[start + i - 1])
        if first & 0xC0 == 0x80:
            continue
        code, j, n = _BASIS, i, 1
        while j < size and n <= maxn:
            byte = _OPEN if j == 0 else (_CLOSE if j == size - 1 else data[start + j - 1])
            code = _hash_byte(code, byte)
            j += 1
            while j < size - 1 and data[start + j - 1] & 0xC0 == 0x80:
                code = _hash_byte(code, data[start + j - 1])
                j += 1
            if n >= minn and not (n == 1 and (i == 0 or j == size)):
                row = _row_of(np.int64(code % np.uint32(buckets)), words, pruned)
                if row >= 0:
                    features[used] = row
                    used += 1
            n += 1
    return used


@inner
def list_features(data, start, stop, tables, end, features, codes):
    """Lists the rows of the text data[start:stop] in fastText's order; returns their number.

    `tables` are those of a `Vocabulary`, `end` is the number of the entry `</s>`, or -1. `features`
    (int32, out) has room for all rows, and `codes` (int32, scratch) for a hash of each word.
    """
    entries, bounds, slots, pruned, settings = tables
    maxn, words = settings[3], settings[4]
    used, seen, place = 0, 0, start
    while True:
        begin, place, code = _next_word(data, place, stop)
        if begin == stop:
            break
        if place - begin == len(_EOS_BYTES) and _begins_with(data, begin, place, _EOS_BYTES):
            break  # fastText ends a line here, too
        number = _find(data, begin, place, code, entries, bounds, slots)
        if number >= words or (number < 0 and _begins_with(data, begin, place, _LABEL_BYTES)):
            continue
        if number >= 0:
            features[used] = number
            used += 1
        if maxn > 0:
            used = list_characters(data, begin, place, settings, pruned, features, used)
        codes[seen] = np.int32(code)
        seen += 1
    if end >= 0:
        features[used] = end
        used += 1
    codes[seen] = np.int32(_hash_bytes(_EOS_BYTES, 0, len(_EOS_BYTES)))
    seen += 1
    buckets = np.uint64(settings[1])
    if buckets > 0:
        for i in range(seen):
            mixed = np.uint64(np.int64(codes[i]))
            for j in range(i + 1, min(seen, i + settings[0])):
                mixed = np.uint64(mixed * _MIX + np.uint64(np.int64(codes[j])))
                row = _row_of(np.int64(mixed % buckets), words, pruned)
                if row >= 0:
                    features[used] = row
                    used += 1
    return used


@inner
def find_end(tables):
    """The number of the entry `</s>`, -1 if there is none."""
    entries, bounds, slots, _, _ = tables
    code = _hash_bytes(_EOS_BYTES, 0, len(_EOS_BYTES))
    return _find(_EOS_BYTES, 0, len(_EOS_BYTES), code, entries, bounds, slots)


@inner
def most_features(texts, settings):
    """The maximum number of features of a text, and of words; int64 [D + 1], where each begins."""
    size = np.int64(0)
    for text in range(len(texts) - 1):
        size = max(size, texts[text + 1] - texts[text])
    words = size // 2 + 2
    return words + (size + 2 * words) * settings[3] + words * max(settings[0], 1), words
