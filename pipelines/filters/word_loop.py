"""Counts words, compiled by numba. Called by `words.py`, which says what a word is."""

import numpy as np

from pipelines.host.compiled import entry, inner


@inner
def _long_space(data, place):
    """Bytes of the white space that begins here with a first byte of several; 0 if none does."""
    first, second = data[place], data[place + 1]
    if first == 0xC2:  # U+0085, U+00A0
        return 2 if second == 0x85 or second == 0xA0 else 0
    if first == 0xE1:  # U+1680
        return 3 if second == 0x9A and data[place + 2] == 0x80 else 0
    if first == 0xE2:  # U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F
        third = data[place + 2]
        if second == 0x81:
            return 3 if third == 0x9F else 0
        if second != 0x80:
            return 0
        return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0
    if first == 0xE3:  # U+3000
        return 3 if second == 0x80 and data[place + 2] == 0x80 else 0
    return 0


@entry()
def count_all(data, bounds, is_space, words_D):
    """Sets int64 [D] to the words of each document.

    Args:
      data: uint8, valid UTF-8 of all documents.
      bounds: int64 [D + 1], where they begin in it.
      is_space: uint8 [256], 1 for white space of one byte.
      words_D: set.
    """
    for document in range(words_D.size):
        words, apart = 0, np.uint8(1)
        place, stop = bounds[document], bounds[document + 1]
        while place < stop:
            byte = data[place]
            space = is_space[byte]
            if byte >= 0xC2:
                length = _long_space(data, place)
                if length:
                    space = np.uint8(1)
                    place += length - 1
            words += apart & (space ^ np.uint8(1))
            apart = space
            place += 1
        words_D[document] = words
