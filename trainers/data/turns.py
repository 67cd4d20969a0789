"""Which dataset of a mixture each position of the stream reads: exact turns, in stages. Pure.

A stage has its shares of the rows from a position on, until the next stage begins. Within it the
datasets alternate as evenly as possible: its first n rows have n * w of a dataset of share w, up to
half a row for each dataset. A dataset continues its own stream where the stage before left it: that
position is a sum of whole numbers, so that any position of any stage is computed, not counted.

With shares 0.7 and 0.3 the first ten rows are of 0 1 0 0 0 1 0 0 1 0. If a stage of dataset 1 alone
follows, its first row is row 3 of dataset 1's own stream.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Mapping, NamedTuple, Sequence

import numpy as np

from textmill.schemas.errors import UsageError

# Largest denominator of a share: products with a position fit int64 up to 4e12 rows.
FINEST = 10**6


class RowShares(NamedTuple):
    """A stage: rows of the stream before it, and its shares of the rows, by index of the dataset.

    The shares add up to 1; a dataset without a share is not read.
    """

    start: int
    shares: Mapping[int, Fraction]


class Course:
    """The stages of a mixture's stream, from position 0 on; the last one has no end."""

    def __init__(self, stages: Sequence[RowShares]):
        """Takes at least one stage; the first starts at 0, each later one after the one before."""
        self.stages = tuple(stages)
        self._starts = np.array([stage.start for stage in stages], np.int64)
        self._turns = [_turns([*stage.shares.values()]) for stage in stages]
        before: dict[int, int] = {}
        self._before = [before]  # rows of each dataset before a stage
        for number, after in enumerate(self.stages[1:]):
            before = dict(before)
            for index, rows in self._count(number, after.start).items():
                before[index] = before.get(index, 0) + rows
            self._before.append(before)

    @property
    def sets(self) -> list[int]:
        """Indices of the datasets that some stage reads, ascending."""
        return sorted({index for stage in self.stages for index in stage.shares})

    def take(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The dataset of each position, and the position in that dataset's own stream.

        Args:
          positions: integers [n] from 0 on.

        Returns:
          int64 [n] index of the dataset, int64 [n] position in its own stream.
        """
        positions = np.asarray(positions, np.int64)
        set_index, own = np.empty_like(positions), np.empty_like(positions)
        stage_of = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(stage_of):
            here, stage = np.flatnonzero(stage_of == number), self.stages[number]
            place, in_stage = take_turns(positions[here] - stage.start, self._turns[number])
            sets = [*stage.shares]
            before = [self._before[number].get(index, 0) for index in sets]
            set_index[here] = np.array(sets, np.int64)[place]
            own[here] = in_stage + np.array(before, np.int64)[place]
        return set_index, own

    def find(self, index: int, own: np.ndarray) -> np.ndarray:
        """The inverse of `take`: the positions that read these of a dataset's own stream.

        Args:
          index: of the dataset.
          own: integers [n], positions in its own stream that some stage reads; see `counts`.

        Returns:
          int64 [n].
        """
        own = np.asarray(own, np.int64)
        positions = np.empty_like(own)
        before = np.array([counts.get(index, 0) for counts in self._before], np.int64)
        stage_of = np.searchsorted(before, own, side="right") - 1
        for number in np.unique(stage_of):
            here, (start, shares) = np.flatnonzero(stage_of == number), self.stages[number]
            place = [*shares].index(index)
            in_stage = give_turns(place, own[here] - before[number], self._turns[number])
            positions[here] = start + in_stage
        return positions

    def counts(self, rows: int) -> list[dict[int, int]]:
        """The rows of each dataset in each stage, of the first `rows` rows of the stream."""
        ends = [*(stage.start for stage in self.stages[1:]), rows]
        return [
            self._count(number, min(end, rows)) if start < rows else {}
            for number, ((start, _), end) in enumerate(zip(self.stages, ends))
        ]

    def _count(self, number: int, end: int) -> dict[int, int]:
        """The rows of each dataset from the start of a stage to a position in it."""
        start, shares = self.stages[number]
        return dict(zip(shares, count_turns(end - start, self._turns[number])))


def shares_of(names: Sequence[str], weights: Sequence[float | Fraction]) -> tuple[Fraction, ...]:
    """Weights as fractions that add up to 1: 0.7, 0.3 -> 7/10, 3/10."""
    if len(names) != len(weights) or not names:
        raise UsageError(f"{len(weights)} weights for {len(names)} datasets: give one to each")
    for name, weight in zip(names, weights):
        if not (weight > 0 and math.isfinite(weight)):
            raise UsageError(f"{name}: weight {weight} must be above 0; or omit the dataset")
    exact = [Fraction(str(weight)) for weight in weights]  # 0.7 is 7/10
    shares = tuple(weight / sum(exact) for weight in exact)
    for name, share in zip(names, shares):
        if share < Fraction(1, FINEST):
            raise UsageError(
                f"{name}: its weight is below a millionth of the sum; omit the dataset"
            )
    return shares


def _turns(shares: Sequence[Fraction]) -> list[tuple[int, int]]:
    """For each dataset but the last, its share of the rows that the datasets before it leave."""
    left, turns = Fraction(1), []
    for share in shares[:-1]:
        rounded = (share / left).limit_denominator(FINEST)
        turns.append((rounded.numerator, rounded.denominator))
        left -= share
    return turns


def take_turns(
    positions: np.ndarray, turns: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The dataset of each position of a stream, and the position in that dataset's own stream.

    The datasets take turns in order. One with share a/b has round(n * a / b), halves up, of the
    first n rows that the datasets before it leave: it takes position n if that number grows from n
    to n + 1.

    Args:
      positions: integers [n] from 0 on.
      turns: a and b for every dataset but the last, which takes the rest.

    Returns:
      int64 [n] index of the dataset, int64 [n] position in its own stream.
    """
    left = np.asarray(positions, np.int64).copy()  # positions among the rows that are left
    set_index = np.full(len(left), len(turns), np.int64)
    own = np.empty_like(left)
    waiting = np.arange(len(left))
    for index, (part, whole) in enumerate(turns):
        position = left[waiting]
        before = (2 * position * part + whole) // (2 * whole)
        takes = (2 * (position + 1) * part + whole) // (2 * whole) > before
        set_index[waiting[takes]] = index
        own[waiting[takes]] = before[takes]
        left[waiting[~takes]] = (position - before)[~takes]
        waiting = waiting[~takes]
    own[waiting] = left[waiting]
    return set_index, own


def give_turns(place: int, own: np.ndarray, turns: Sequence[tuple[int, int]]) -> np.ndarray:
    """The inverse of `take_turns`: the positions of a stream that a dataset takes.

    Args:
      place: index of the dataset among those that take turns.
      own: int64 [n], positions in its own stream.
      turns: as of `take_turns`.

    Returns:
      int64 [n].
    """
    positions = own
    if place < len(turns):
        part, whole = turns[place]
        positions = -(-whole * (2 * own + 1) // (2 * part)) - 1
    for part, whole in reversed(turns[:place]):  # the positions that it leaves to the others
        positions = whole * (2 * positions + 1) // (2 * (whole - part))
    return positions


def count_turns(rows: int, turns: Sequence[tuple[int, int]]) -> list[int]:
    """How many of the first `rows` positions each dataset takes: 10 with (7, 10) -> 7, 3."""
    counts = []
    for part, whole in turns:
        counts.append((2 * rows * part + whole) // (2 * whole))
        rows -= counts[-1]
    return [*counts, rows]
