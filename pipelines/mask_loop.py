"""The loops of static masking, compiled by numba. Called by `masking.py`, which says what they do.

Legend: B rows, L places a row, K slots.
"""

import numpy as np

from pipelines.compiled import entry, inner

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_PLACE = np.uint64(0xFFFF)
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)
_REPLACE, _RANDOM = 0.8, 0.9  # below: the mask token; below: a random token; else kept


@inner
def _mixed(value):
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inner
def _stream(key, place):
    """A number of its own for each place of each row, not yet mixed."""
    return key + np.uint64(place + 1) * _GAMMA


@entry()
def fill_order(ids, segment_ids, keys, is_special, order):
    """Fills uint64 [B, L]: tokens are picked in this order; _NEVER for specials and padding.

    The lowest 16 bits are the place itself, so no two are equal.

    Returns:
      int64 [B]: ordinary tokens of each row.
    """
    rows, length = ids.shape
    ordinary = np.zeros(rows, np.int64)
    for row in range(rows):
        key = keys[row]
        for place in range(length):
            mixed = (_mixed(_stream(key, place)) & ~_PLACE) | np.uint64(place)
            never = segment_ids[row, place] == 0 or is_special[ids[row, place]]
            order[row, place] = _NEVER if never else mixed
            ordinary[row] += not never
    return ordinary


@inner
def _up_to(values, bound, some):
    """Copies the values up to a bound, in their order, into `some`: how many there are."""
    found = 0
    for value in values:
        some[found] = value  # always, and kept or not: a branch would be guessed wrongly
        found += value <= bound
    return found


@inner
def _nth_smallest(values, number, some):
    """The number-th smallest of a row of `order`, from 1 on; the largest if there are not as many.

    `some` [L + 1] is scratch.
    """
    count = _up_to(values, _NEVER - np.uint64(1), some)
    if count <= number:
        return _NEVER - np.uint64(1)
    # Hashes are spread evenly: few lie beyond where the one looked for is to be expected.
    share = (number + 3.0 * np.sqrt(number) + 3.0) / count
    if share < 0.9:
        found = _up_to(values, np.uint64(share * 18446744073709551616.0), some)
        if found >= number:
            count = found
        else:
            _up_to(values, _NEVER - np.uint64(1), some)
    # Hoare's selection: what is looked for lies between first and last.
    first, last = 0, count - 1
    while first < last:
        pivot, low, high = some[(first + last) // 2], first, last
        while low <= high:
            while some[low] < pivot:
                low += 1
            while some[high] > pivot:
                high -= 1
            if low <= high:
                some[low], some[high] = some[high], some[low]
                low, high = low + 1, high - 1
        if number - 1 <= high:
            last = high
        elif number - 1 >= low:
            first = low
        else:
            break
    return some[number - 1]


@inner
def _first_words(order, is_start, segment_ids, firsts, sizes, stretches):
    """Finds the words of a row: first places, tokens, and which of them stand together.

    Returns:
      How many there are.
    """
    words = stretch = 0
    for place in range(order.size):
        if order[place] == _NEVER:
            continue
        opens = (
            place == 0 or order[place - 1] == _NEVER or segment_ids[place - 1] != segment_ids[place]
        )
        if opens or is_start[place]:
            stretch += opens
            firsts[words], sizes[words], stretches[words] = place, 0, stretch
            words += 1
        sizes[words - 1] += 1
    return words


@entry()
def keep_spans(order, is_start, segment_ids, budgets, keys, bounds, decides):
    """Makes _NEVER what is in no span of words.

    Words begin spans in the order of their first tokens, each as long as is drawn for it. A span
    ends early with its segment, at a special token, before a word of another span, and where the
    next word is not in the budget. A row none of whose words is in its budget (a script without
    spaces, say) keeps its order of single tokens.

    Args:
      order: uint64 [B, L], as `fill_order` made it; changed in place.
      is_start: bool [B, L], whether a token begins a word wherever it stands.
      segment_ids: [B, L].
      budgets: int64 [B], tokens.
      keys: uint64 [B].
      bounds: float64, ascending: a span has a word more than there are bounds up to its draw.
      decides: uint16 [B, L], set to the first place of the span that a token is in.
    """
    rows, length = order.shape
    firsts, sizes = np.empty(length, np.int64), np.empty(length, np.int64)
    stretches, is_kept = np.empty(length, np.int64), np.empty(length, np.bool_)
    for row in range(rows):
        words = _first_words(order[row], is_start[row], segment_ids[row], firsts, sizes, stretches)
        is_kept[:words] = False
        left = budgets[row]
        for first in np.argsort(order[row][firsts[:words]]):
            place = firsts[first]
            draw = _mixed(_mixed(_mixed(_stream(keys[row], place))))  # a third stream
            share = np.float64(draw >> np.uint64(11)) / (1 << 53)
            stop = first + 1 + np.searchsorted(bounds, share, side="right")
            word = first
            while (
                word < min(stop, words)
                and stretches[word] == stretches[first]
                and not is_kept[word]
                and sizes[word] <= left
            ):
                is_kept[word] = True
                left -= sizes[word]
                decides[row, firsts[word] : firsts[word] + sizes[word]] = place
                word += 1
        if left < budgets[row]:
            for word in range(words):
                if not is_kept[word]:
                    order[row, firsts[word] : firsts[word] + sizes[word]] = _NEVER


@entry()
def pick(ids, order, budgets, keys, decides, mask_id, ordinary, positions, labels, weights):
    """Picks the first tokens of each row's order and replaces them.

    Args:
      ids: [B, L], changed in place.
      order: uint64 [B, L], as `fill_order` made it; a token made _NEVER is not picked.
      budgets: int64 [B], how many at most.
      keys: uint64 [B].
      decides: uint16 [B, L], the place whose draw says by what a token is replaced; [0, 0] for its
        own.
      mask_id: what replaces 80 % of them.
      ordinary: ids that random ones are drawn from.
      positions: zeros [B, K], filled with the places picked, ascending.
      labels: zeros [B, K], filled with what was there.
      weights: zeros uint8 [B, K], filled with ones for places picked.
    """
    rows, length = order.shape
    some = np.empty(length + 1, np.uint64)
    for row in range(rows):
        last = _nth_smallest(order[row], budgets[row], some)
        picked = 0
        for place in range(length):
            some[picked] = np.uint64(place)
            picked += order[row, place] <= last
        for slot in range(picked):
            place = np.int64(some[slot])
            positions[row, slot], labels[row, slot] = place, ids[row, place]
            weights[row, slot] = 1
            draw = _mixed(_mixed(_stream(keys[row], place)))  # another stream than that of order
            deciding = draw
            if decides.size:
                deciding = _mixed(_mixed(_stream(keys[row], np.int64(decides[row, place]))))
            share = np.float64(deciding >> np.uint64(40)) / (1 << 24)
            if share < _REPLACE:
                ids[row, place] = mask_id
            elif share < _RANDOM:
                at = (draw & np.uint64(0xFFFFFFFF)) % np.uint64(ordinary.size)
                ids[row, place] = ordinary[at]
