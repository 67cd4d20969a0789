"""`verify_attention` finds every leak that is planted, names it, and finds none where none is."""

import numpy as np
import pytest

from tests.tools.clm_factory import clm_rows, clm_schema, write_clm_set
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.features import positions_from_segments
from textmill.trainers.data.adapters import attention_mask
from textmill.trainers.metrics.attention import (
    AHEAD,
    ALONE,
    EARLIER,
    LATER,
    PADDING,
    ROW,
    pick_rows,
    verify_attention,
)
from textmill.trainers.reader import ShardSet

VOCAB, WIDTH, LENGTH = 50, 16, 16
RANDOM = np.random.default_rng(0)
TOKENS, POSITIONS = RANDOM.normal(size=(VOCAB, WIDTH)), RANDOM.normal(size=(LENGTH, WIDTH))


def attended(ids, positions, mask_BxLxL):
    """One head of attention over embedded tokens, float64 [B, L, WIDTH]."""
    x = TOKENS[ids] + POSITIONS[positions]
    scores = np.where(mask_BxLxL, x @ x.swapaxes(1, 2) / WIDTH, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ x


def model(batch, *, causal=True, change=lambda mask: mask, positions=None):
    mask = attention_mask(batch["segment_ids"], causal=causal)[:, 0]
    places = batch["position_ids"] if positions is None else positions(batch)
    return attended(batch["input_ids"], places, change(mask))


@pytest.fixture
def batch():
    """Four rows of two to four segments, three of them with padding."""
    return clm_rows(clm_schema(max_length=LENGTH, vocab_size=VOCAB), 4, seed=3)


def report_on(batch, **fault):
    return verify_attention(lambda rows: model(rows, **fault), batch, causal=True)


def leaking(report):
    return {leak.cause for leak in report.leaks}


@pytest.mark.parametrize("causal", [False, True])
def test_a_sound_model_is_told_to_be_sound(batch, causal):
    report = verify_attention(lambda rows: model(rows, causal=causal), batch, causal=causal)
    assert report.ok and report.leaks == ()
    causes = {EARLIER, LATER, PADDING, ROW, ALONE}
    assert set(report.largest()) == (causes | {AHEAD} if causal else causes)
    segments = batch["segment_ids"].max(axis=1)
    assert (report.rows, report.segments) == (4, segments.sum())
    pairs = sum(n * (n - 1) // 2 for n in segments)
    tried = [movement.cause for movement in report.movements]
    assert tried.count(EARLIER) == tried.count(LATER) == pairs > 4
    assert tried.count(ALONE) == segments.sum()
    assert "LEAK" not in str(report)


def test_a_mask_without_segments_shows_earlier_ones(batch):
    report = report_on(batch, change=lambda mask: np.tril(np.ones_like(mask)))
    assert leaking(report) == {EARLIER, ALONE}
    distances = [leak.by for leak in report.leaks]
    assert distances == sorted(distances, reverse=True) and distances[0] > distances[-1]
    worst = report.largest()[EARLIER]
    segment = batch["segment_ids"][worst.moved[0]]
    assert worst.changed and worst.changed[0] == worst.moved[0] and worst.changed < worst.moved
    assert segment[worst.position] == worst.moved[1] and worst.by > report.limit
    assert f"row {worst.moved[0]}, segment {worst.moved[1]} moves by {worst.by:.1e}" in str(report)
    assert f"when row {worst.changed[0]}, segment {worst.changed[1]} changes" in str(report)


def test_each_leak_is_told_from_the_others(batch):
    """A hole in the mask is found where it is, and nowhere else."""
    segments = batch["segment_ids"]
    first, second = (int(np.flatnonzero(segments[1] == number)[0]) for number in (1, 2))
    padding = int(np.flatnonzero(segments[1] == 0)[0])
    holes = {
        EARLIER: ((second, first), (1, 1), (1, 2)),
        LATER: ((first, second), (1, 2), (1, 1)),
        PADDING: ((second, padding), (1, 0), (1, 2)),
    }
    for cause, ((query, key), changed, moved) in holes.items():

        def change(mask, query=query, key=key):
            mask[1, query, key] = True
            return mask

        leaks = report_on(batch, change=change).leaks
        [leak] = [leak for leak in leaks if leak.cause != ALONE]
        due = (cause, changed, moved, query)
        assert (leak.cause, leak.changed, leak.moved, leak.position) == due


def test_one_token_too_far_ahead(batch):
    same = attention_mask(batch["segment_ids"], causal=False)[:, 0]
    report = report_on(batch, change=lambda mask: mask | same & np.tril(np.ones_like(same), 1))
    assert {leak.cause for leak in report.leaks} - {ALONE} == {AHEAD}
    worst = report.largest()[AHEAD]
    places = np.flatnonzero(batch["segment_ids"][worst.moved[0]] == worst.moved[1])
    assert worst.position == places[len(places) // 2 - 1] and worst.changed == worst.moved


def test_positions_that_do_not_restart_are_seen_against_alone_only(batch):
    def positions(rows):
        return np.tile(np.arange(LENGTH), (len(rows["input_ids"]), 1))

    report = report_on(batch, positions=positions)
    assert leaking(report) == {ALONE}
    moved = {leak.moved[1] for leak in report.leaks}
    assert 2 in moved and 1 not in moved  # the first starts at 0 in any case


def test_rows_that_run_into_each_other(batch):
    """As a flattened batch does whose lengths do not say where a row ends."""

    def logits_of(rows):
        logits = model(rows)
        logits[1:] += 0.1 * logits[:-1, -1:]
        return logits

    report = verify_attention(logits_of, batch, causal=True)
    assert ROW in leaking(report)
    worst = report.largest()[ROW]
    assert worst.changed and worst.changed[0] == worst.moved[0] - 1


def test_tokens_of_a_prefix_see_each_other(batch):
    """As qa rows of the form `prefix`: attention is bidirectional on the prompt."""
    places = batch["segment_ids"] > 0
    first = positions_from_segments(batch["segment_ids"]) < 3
    batch["prefix_mask"] = (places & first).astype(np.uint8)

    def logits_of(rows, whole=False):
        prefix = rows["prefix_mask"][:, None, :] > 0
        same = attention_mask(rows["segment_ids"], causal=False)[:, 0]
        return model(rows, change=lambda mask: mask | same & (prefix | whole))

    assert verify_attention(logits_of, batch, causal=True).ok
    report = verify_attention(lambda rows: logits_of(rows, whole=True), batch, causal=True)
    assert leaking(report) == {AHEAD}


def test_a_classifier_of_whole_rows_may_not_see_padding():
    ids = RANDOM.integers(5, VOCAB, (3, LENGTH))
    segments = (np.arange(LENGTH) < np.array([[5], [9], [LENGTH]])).astype(np.uint8)
    batch = {"input_ids": ids, "segment_ids": segments, "label": np.arange(3)}

    def logits_of(rows, change=lambda mask: mask):
        assert rows["label"].shape == (3,)
        return model(rows, causal=False, change=change)[:, 0, :2]

    assert verify_attention(logits_of, batch, causal=False).ok
    seen = verify_attention(lambda rows: logits_of(rows, np.ones_like), batch, causal=False)
    assert {PADDING} <= leaking(seen) <= {PADDING, ALONE}


def test_masked_tokens_are_put_back():
    batch = packed_rows(mlm_schema(), 4, seed=1)
    seen = []

    def logits_of(rows):
        seen.append(rows)
        return model(rows, causal=False)

    assert verify_attention(logits_of, batch, causal=False).ok
    assert not (seen[0]["input_ids"][batch["segment_ids"] > 0] == 4).any()
    assert set(seen[0]) == {"input_ids", "segment_ids", "position_ids"}


@pytest.mark.parametrize(
    ("logits_of", "said"),
    [
        (lambda rows: model(rows) + RANDOM.normal(size=(4, LENGTH, 1)), "turn dropout off"),
        (lambda rows: model(rows)[:, 0], r"have the shape \[4, 16\]: return \[4, 16, C\]"),
        (lambda rows: model(rows) * np.nan, "not finite"),
        (lambda rows: POSITIONS[rows["position_ids"]], "does not read `input_ids`"),
    ],
)
def test_what_tells_nothing_is_refused(batch, logits_of, said):
    with pytest.raises(UsageError, match=said):
        verify_attention(logits_of, batch, causal=True)


def test_rows_of_one_token_are_refused(batch):
    batch["input_ids"][:] = 7
    with pytest.raises(UsageError, match="all tokens of the rows are the same"):
        verify_attention(model, batch, causal=True)


def test_rows_are_picked_that_can_leak(tmp_path):
    write_clm_set(tmp_path / "set", max_length=LENGTH)
    shards = ShardSet(str(tmp_path / "set"))
    picked = pick_rows(shards, count=3, seed=5)
    assert (picked["segment_ids"].max(axis=1) > 1).all() and len(picked["input_ids"]) == 3
    again = pick_rows(shards, count=3, seed=5)
    np.testing.assert_array_equal(picked["input_ids"], again["input_ids"])
    write_mlm_set(tmp_path / "short", max_length=6)
    with pytest.raises(DataError, match="none of 40 rows of split 'train' has two segments"):
        pick_rows(ShardSet(str(tmp_path / "short")))
