"""Static masks for masked language modelling (Devlin et al., 2019), keyed by (seed, row content).

Every random number is a hash of the row's key and a place in the row, so that a row gets the same
masks wherever and whenever it is made. Legend: B rows, L places a row, K slots.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.rows.draw_loops import fill_order, keep_spans, keep_words, pick

# Words of a span are geometric with p = 0.2, from 1 to 10, as SpanBERT has them (Joshi et al.,
# 2020): 3.8 on average. A draw from 0 to 1 gives 1 + as many words as there are bounds up to it.
SPAN_SHARES = 0.8 ** np.arange(10)
SPAN_SHARES /= SPAN_SHARES.sum()
_SPAN_BOUNDS = np.cumsum(SPAN_SHARES)[:-1]


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
      is_word_start: bool [vocabulary], for words and spans of them.
      unit: what is masked or left: token, word, or span, which is replaced as a whole too.
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
          input_ids_BxL: ids of whole rows.
          segment_ids_BxL: 0 at padding.
          key_B: uint64, a hash of (seed, content) of each row.

        Returns:
          The columns input_ids, masked_positions, masked_ids and masked_weights.
        """
        ids_BxL = np.array(input_ids_BxL, order="C")
        order_BxL = np.empty(ids_BxL.shape, np.uint64)
        ordinary_B = fill_order(ids_BxL, segment_ids_BxL, key_B, self.is_special, order_BxL)
        budget_B = np.minimum(np.maximum(np.rint(ordinary_B * self.rate), 1), self.slots)
        budget_B = budget_B.astype(np.int64)
        decides_BxL = np.zeros((0, 0), np.uint16)  # nobody but a token itself
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
        """Ids that random ones are drawn from."""
        return np.flatnonzero(~self.is_special)
