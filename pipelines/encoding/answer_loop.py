"""Finds answers and ends of tokens in the bytes of contexts, compiled by numba.

Called by `answer_places.py`. Legend: C contexts, A answers, N tokens, V ids of the vocabulary.
"""

import numpy as np

from pipelines.host.compiled import entry, inner


@inner
def _is_plain(byte):
    """A letter or a digit of ASCII."""
    lower = byte | 0x20
    return 0x30 <= byte <= 0x39 or 0x61 <= lower <= 0x7A


@entry()
def match_all(data, bounds, context_A, start_A, texts, text_bounds, place_A):
    """Sets int64 [A] to the byte of its context that each answer begins at.

    It is -1 where the answer does not stand at its character, or has no letter or digit of ASCII.
    """
    for answer in range(start_A.size):
        place_A[answer] = -1
        first, last = text_bounds[answer], text_bounds[answer + 1]
        begin, stop = bounds[context_A[answer]], bounds[context_A[answer] + 1]
        place, left = begin, start_A[answer]
        if left < 0:
            continue
        while left and place < stop:
            place += 1
            while place < stop and data[place] & 0xC0 == 0x80:
                place += 1
            left -= 1
        if left or place + last - first > stop:
            continue
        plain, i = False, first
        while i < last and data[place + i - first] == texts[i]:
            plain |= _is_plain(texts[i])
            i += 1
        if plain and i == last:
            place_A[answer] = place - begin


@entry()
def add_up(ids, offsets, data, bounds, spelt, spelt_bounds, end_N, other_C):
    """Sets int64 [N] to the byte after each token, and bool [C] where tokens are not the context.

    Args:
      ids: [N], of vocabulary V.
      offsets: int64 [C + 1], of contexts in the ids.
      data: uint8, contexts one after another.
      bounds: int64 [C + 1], of contexts in the data.
      spelt: uint8, what the ids stand for, one after another.
      spelt_bounds: int64 [V + 1].
      end_N: set.
      other_C: set; the ends of these tokens mean nothing.
    """
    for context in range(other_C.size):
        place, stop, same = bounds[context], bounds[context + 1], True
        for token in range(offsets[context], offsets[context + 1]):
            first = spelt_bounds[ids[token]]
            length = spelt_bounds[ids[token] + np.uint32(1)] - first
            same = same and place + length <= stop
            i = 0
            while same and i < length:
                same = data[place + i] == spelt[first + i]
                i += 1
            place += length
            end_N[token] = place - bounds[context]
        other_C[context] = not same or place != stop
