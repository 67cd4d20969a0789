"""T5's spans: as published, uniform, and the pair gives the text back."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.task_rows import restored
from textmill.pipelines.tasks.span_corruption import Noise

T5 = Noise(0.15, 3.0)
SENTINELS = np.arange(900, 990, dtype=np.uint16)
EOS = 1


def noise_mask(length, density, mean_length, shuffle):
    """`random_spans_noise_mask` of T5's preprocessors, step by step in numpy.

    `shuffle(items, segments)` is its random_segmentation: lengths of non-empty segments.
    """
    original, length = length, max(length, 2)
    noise = int(np.round(np.float64(length) * density))
    noise = min(max(noise, 1), length - 1)
    spans = max(int(np.round(np.float64(noise) / mean_length)), 1)
    noise_lengths = shuffle(noise, spans)
    nonnoise_lengths = shuffle(length - noise, spans)
    interleaved = np.stack([nonnoise_lengths, noise_lengths], axis=1).reshape(spans * 2)
    starts = np.cumsum(interleaved)[:-1]
    indicator = np.zeros(length, int)
    np.add.at(indicator, starts, 1)
    return (np.cumsum(indicator) % 2 == 1)[:original]


def spans_of(lengths, noise=T5, seed=0):
    offsets = np.append(0, np.cumsum(lengths, dtype=int))
    keys = np.random.default_rng(seed).integers(0, 1 << 63, len(lengths)).astype(np.uint64)
    return noise.spans(offsets, keys)


def is_noise_of(spans):
    """bool, of each token of the stream."""
    is_noise = np.zeros(int(spans.offsets[-1]), bool)
    for start, length in zip(spans.start_N.tolist(), spans.length_N.tolist(), strict=True):
        is_noise[start : start + length] = True
    return is_noise


@pytest.mark.parametrize(("density", "mean_length"), [(0.15, 3.0), (0.5, 3.0), (0.15, 8.0)])
def test_spans_are_those_of_the_published_definition(density, mean_length):
    lengths = np.arange(1, 400)
    spans = spans_of(lengths, Noise(density, mean_length))
    is_noise = is_noise_of(spans)
    for piece, length in enumerate(lengths):
        mine = is_noise[spans.offsets[piece] : spans.offsets[piece + 1]]
        taken = spans.piece_N == piece
        own = spans.length_N[taken]
        before = np.append(spans.offsets[piece], (spans.start_N + spans.length_N)[taken][:-1])
        gaps = spans.start_N[taken] - before

        def drawn(items, segments, own=own, gaps=gaps, length=length):
            if length == 1:  # one token and one of padding, which is cut off again
                return np.array([1])
            [lengths] = [side for side in (own, gaps) if side.sum() == items][:1]
            assert len(lengths) == segments and lengths.min() >= 1
            return lengths

        if own.sum() * 2 != length:  # their sums show which of the two is meant
            assert (noise_mask(length, density, mean_length, drawn) == mine).all()


def test_every_way_to_cut_has_the_same_chance():
    # 8 tokens, half of them noise in 2 spans: 3 ways to cut each half, drawn apart.
    spans = spans_of(np.full(20_000, 8), Noise(0.5, 2.0))
    firsts = spans.length_N.reshape(-1, 2)[:, 0]
    gaps = (spans.start_N - spans.offsets[:-1][spans.piece_N]).reshape(-1, 2)[:, 0]
    for ways in itertools.product((1, 2, 3), (1, 2, 3)):
        share = ((firsts == ways[0]) & (gaps == ways[1])).mean()
        assert abs(share - 1 / 9) < 5 * np.sqrt(1 / 9 * 8 / 9 / 20_000)


def test_amounts_of_noise_by_hand():
    """A first token stays, and there is text before each span."""
    noise, spans = T5.counts(np.array([1, 2, 7, 100]))
    assert (noise.tolist(), spans.tolist()) == ([0, 1, 1, 15], [0, 1, 1, 5])
    noise, spans = Noise(0.9, 2.0).counts(np.array([1, 2, 10, 20, 30]))
    assert (noise.tolist(), spans.tolist()) == ([0, 1, 9, 18, 27], [0, 1, 1, 2, 3])
    noise, spans = Noise(0.99, 30.0).counts(np.array([2, 20, 200]))
    assert (noise.tolist(), spans.tolist()) == ([1, 19, 198], [1, 1, 2])


def test_lengths_are_t5s():
    assert T5.longest_piece(512) == 568, "568 tokens give inputs of 512 and targets of 114"
    assert [int(n[0]) for n in T5.row_lengths(np.array([568]))] == [512, 114]
    assert T5.longest_piece(512, 60) < 300
    assert T5.longest_piece(3) == 2 and T5.longest_piece(2) == 1
    longest = Noise(0.99, 3).longest_piece(1 << 20)  # targets have at most 65,535 tokens
    targets = Noise(0.99, 3).row_lengths(np.array([longest, longest + 1]))[1]
    assert targets.tolist() == [65_535, 65_536]


@given(st.floats(0.01, 0.99), st.floats(1, 20), st.integers(2, 300), st.integers(2, 300))
def test_the_longest_piece_is_the_longest(density, mean_length, inputs, targets):
    noise = Noise(density, mean_length)
    lengths = np.arange(1, 40_000)
    inputs_P, targets_P = noise.row_lengths(lengths)
    assert (np.diff(inputs_P) >= 0).all() and (np.diff(targets_P) >= 0).all()
    fitting = lengths[(inputs_P <= inputs) & (targets_P <= targets)]
    assert noise.longest_piece(inputs, targets) == fitting.max(initial=0)


@given(
    st.lists(st.integers(1, 120), max_size=30),
    st.sampled_from([T5, Noise(0.5, 3.0), Noise(0.3, 1.0), Noise(0.01, 5.0), Noise(0.9, 2.0)]),
    st.integers(0, 99),
)
def test_the_pair_gives_the_text_back(lengths, noise, seed):
    spans = spans_of(lengths, noise, seed)
    ids = np.random.default_rng(seed).integers(2, 900, sum(lengths)).astype(np.uint16)
    (inputs, input_offsets), (targets, target_offsets) = spans.pairs(ids, SENTINELS, EOS)
    assert inputs.dtype == targets.dtype == np.uint16
    expected = noise.row_lengths(np.array(lengths, int))
    assert np.diff(input_offsets).tolist() == expected[0].tolist()
    assert np.diff(target_offsets).tolist() == expected[1].tolist()
    for piece in range(len(lengths)):
        pair = (
            stream[offsets[piece] : offsets[piece + 1]].tolist()
            for stream, offsets in ((inputs, input_offsets), (targets, target_offsets))
        )
        assert (
            restored(pair, SENTINELS.tolist(), EOS)
            == ids[spans.offsets[piece] : spans.offsets[piece + 1]].tolist()
        )


def test_more_spans_than_sentinels_are_refused():
    spans = spans_of([100])
    with pytest.raises(ValueError, match="5 spans in a piece, 4 sentinels"):
        spans.pairs(np.zeros(100, np.uint16), SENTINELS[:4], EOS)
