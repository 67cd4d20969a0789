"""Windows over long contexts: worked by hand, and held to what they promise."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tasks.questions import EVERY, FIRST, HOLDING, NONE, choose_windows


def choose(wanted, length, room, start=0, stop=0, stride=128):
    """Windows of one document, as (start, stop)."""
    one = [np.array([value]) for value in (wanted, length, room, start, stop)]
    windows = choose_windows(
        one[0], length_D=one[1], room_D=one[2], start_D=one[3], stop_D=one[4], stride=stride
    )
    assert windows.part_W.tolist() == list(range(len(windows.part_W)))
    return list(zip(windows.start_W.tolist(), windows.stop_W.tolist(), strict=True))


def test_every_window_of_a_context():
    assert choose(EVERY, 9, 5, stride=3) == [(0, 5), (3, 8), (6, 9)]
    assert choose(EVERY, 5, 5, stride=3) == [(0, 5)]
    assert choose(EVERY, 6, 5, stride=3) == [(0, 5), (3, 6)]
    assert choose(EVERY, 0, 5) == [(0, 0)]
    assert choose(EVERY, 9, 4) == [(0, 4), (4, 8), (8, 9)]  # no token between two is lost


def test_only_windows_that_hold_the_answer():
    assert choose(HOLDING, 9, 5, 4, 5, stride=3) == [(0, 5), (3, 8)]
    assert choose(HOLDING, 9, 5, 4, 6, stride=3) == [(3, 8)]
    assert choose(HOLDING, 9, 5, 8, 9, stride=3) == [(6, 9)]
    assert choose(HOLDING, 9, 9, 0, 9) == [(0, 9)]


def test_the_stride_shrinks_where_an_answer_would_be_cut():
    # Three tokens of five: windows every 3, so that [2, 5) and [3, 6) each have one.
    assert choose(HOLDING, 20, 5, 3, 6, stride=5) == [(3, 8)]
    assert choose(HOLDING, 20, 5, 2, 5, stride=5) == [(0, 5)]
    assert choose(HOLDING, 20, 5, 7, 12, stride=5) == [(7, 12)]


def test_the_first_window_and_none():
    assert choose(FIRST, 9, 5, 7, 8) == [(0, 5)]
    assert choose(FIRST, 3, 5) == [(0, 3)]
    assert choose(NONE, 9, 5, 7, 8) == []


def test_fresh_tokens_are_those_of_no_window_before():
    windows = choose_windows(
        np.array([EVERY, NONE, HOLDING]),
        length_D=np.array([9, 9, 9]),
        room_D=np.array([5, 5, 5]),
        start_D=np.array([0, 0, 4]),
        stop_D=np.array([0, 0, 5]),
        stride=3,
    )
    assert windows.document_W.tolist() == [0, 0, 0, 2, 2]
    assert windows.part_W.tolist() == [0, 1, 2, 0, 1]
    assert windows.fresh_W().tolist() == [5, 3, 1, 5, 3]


@st.composite
def documents(draw):
    room = draw(st.integers(1, 12))
    length = draw(st.integers(1, 40))
    span = draw(st.integers(1, min(room, length)))
    start = draw(st.integers(0, length - span))
    return draw(st.sampled_from([EVERY, HOLDING, FIRST])), length, room, start, start + span


@given(st.lists(documents(), min_size=1, max_size=8), st.integers(1, 15))
def test_an_answer_is_in_one_window_and_every_token_in_all(cases, stride):
    wanted, length, room, start, stop = np.array(cases).T
    windows = choose_windows(
        wanted, length_D=length, room_D=room, start_D=start, stop_D=stop, stride=stride
    )
    fresh = windows.fresh_W()
    for document in range(len(cases)):
        own = windows.document_W == document
        spans = list(zip(windows.start_W[own].tolist(), windows.stop_W[own].tolist(), strict=True))
        assert spans == sorted(set(spans)) and len(spans) >= 1
        assert all(0 <= a < b <= length[document] and b - a <= room[document] for a, b in spans)
        steps = {b[0] - a[0] for a, b in zip(spans, spans[1:], strict=False)}
        assert len(steps) <= 1 and max(steps, default=1) <= stride
        covered = set().union(*(range(a, b) for a, b in spans))
        assert fresh[own].sum() == len(covered) and (fresh[own] > 0).all()
        assert len(covered) == max(covered) - min(covered) + 1
        if wanted[document] == HOLDING:
            assert all(a <= start[document] and stop[document] <= b for a, b in spans)
        if wanted[document] == EVERY:
            assert len(covered) == length[document]
