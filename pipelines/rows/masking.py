"""Static masks for masked language modelling (Devlin et al., 2019), keyed by (seed, row content).

Every random number is a hash of the row's key and a position, so a row always gets the same masks.
Legend: B rows, L positions of a row, K slots.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from textmill.pipelines.runtime.compiled import entry, inner

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's step from one number to the next
NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)  # sorts last: not to be masked
POSITION = np.uint64(0xFFFF)  # no row has a position 65,535: see features.MAX_TOKENS
_REPLACE, _RANDOM = 0.8, 0.9  # below the first: mask token; below the second: random token
# The words of a span are geometric with p = 0.2, from 1 to 10, as in SpanBERT (Joshi et al., 2020):
# 3.8 on average. A draw from 0 to 1 gives 1 + the number of bounds that do not exceed it.
SPAN_SHARES = 0.8 ** np.arange(10)
SPAN_SHARES /= SPAN_SHARES.sum()
_SPAN_BOUNDS = np.cumsum(SPAN_SHARES)[:-1]


@inner
def mix(values):
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@inner
def share_of(number):
    """A uint64 as a number from 0 to 1."""
    return np.float64(number >> np.uint64(11)) / (1 << 53)


@dataclass(frozen=True)
class Masking:
    """How rows are masked.

    Attributes:
      rate: share of a row's ordinary tokens that is picked.
      slots: K, the most tokens that are picked in a row.
      mask_id: the id that replaces 80 % of the picked tokens.
      is_special: bool [vocabulary], ids that are never picked and never drawn.
      is_word_start: bool [vocabulary], ids that begin a word; needed for words and spans.
      unit: token, word or span: what is picked as a whole. A span is also replaced as a whole.
    """

    rate: float
    slots: int
    mask_id: int
    is_special: np.ndarray
    is_word_start: np.ndarray | None = None
    unit: str = "token"

    def apply(
        self, input_ids_BxL: np.ndarray, segment_ids_BxL: np.ndarray, key_B: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Picks and replaces tokens.

        Args:
          input_ids_BxL: the ids of the rows.
          segment_ids_BxL: 0 at padding.
          key_B: uint64, a hash of each row's (seed, content).

        Returns:
          The columns input_ids, masked_positions, masked_ids and masked_weights.
        """
        ids_BxL = np.array(input_ids_BxL, order="C")
        order_BxL = np.empty(ids_BxL.shape, np.uint64)
        ordinary_B = fill_order(ids_BxL, segment_ids_BxL, key_B, self.is_special, order_BxL)
        budget_B = np.minimum(np.maximum(np.rint(ordinary_B * self.rate), 1), self.slots)
        budget_B = budget_B.astype(np.int64)
        decides_BxL = np.zeros((0, 0), np.uint16)  # each token decides for itself
        if self.is_word_start is not None and self.unit != "token":
            is_start_BxL = self.is_word_start[ids_BxL]
            if self.unit == "span":
                decides_BxL = np.tile(np.arange(ids_BxL.shape[1], dtype=np.uint16), (len(key_B), 1))
                beside = segment_ids_BxL, budget_B, key_B, _SPAN_BOUNDS
                keep_spans(order_BxL, is_start_BxL, *beside, decides_BxL)
            else:
                keep_words(order_BxL, is_start_BxL, segment_ids_BxL, budget_B, key_B)
        shape = (len(ids_BxL), self.slots)
        columns = {
            "masked_positions": np.zeros(shape, np.uint16),
            "masked_ids": np.zeros(shape, ids_BxL.dtype),
            "masked_weights": np.zeros(shape, np.uint8),
        }
        drawn = key_B, decides_BxL, self.mask_id, self._ordinary
        pick(ids_BxL, order_BxL, ordinary_B, budget_B, *drawn, *columns.values())
        return {"input_ids": ids_BxL, **columns}

    @cached_property
    def _ordinary(self) -> np.ndarray:
        """The ids from which random ones are drawn."""
        return np.flatnonzero(~self.is_special)


# ---- compiled ----


@inner
def _stream(key, place):
    """A different number for each position of each row, not yet mixed."""
    return key + np.uint64(place + 1) * GAMMA


@inner
def _third_share(key, place):
    """A random number from 0 to 1, independent of those for the order and for replacement."""
    return share_of(mix(mix(mix(_stream(key, place)))))


@entry()
def fill_order(ids, segment_ids, keys, is_special, order):
    """Fills `order`, uint64 [B, L], by which tokens are picked; NEVER at specials and padding.

    The lowest 16 bits are the position itself, so no two are equal.

    Returns:
      int64 [B]: the number of ordinary tokens of each row.
    """
    rows, length = ids.shape
    ordinary = np.zeros(rows, np.int64)
    for row in range(rows):
        key, numbers = keys[row], order[row]
        for place in range(length):  # a separate loop, so that LLVM vectorizes it
            numbers[place] = (mix(_stream(key, place)) & ~POSITION) | np.uint64(place)
        for place in range(length):
            never = (segment_ids[row, place] == 0) | is_special[ids[row, place]]
            if never:
                numbers[place] = NEVER
            ordinary[row] += not never
    return ordinary


@inner
def _up_to(values, bound, some):
    """Copies the values up to a bound, in their order, into `some`; returns how many."""
    found = 0
    for value in values:
        some[found] = value  # always, to avoid a branch that would be mispredicted
        found += value <= bound
    return found


@inner
def _first_ones(values, number, ordinary, some):
    """Copies into `some` small values of a row of `order`, among them the `number` smallest.

    Hashes are uniform, so a bound slightly above the expected one excludes most other values.

    Returns:
      The number of copied values, in their order; below `number` if the row has fewer.
    """
    share = (number + 3.0 * np.sqrt(number) + 3.0) / max(ordinary, 1)
    if share < 0.9:
        found = _up_to(values, np.uint64(share * 18446744073709551616.0), some)
        if found >= number:
            return found
    return _up_to(values, NEVER - np.uint64(1), some)


@inner
def _bound_of(values, number):
    """A bound that exactly `number` of the values do not exceed; there must be more values.

    Interpolation finds it, since the values are uniform, and bisection in the end: counting is
    vectorized, while a selection would need branches that are mispredicted.
    """
    low, high = np.uint64(0), NEVER
    below, up_to = 0, values.size  # values up to `low` and up to `high`
    steps = 0
    while True:
        share = (number - below + 0.5) / (up_to - below + 1) if steps < 8 else 0.5
        middle = low + np.uint64(np.float64(high - low) * share)
        count = 0
        for value in values:
            count += value <= middle
        if count == number:
            return middle
        if count < number:
            low, below = middle, count
        else:
            high, up_to = middle, count
        steps += 1


@inner
def _first_words(order, is_start, segment_ids, firsts, sizes, stretches):
    """Finds the words of a row: first positions, sizes in tokens, and uninterrupted stretches.

    Returns:
      The number of words.
    """
    words = stretch = 0
    for place in range(order.size):
        if order[place] == NEVER:
            continue
        opens = (
            place == 0 or order[place - 1] == NEVER or segment_ids[place - 1] != segment_ids[place]
        )
        if opens or is_start[place]:
            stretch += opens
            firsts[words], sizes[words], stretches[words] = place, 0, stretch
            words += 1
        sizes[words - 1] += 1
    return words


@inner
def _keep_while_they_fit(words, sizes, left, is_kept):
    """Takes words in their order, except those that do not fit; returns the remaining budget."""
    for word in words:
        if not is_kept[word] and sizes[word] <= left:
            is_kept[word] = True
            left -= sizes[word]
    return left


@inner
def _choose_words(shuffled, sizes, shares, budget, is_kept):
    """Takes whole words with `budget` tokens, or with fewer if no other word fits.

    Words are taken in a random order. The first one that does not fit is taken with a probability
    equal to the share of it that would fit, and then replaces the words taken last; so words of all
    lengths are equally likely to be masked. The remaining budget goes to the next words that fit.

    Args:
      shuffled: int64 [W], the words in a random order.
      sizes: int64 [W], tokens of each word.
      shares: float64 [W], a random number from 0 to 1 for each word.
      budget: tokens.
      is_kept: bool [W], False at first; set for the words that are taken.

    Returns:
      The remaining tokens of the budget.
    """
    left, turn = budget, 0
    while turn < shuffled.size and sizes[shuffled[turn]] <= left:
        is_kept[shuffled[turn]] = True
        left -= sizes[shuffled[turn]]
        turn += 1
    if turn < shuffled.size:
        word, last = shuffled[turn], turn
        if sizes[word] <= budget and shares[word] * sizes[word] < left:
            while sizes[word] > left:
                last -= 1
                is_kept[shuffled[last]] = False
                left += sizes[shuffled[last]]
            is_kept[word] = True
            left -= sizes[word]
        left = _keep_while_they_fit(shuffled[turn + 1 :], sizes, left, is_kept)
        left = _keep_while_they_fit(shuffled[:turn], sizes, left, is_kept)
    return left


@entry()
def keep_words(order, is_start, segment_ids, budgets, keys):
    """Chooses whole words and sets all other tokens to NEVER.

    If no word of a row fits its budget, as in a script without spaces, the row keeps its order of
    single tokens.

    Args:
      order: uint64 [B, L], from `fill_order`; changed in place.
      is_start: bool [B, L], whether the token begins a word at any position.
      segment_ids: [B, L].
      budgets: int64 [B], tokens.
      keys: uint64 [B].
    """
    rows, length = order.shape
    firsts, sizes = np.empty(length, np.int64), np.empty(length, np.int64)
    stretches, is_kept = np.empty(length, np.int64), np.empty(length, np.bool_)
    shares = np.empty(length, np.float64)
    for row in range(rows):
        words = _first_words(order[row], is_start[row], segment_ids[row], firsts, sizes, stretches)
        for word in range(words):
            is_kept[word], shares[word] = False, _third_share(keys[row], firsts[word])
        shuffled = np.argsort(order[row][firsts[:words]])
        if _choose_words(shuffled, sizes, shares, budgets[row], is_kept) < budgets[row]:
            for word in range(words):
                if not is_kept[word]:
                    order[row, firsts[word] : firsts[word] + sizes[word]] = NEVER


@entry()
def keep_spans(order, is_start, segment_ids, budgets, keys, bounds, decides):
    """Chooses spans of words and sets all other tokens to NEVER.

    Words begin spans in the order of their first tokens; the length of each span is drawn. A span
    ends early at the end of its segment, at a special token, before a word of another span, and if
    the next word exceeds the budget. If no word of a row fits its budget, as in a script without
    spaces, the row keeps its order of single tokens.

    Args:
      order: uint64 [B, L], from `fill_order`; changed in place.
      is_start: bool [B, L], whether the token begins a word at any position.
      segment_ids: [B, L].
      budgets: int64 [B], tokens.
      keys: uint64 [B].
      bounds: float64, ascending: a span has 1 + the number of bounds up to its draw words.
      decides: uint16 [B, L], receives the first position of each token's span.
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
            share = _third_share(keys[row], place)
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
                    order[row, firsts[word] : firsts[word] + sizes[word]] = NEVER


@entry()
def pick(
    ids, order, ordinary, budgets, keys, decides, mask_id, drawn_from, positions, labels, weights
):
    """Picks the first tokens of each row's order and replaces them.

    Args:
      ids: [B, L], changed in place.
      order: uint64 [B, L], from `fill_order`; tokens that are NEVER are not picked.
      ordinary: int64 [B], ordinary tokens of each row.
      budgets: int64 [B], the most tokens that are picked.
      keys: uint64 [B].
      decides: uint16 [B, L], the position whose draw decides how a token is replaced; empty if each
        decides for itself.
      mask_id: the id that replaces 80 % of the picked tokens.
      drawn_from: the ids from which random ones are drawn.
      positions: zeros [B, K], receives the picked positions, ascending.
      labels: zeros [B, K], receives the original ids.
      weights: zeros uint8 [B, K], receives ones for picked positions.
    """
    rows, length = order.shape
    some = np.empty(length + 1, np.uint64)
    for row in range(rows):
        found = _first_ones(order[row], budgets[row], ordinary[row], some)
        if found > budgets[row]:
            bound = _bound_of(some[:found], budgets[row])
            found = _up_to(some[:found], bound, some)
        for slot in range(found):
            place = np.int64(some[slot] & POSITION)
            positions[row, slot], labels[row, slot] = place, ids[row, place]
            weights[row, slot] = 1
            draw = mix(mix(_stream(keys[row], place)))  # independent of the number in `order`
            deciding = draw
            if decides.size:
                deciding = mix(mix(_stream(keys[row], np.int64(decides[row, place]))))
            share = np.float64(deciding >> np.uint64(40)) / (1 << 24)
            if share < _REPLACE:
                ids[row, place] = mask_id
            elif share < _RANDOM:
                at = (draw & np.uint64(0xFFFFFFFF)) % np.uint64(drawn_from.size)
                ids[row, place] = drawn_from[at]
