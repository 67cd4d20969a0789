"""Turns of datasets: exact shares at every moment, in stages, at any position at once."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from textmill.trainers.data.turns import (
    FINEST,
    Course,
    RowShares,
    _turns,
    count_turns,
    shares_of,
    take_turns,
)

MANY = 8000  # rows of a stream to check


def test_turns_worked_by_hand():
    """A share of 0.7: round(0.7 n), halves up, is 0 1 1 2 3 4 4 5 6 6 7 for n = 0 to 10."""
    set_index, own = take_turns(np.arange(10), [(7, 10)])
    assert set_index.tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0]
    assert own.tolist() == [0, 0, 1, 2, 3, 1, 4, 5, 2, 6]
    for weights in ([0.7, 0.3], [7, 3]):
        assert shares_of("ab", weights) == (Fraction(7, 10), Fraction(3, 10))
    assert _turns(shares_of("abc", [0.3333333333333333] * 3)) == [(1, 3), (1, 2)]


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


@given(weights=WEIGHTS)
def test_shares_are_exact_at_every_moment(weights):
    """Each set gave its share of any first n rows, within half a row a set."""
    shares = shares_of(["x"] * len(weights), weights)
    set_index, own = take_turns(np.arange(MANY), _turns(shares))
    gave = np.cumsum(set_index[:, None] == np.arange(len(weights)), axis=0)
    due = np.outer(np.arange(1, MANY + 1), np.array([float(share) for share in shares]))
    rounded = len(weights) * MANY / FINEST  # shares are rounded to a millionth in the loop
    assert np.abs(gave - due).max() <= len(weights) / 2 + rounded
    for index in range(len(weights)):
        mine = own[set_index == index]
        assert mine.tolist() == list(range(len(mine)))  # its stream has no gap


@given(weights=WEIGHTS, start=st.integers(0, 10**12))
def test_any_piece_far_out_is_a_piece_of_the_whole(weights, start):
    turns = _turns(shares_of(["x"] * len(weights), weights))
    whole = take_turns(np.arange(start, start + 90), turns)
    part = take_turns(np.arange(start + 50, start + 90), turns)
    for one, other in zip(whole, part, strict=True):
        assert one[50:].tolist() == other.tolist()
        assert (one >= 0).all()


@given(weights=WEIGHTS, rows=st.integers(0, 3000))
def test_rows_of_a_dataset_are_counted_at_once(weights, rows):
    turns = _turns(shares_of(["x"] * len(weights), weights))
    counted = np.bincount(take_turns(np.arange(rows), turns)[0], minlength=len(weights))
    assert count_turns(rows, turns) == counted.tolist()


# Stages


def test_stages_worked_by_hand():
    """0.7 and 0.3 for ten rows; 1 alone for three; 0 and 2 in halves."""
    half, third = Fraction(1, 2), {0: Fraction(7, 10), 1: Fraction(3, 10)}
    stages = [(0, third), (10, {1: Fraction(1)}), (13, {0: half, 2: half})]
    course = Course([RowShares(*stage) for stage in stages])
    set_index, own = course.take(np.arange(17))
    assert set_index.tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 2, 0, 2]
    assert own.tolist() == [0, 0, 1, 2, 3, 1, 4, 5, 2, 6, 3, 4, 5, 7, 0, 8, 1]
    assert course.counts(17) == [{0: 7, 1: 3}, {1: 3}, {0: 2, 2: 2}]
    assert course.counts(12) == [{0: 7, 1: 3}, {1: 2}, {}]
    assert course.sets == [0, 1, 2]


@st.composite
def courses(draw):
    """One to four stages of up to four datasets, each of which reads some of them."""
    stages, start = [], 0
    for _ in range(draw(st.integers(1, 4))):
        sets = sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
        weights = draw(st.lists(st.floats(0.01, 100), min_size=len(sets), max_size=len(sets)))
        stages.append(RowShares(start, dict(zip(sets, shares_of(sets, weights), strict=True))))
        start += draw(st.integers(1, 1500))
    return Course(stages)


@given(course=courses(), pieces=st.lists(st.integers(0, 4000), max_size=5))
def test_any_pieces_of_a_course_are_the_whole(course, pieces):
    """Each dataset's own stream has no gap, whatever stages read it, and shares hold in each."""
    cuts = [0, *sorted(pieces), 4000]
    parts = [course.take(np.arange(*cut)) for cut in zip(cuts, cuts[1:], strict=False)]
    set_index, own = (np.concatenate(column) for column in zip(*parts, strict=True))
    for index in range(4):
        mine = own[set_index == index]
        assert mine.tolist() == list(range(len(mine)))
    bounds = [*(stage.start for stage in course.stages), 4000]
    for number, (stage, counts) in enumerate(zip(course.stages, course.counts(4000), strict=True)):
        here = set_index[bounds[number] : bounds[number + 1]]
        counted = {index: int((here == index).sum()) for index in range(4)}
        assert counted == {**dict.fromkeys(range(4), 0), **counts}
        for index, share in stage.shares.items():
            gave = np.cumsum(here == index)
            due = np.arange(1, len(here) + 1) * float(share)
            rounded = len(stage.shares) * MANY / FINEST
            assert len(here) == 0 or np.abs(gave - due).max() <= len(stage.shares) / 2 + rounded


@given(course=courses(), start=st.integers(0, 10**11))
def test_far_out_in_the_last_stage(course, start):
    whole = course.take(np.arange(start, start + 90))
    part = course.take(np.arange(start + 50, start + 90))
    for one, other in zip(whole, part, strict=True):
        assert one[50:].tolist() == other.tolist() and (one >= 0).all()


@given(
    weights=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 40), min_size=4, max_size=4),
)
def test_positions_are_found_again(weights, lengths):
    """For every dataset of every stage, those without a share in some stages too."""
    stages, start = [], 0
    for parts, length in zip(weights, lengths, strict=False):
        shares = {n: Fraction(part, sum(parts)) for n, part in enumerate(parts) if part}
        if shares:
            stages.append(RowShares(start, shares))
            start += length
    if not stages:
        return
    course, positions = Course(stages), np.arange(start + 20)
    set_index, own = course.take(positions)
    for index in course.sets:
        here = set_index == index
        assert course.find(index, own[here]).tolist() == positions[here].tolist()


def test_far_positions_are_found_again():
    """Where products of numbers are the largest."""
    course = Course([RowShares(0, dict(enumerate(shares_of("abc", [1, 999_998, 1]))))])
    positions = np.arange(4 * 10**12 - 3, 4 * 10**12)
    set_index, own = course.take(positions)
    for index in np.unique(set_index).tolist():
        here = set_index == index
        assert course.find(index, own[here]).tolist() == positions[here].tolist()
