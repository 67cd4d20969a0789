"""Static masks for masked language modelling (Devlin et al., 2019), keyed by (seed, row content).

Every random number is a hash of the row's key and a place in the row, so that a row gets the same
masks wherever and whenever it is made. Legend: B rows, L places a row, K slots.
"""

from dataclasses import dataclass

import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)  # sorts last: not to be masked
_PLACE = np.uint64(0xFFFF)  # no row has a place 65,535: see features.MAX_TOKENS
_REPLACE, _RANDOM = 0.8, 0.9  # below: the mask token; below: a random token; else kept


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): uint64 to uint64, a bijection."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


@dataclass(frozen=True)
class Masking:
    """How rows are masked.

    Attributes:
      rate: share of a row's ordinary tokens that is picked.
      slots: K, the most of them.
      mask_id: what replaces 80 % of them.
      is_special: bool [vocabulary], never picked and never drawn.
      is_word_start: bool [vocabulary] to mask whole words, None to mask single tokens.
    """

    rate: float
    slots: int
    mask_id: int
    is_special: np.ndarray
    is_word_start: np.ndarray | None = None

    def apply(
        self, input_ids_BxL: np.ndarray, segment_ids_BxL: np.ndarray, key_B: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Picks and replaces tokens.

        Args:
          input_ids_BxL: ids of whole rows.
          segment_ids_BxL: 0 at padding.
          key_B: uint64, a hash of (seed, content) of each row.

        Returns:
          The columns input_ids, masked_positions, masked_ids and masked_weights.
        """
        order_BxL = self._order(input_ids_BxL, segment_ids_BxL, key_B)
        length = order_BxL.shape[1]
        slots = min(self.slots, length)
        ordinary_B = (order_BxL != _NEVER).sum(axis=1)
        budget_B = np.minimum(np.maximum(np.rint(ordinary_B * self.rate), 1), self.slots)
        if self.is_word_start is not None:
            is_start_BxL = self.is_word_start[input_ids_BxL]
            order_BxL = _whole_words(order_BxL, is_start_BxL, segment_ids_BxL, budget_B)
        first_BxK = np.partition(order_BxL, slots - 1, axis=1)[:, :slots]
        first_BxK.sort(axis=1)
        used_BxK = (first_BxK != _NEVER) & (np.arange(slots) < budget_B[:, None])
        places_BxK = (first_BxK & _PLACE).astype(np.int64)
        positions_BxK = np.sort(np.where(used_BxK, places_BxK, length), axis=1)
        used_BxK = positions_BxK < length
        return self._replace(input_ids_BxL, positions_BxK * used_BxK, used_BxK, key_B)

    def _order(
        self, input_ids_BxL: np.ndarray, segment_ids_BxL: np.ndarray, key_B: np.ndarray
    ) -> np.ndarray:
        """uint64 [B, L]: tokens are picked in this order; _NEVER for specials and padding.

        The lowest 16 bits are the place itself: what is picked tells where it was.
        """
        places_L = np.arange(input_ids_BxL.shape[1], dtype=np.uint64)
        order_BxL = mix(key_B[:, None] + (places_L + np.uint64(1)) * _GAMMA)
        order_BxL &= ~_PLACE
        order_BxL |= places_L
        order_BxL[(segment_ids_BxL == 0) | self.is_special[input_ids_BxL]] = _NEVER
        return order_BxL

    def _replace(
        self,
        input_ids_BxL: np.ndarray,
        positions_BxK: np.ndarray,
        used_BxK: np.ndarray,
        key_B: np.ndarray,
    ) -> dict[str, np.ndarray]:
        masked_ids_BxK = np.where(used_BxK, np.take_along_axis(input_ids_BxL, positions_BxK, 1), 0)
        places = (positions_BxK.astype(np.uint64) + np.uint64(1)) * _GAMMA
        draw_BxK = mix(mix(key_B[:, None] + places))  # another stream than that of _order
        share_BxK = (draw_BxK >> np.uint64(40)) / float(1 << 24)
        ordinary = np.flatnonzero(~self.is_special)
        random_BxK = ordinary[(draw_BxK & np.uint64(0xFFFFFFFF)) % np.uint64(len(ordinary))]
        new_BxK = np.where(share_BxK < _RANDOM, random_BxK, masked_ids_BxK)
        new_BxK = np.where(share_BxK < _REPLACE, self.mask_id, new_BxK)
        masked = input_ids_BxL.copy()
        rows, slots = np.nonzero(used_BxK)
        masked[rows, positions_BxK[rows, slots]] = new_BxK[rows, slots]
        empty = self.slots - positions_BxK.shape[1]
        columns = {
            "masked_positions": positions_BxK.astype(np.uint16),
            "masked_ids": masked_ids_BxK.astype(input_ids_BxL.dtype),
            "masked_weights": used_BxK.astype(np.uint8),
        }
        if empty:
            columns = {name: np.pad(c, ((0, 0), (0, empty))) for name, c in columns.items()}
        return {"input_ids": masked, **columns}


def _whole_words(
    order_BxL: np.ndarray,
    is_start_BxL: np.ndarray,
    segment_ids_BxL: np.ndarray,
    budget_B: np.ndarray,
) -> np.ndarray:
    """Moves tokens so that the first `budget` of the order are whole words.

    Words are taken in the order of their first tokens while they fit. A row none of whose words
    fits (a script without spaces, say) keeps its order of single tokens.
    """
    rows, length = order_BxL.shape
    ordinary_BxL = order_BxL != _NEVER
    before_BxL = np.zeros_like(ordinary_BxL)
    before_BxL[:, 1:] = ordinary_BxL[:, :-1] & (segment_ids_BxL[:, 1:] == segment_ids_BxL[:, :-1])
    starts_BxL = ordinary_BxL & (is_start_BxL | ~before_BxL)
    # Words numbered through the whole batch, for one bincount and one lexsort.
    word = np.cumsum(starts_BxL.ravel()) - 1
    flat = np.flatnonzero(ordinary_BxL.ravel())
    word_of = word[flat]
    first_of_word = np.flatnonzero(starts_BxL.ravel())
    word_length = np.bincount(word_of, minlength=len(first_of_word))
    word_row = first_of_word // length
    word_order = order_BxL.ravel()[first_of_word]
    fits = word_length <= budget_B[word_row]
    by_row = np.lexsort((word_order, ~fits, word_row))
    taken = np.cumsum(np.where(fits, word_length, 0)[by_row])
    row_start = np.searchsorted(word_row, np.arange(rows))
    base = np.concatenate(([0], taken))[row_start]
    chosen = np.zeros(len(first_of_word), bool)
    chosen[by_row] = fits[by_row] & (taken - base[word_row[by_row]] <= budget_B[word_row[by_row]])
    any_chosen_B = np.bincount(word_row[chosen], minlength=rows) > 0
    keep = np.zeros(rows * length, bool)
    keep[flat] = chosen[word_of] | ~any_chosen_B[flat // length]
    return np.where(keep.reshape(rows, length), order_BxL, _NEVER)
