"""Every feature of every task: name, dtype, shape, meaning. The one place that knows.

Legend: B rows, L tokens a row, K slots for masked tokens.
"""

from dataclasses import dataclass
from typing import Dict, Tuple

import numpy as np

MAX_TOKENS = 1 << 16  # the longest row: a position must fit in uint16


@dataclass(frozen=True)
class Feature:
    """One column of a row.

    Attributes:
      name: as it is stored, and as trainers read it.
      dtype: numpy's name of it; stored little-endian.
      shape: of one row; () is a scalar.
      meaning: one sentence.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    meaning: str

    @property
    def size(self) -> int:
        """Values in one row."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        """Bytes of one row's values."""
        return self.size * np.dtype(self.dtype).itemsize


def smallest_unsigned(largest: int) -> str:
    """The narrowest unsigned dtype that holds `largest`: 255 -> uint8, 256 -> uint16."""
    for name in ("uint8", "uint16", "uint32"):
        if largest <= np.iinfo(name).max:
            return name
    raise ValueError(f"no feature holds a value of {largest}")


def token_dtype(vocab_size: int) -> str:
    """uint16 if every id fits, else uint32 (never uint8: readers know two widths)."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def _mlm(max_length: int, vocab_size: int, max_masked: int) -> Tuple[Feature, ...]:
    ids = token_dtype(vocab_size)
    row = (max_length,)
    slots = (max_masked,)
    features = (
        Feature("input_ids", ids, row, "token ids; masked already where masking is static"),
        Feature(
            "segment_ids",
            smallest_unsigned(max_length),
            row,
            "0 is padding, 1..n the segments in row order; positions restart at 0 in each",
        ),
    )
    if not max_masked:
        return features
    return features + (
        Feature("masked_positions", "uint16", slots, "where tokens were masked, ascending"),
        Feature("masked_ids", ids, slots, "what stood there before"),
        Feature("masked_weights", "uint8", slots, "1 for a slot in use, 0 for an empty one"),
    )


_TASKS = {"mlm": _mlm}
TASKS = tuple(sorted(_TASKS))


def task_features(
    task: str, *, max_length: int, vocab_size: int, max_masked: int = 0
) -> Tuple[Feature, ...]:
    """The features of a task's rows, sorted by name (the order on disk).

    Args:
      task: one of TASKS.
      max_length: L, tokens a row.
      vocab_size: ids are below it.
      max_masked: K, slots for statically masked tokens; 0 stores no masks.
    """
    if task not in _TASKS:
        raise ValueError("unknown task {!r}: one of {}".format(task, ", ".join(TASKS)))
    features = _TASKS[task](max_length, vocab_size, max_masked)
    return tuple(sorted(features, key=lambda feature: feature.name))


def max_masked_slots(max_length: int, mask_rate: float) -> int:
    """K: the most tokens of a row that static masking picks, `round(rate * L)`, at least 1."""
    return max(1, int(round(mask_rate * max_length)))


def positions_from_segments(segment_ids_BxL: np.ndarray) -> np.ndarray:
    """Positions that restart at 0 in each segment: [[1, 1, 1, 2, 2, 0]] -> [[0, 1, 2, 0, 1, 0]].

    Args:
      segment_ids_BxL: integers, as the feature `segment_ids`.

    Returns:
      int32 [B, L]; 0 at padding.
    """
    index_L = np.arange(segment_ids_BxL.shape[1], dtype=np.int32)
    starts_BxL = np.zeros(segment_ids_BxL.shape, dtype=np.int32)
    changes_BxL = segment_ids_BxL[:, 1:] != segment_ids_BxL[:, :-1]
    starts_BxL[:, 1:] = np.where(changes_BxL, index_L[1:], 0)
    np.maximum.accumulate(starts_BxL, axis=1, out=starts_BxL)
    return np.where(segment_ids_BxL == 0, 0, index_L - starts_BxL)


def unmask(row: Dict[str, np.ndarray]) -> np.ndarray:
    """The ids before static masking.

    Args:
      row: decoded columns of B rows.

    Returns:
      A copy of `input_ids` [B, L] with every masked token put back.
    """
    input_ids = row["input_ids"].copy()
    if "masked_positions" in row:
        rows, slots = np.nonzero(row["masked_weights"])
        input_ids[rows, row["masked_positions"][rows, slots]] = row["masked_ids"][rows, slots]
    return input_ids
