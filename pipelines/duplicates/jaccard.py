"""Exact Jaccard similarity of sets of shingles. Pure."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pipelines.duplicates.jaccard_loop import count_common
from pipelines.duplicates.shingles import LARGEST_SET
from pipelines.rows.ragged import Ragged


class Verified(NamedTuple):
    """What sets say about pairs.

    Attributes:
      is_near: bool [p], whether they are as similar as the threshold, with no rounding.
      similarities: float64 [p].
    """

    is_near: np.ndarray
    similarities: np.ndarray


def verify(sets: Ragged, firsts: np.ndarray, seconds: np.ndarray, threshold: Fraction) -> Verified:
    """Compares pairs of sets.

    A set of LARGEST_SET is a part of a larger one, its smallest hashes: two sets are then compared
    up to the last hash of such a one. That is a fair sample of both, of 65,536 hashes at least,
    whose similarity differs from that of all by 0.002 (a standard deviation, at 0.8).

    Args:
      sets: of `shingle_sets`.
      firsts: int64 [p], numbers of sets.
      seconds: int64 [p], what each is compared with.
      threshold: from which on two are near.
    """
    common, union = np.empty((2, len(firsts)), np.int64)
    pairs = np.ascontiguousarray(firsts), np.ascontiguousarray(seconds)
    count_common(sets.values, sets.offsets, *pairs, LARGEST_SET, common, union)
    return Verified(
        (common * threshold.denominator >= union * threshold.numerator) & (union > 0),
        common / np.maximum(union, 1),
    )
