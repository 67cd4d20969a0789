"""Masks and lengths of variable-length attention equal attention within each segment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from textmill.trainers.data.adapters import (
    attention_mask,
    one_segment_per_row,
    segments_of,
    variable_length,
)


@st.composite
def segments(draw):
    """Segment ids [B, L] as packed rows have them: 1, 2, ... one after another, then padding."""
    length = draw(st.integers(1, 12))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(st.integers(1, 5), max_size=5))
        ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)[:length]
        rows.append(np.pad(ids, (0, length - len(ids))))
    return np.array(rows, np.uint8)


def test_variable_length_by_hand():
    flat = variable_length(np.array([[1, 1, 2, 0], [1, 1, 1, 1]], np.uint8))
    assert flat.indices.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert flat.cu_seqlens.tolist() == [0, 2, 3, 7] and flat.cu_seqlens.dtype == np.int32
    assert flat.max_seqlen == 4 and type(flat.max_seqlen) is int
    assert flat.position_ids.tolist() == [0, 1, 0, 0, 1, 2, 3]
    assert flat.take(np.arange(8).reshape(2, 4)).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert flat.take(np.zeros((2, 4, 3))).shape == (7, 3)
    none = variable_length(np.zeros((2, 3), np.uint8))
    assert none.cu_seqlens.tolist() == [0] and none.max_seqlen == 0 and len(none.indices) == 0


def test_masks_by_hand():
    causal = attention_mask(np.array([[1, 1, 2, 0]]), causal=True)
    assert causal.dtype == bool and causal.shape == (1, 1, 4, 4)
    assert causal[0, 0].astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    both = attention_mask(np.array([[1, 1, 2, 0]]), causal=False)
    assert (both[0, 0] == causal[0, 0] | causal[0, 0].T).all()


def attend(q, k, v, mask):
    """softmax(q k^T) v in float64, over what the mask allows."""
    scores = np.where(mask, q @ k.swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


@given(segments(), st.booleans(), st.integers(0, 2**31))
def test_attention_of_each_length_is_attention_under_the_mask(ids, causal, seed):
    """As flash-attention's varlen calls compute it: each segment by itself."""
    q, k, v = np.random.default_rng(seed).normal(size=(3, *ids.shape, 4))
    flat, mask = variable_length(ids), attention_mask(ids, causal=causal)[:, 0]
    expected = flat.take(attend(q, k, v, mask))
    parts = [flat.take(part) for part in (q, k, v)]
    found = np.empty_like(expected)
    for start, end in zip(flat.cu_seqlens[:-1], flat.cu_seqlens[1:], strict=True):
        assert 0 < end - start <= flat.max_seqlen
        allowed = np.ones((end - start, end - start), bool)
        here_q, here_k, here_v = (part[start:end] for part in parts)
        allowed = np.tril(allowed) if causal else allowed
        found[start:end] = attend(here_q, here_k, here_v, allowed)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert flat.cu_seqlens[-1] == (ids > 0).sum() == len(flat.position_ids)


def test_one_segment_a_row_by_hand():
    batch = {
        "input_ids": np.array([[5, 6, 7, 9], [9, 9, 9, 9], [8, 5, 5, 5]], np.uint16),
        "segment_ids": np.array([[1, 2, 2, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.uint8),
        "label": np.array([3, 0, 4]),
    }
    assert segments_of(batch["segment_ids"]) == [(0, 1), (0, 2), (2, 1)]
    alone = one_segment_per_row(batch)
    assert alone["input_ids"].tolist() == [[5, 0, 0, 0], [6, 7, 0, 0], [8, 5, 5, 5]]
    assert alone["segment_ids"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert alone["label"].tolist() == [3, 3, 4]
    assert {name: column.dtype for name, column in alone.items()} == {
        name: column.dtype for name, column in batch.items()
    }
    picked = one_segment_per_row(batch, [(0, 2), (0, 2)])
    assert picked["input_ids"].tolist() == [[6, 7, 0, 0]] * 2
