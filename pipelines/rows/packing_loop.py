"""Fills rows from how many segments there are of each length, compiled by numba.

Called by `packing.py`. Legend: L places a row, D different lengths, P parts of rows. Rows are said
as int64 [P, 4]: from a first row on, so many rows, hold a length, so many times.

In the search a row in the making is int64 [L, 2], its parts: a length, and how many segments of it.
What is left is two int64 [L + 1]: `left_L`, how many of each length, and `upto_L`, the way to the
longest up to a length.
"""

import numpy as np

from pipelines.host.compiled import entry, inner

_ROW_STEPS = 2000  # of the search for one row; nearly all end long before


@inner
def _fullest(open_L, blocks, length):
    """The fewest free places, of rows with open ones, that take a length; above L if none has."""
    free = length
    while free < open_L.size and open_L[free] < 0:
        free += 1 if blocks[free >> 8] else 256 - (free & 255)
    return free


@entry()
def best_fit(count_L):
    """Best-fit decreasing: the longest first, each into the fullest row that takes it.

    All of one length at once, as many a row as fit (Ding et al., "Fewer Truncations Improve
    Language Modeling", 2024, pack so for language models).

    Args:
      count_L: int64 [L + 1], segments of each length, none of length 0.

    Returns:
      How many rows, and int64 [P, 4].
    """
    most, rows, parts = count_L.size - 1, 0, 0
    parts_P = np.empty((count_L.sum(), 4), np.int64)
    # Rows alike, one after another: first, how many, and the next such of as many free places.
    alike = np.empty((2 * len(parts_P), 3), np.int64)
    open_L, blocks, size = np.full(count_L.size, -1), np.zeros((most >> 8) + 1, np.int64), 0
    for length in range(most, 0, -1):
        left = count_L[length]
        while left:
            free = _fullest(open_L, blocks, length)
            if free > most:
                free, first, some = most, rows, -(-left // (most // length))
                rows += some
            else:
                first, some, open_L[free] = alike[open_L[free]]
                blocks[free >> 8] -= 1
            times = min(free // length, left)
            used = min(left // times, some)
            parts_P[parts] = first, used, length, times
            parts += 1
            left -= used * times
            for begin, number, places in (
                (first, used, free - times * length),
                (first + used, some - used, free),
            ):
                if number and places:
                    alike[size] = begin, number, open_L[places]
                    open_L[places] = size
                    blocks[places >> 8] += 1
                    size += 1
    return rows, parts_P[:parts]


@inner
def _longest(upto_L, length):
    """The longest that is left of those up to a length, or 0. Shortens the way for the next."""
    while upto_L[length] != length:
        upto_L[length] = upto_L[upto_L[length]]
        length = upto_L[length]
    return length


@inner
def _times(row, parts, length):
    """How many segments of a length lie in a row of so many parts."""
    times = 0
    for part in range(parts):
        if row[part, 0] == length:
            times += row[part, 1]
    return times


@inner
def _take_longest(row, left_L, upto_L, first):
    """Fills a row with the longest that fits, again and again: its parts, and places left free."""
    parts, length, free = 0, first, left_L.size - 1
    while length:
        row[parts] = length, min(left_L[length], free // length)
        free -= length * row[parts, 1]
        length = _longest(upto_L, min(free, length - 1))
        parts += 1
    return parts, free


@inner
def _search(row, left_L, upto_L, first, order_D, slack):
    """Looks for what fills a row, but for `slack` places, beside one segment of a length.

    Goes depth first through the lengths in the order given, and looks the last segment up: that is
    the longest of them, so that each other takes at most half of what is free.

    Returns:
      The row's parts, or 0 if none was found; places left free; steps taken.
    """
    rank_P = np.empty(len(row), np.int64)
    row[0] = first, 1
    parts, free, at, steps = 1, left_L.size - 1 - first, 0, 0
    while steps < _ROW_STEPS:
        last = _longest(upto_L, free)
        if last and free - last <= slack and _times(row, parts, last) < left_L[last]:
            row[parts] = last, 1
            return parts + 1, free - last, steps
        while at < order_D.size and (
            order_D[at] * 2 > free or left_L[order_D[at]] == (order_D[at] == first)
        ):
            at += 1
            steps += 1
        if at < order_D.size:
            length = order_D[at]
            rank_P[parts] = at
            row[parts] = length, min(left_L[length] - (length == first), free // length)
            free -= length * row[parts, 1]
            parts += 1
            if free <= slack:
                return parts, free, steps
        elif parts > 1:  # one segment less of the last part, or of the one before
            at = rank_P[parts - 1]
            free += order_D[at]
            row[parts - 1, 1] -= 1
            parts -= row[parts - 1, 1] == 0
        else:
            break
        at += 1
        steps += 1
    return 0, free, steps


@inner
def _first(left_L, upto_L, order_D, most_left):
    """What the next row begins with, or 0: the longest, or below half a row what is left most."""
    first = _longest(upto_L, left_L.size - 1)
    if most_left and first * 2 < left_L.size:
        for length in order_D:
            if left_L[length] * length > left_L[first] * first:
                first = length
    return first


@entry()
def fill(count_L, order_D, slack, most_left, steps):
    """Puts all segments into rows: finds a row, and makes as many like it as there can be.

    Args:
      count_L: int64 [L + 1], segments of each length, none of length 0.
      order_D: int64, the lengths there are, in the order in which the search tries them.
      slack: places that the search may leave free in a row.
      most_left: begin rows with the length that has most tokens left, as soon as the longest is no
        longer than half a row; if not, with the longest.
      steps: of the search, in all. Rows that it does not find take the longest that fits, again and
        again.

    Returns:
      How many rows, and int64 [P, 4].
    """
    left_L = count_L.copy()
    upto_L = np.maximum(np.arange(left_L.size) - (left_L == 0), 0)
    row, other = np.empty((left_L.size, 2), np.int64), np.empty((left_L.size, 2), np.int64)
    rows, size, parts_P = 0, 0, np.empty((left_L.sum(), 4), np.int64)
    first = _first(left_L, upto_L, order_D, most_left)
    while first:
        parts, free = _take_longest(row, left_L, upto_L, first)
        if free > slack and steps > 0:
            found, rest, taken = _search(other, left_L, upto_L, first, order_D, slack)
            steps -= taken
            if found:
                row, other, parts, free = other, row, found, rest
        alike = left_L[first]
        for part in range(parts):
            alike = min(alike, left_L[row[part, 0]] // _times(row, parts, row[part, 0]))
        if free <= slack:  # half of them: what the next rows can choose from stays manifold
            alike = (alike + 1) // 2
        for part in range(parts):
            length, times = row[part]
            parts_P[size] = rows, alike, length, times
            size += 1
            left_L[length] -= alike * times
            if not left_L[length]:
                upto_L[length] = length - 1
        rows += alike
        steps -= order_D.size * (most_left and first * 2 < left_L.size)
        first = _first(left_L, upto_L, order_D, most_left and steps > 0)
    return rows, parts_P[:size]
