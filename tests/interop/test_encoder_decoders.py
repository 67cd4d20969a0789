"""`verify_encoder_decoder` tells which of three attentions leaks, in T5 of transformers too."""

import warnings
from typing import Any

import numpy as np
import pytest

from tests.interop.encoder_decoders import verify_encoder_decoder
from textmill.schemas.errors import UsageError
from textmill.trainers.data.adapters import attention_mask
from textmill.trainers.metrics.attention import AHEAD, ALONE, EARLIER, LATER

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers

VOCAB, WIDTH, INPUTS, TARGETS, ROWS = 40, 16, 24, 18, 3
START = 0
TOKENS = np.random.default_rng(0).normal(size=(VOCAB, WIDTH))


@pytest.fixture(scope="module")
def batch():
    """Rows of span_corruption's features: two to four segments, with padding."""
    draw = np.random.default_rng(1)
    columns = {}
    counts = draw.integers(2, 5, ROWS)
    for prefix, ids, length in (("", "input_ids", INPUTS), ("target_", "target_ids", TARGETS)):
        segments = np.zeros((ROWS, length), np.uint8)
        for row, count in enumerate(counts):
            sizes = draw.integers(3, length // count, count)
            segments[row, : sizes.sum()] = np.repeat(np.arange(count) + 1, sizes)
        columns[f"{prefix}segment_ids"] = segments
        columns[ids] = draw.integers(3, VOCAB, segments.shape) * (segments > 0)
    return columns


def shifted(rows, *, within=True):
    """The decoder's inputs: START, then the targets but for the last."""
    before = np.hstack((np.full((len(rows["target_ids"]), 1), START), rows["target_ids"][:, :-1]))
    return np.where(rows["target_position_ids"] == 0, START, before) if within else before


def across(rows):
    """Whether each target sees each input."""
    return rows["target_segment_ids"][:, :, None] == rows["segment_ids"][:, None]


def attend(queries, keys, mask):
    scores = np.where(mask, queries @ keys.swapaxes(1, 2) / WIDTH, -1e9)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ keys


def toy(encoder=lambda mask: mask, decoder=lambda mask: mask, cross=lambda mask: mask, **shift):
    """A model of one head each, whose masks are changed."""

    def outputs_of(rows):
        embedded = TOKENS[rows["input_ids"]] + np.sin(rows["position_ids"])[..., None]
        within = attention_mask(rows["segment_ids"], causal=False)[:, 0]
        states = attend(embedded, embedded, encoder(within))
        asked = TOKENS[shifted(rows, **shift)] + np.cos(rows["target_position_ids"])[..., None]
        before = attention_mask(rows["target_segment_ids"], causal=True)[:, 0]
        asked = asked + attend(asked, asked, decoder(before))
        return states, asked + attend(asked, states, cross(across(rows)))

    return outputs_of


def leaking(report):
    parts = {"encoder": report.encoder, "decoder": report.decoder, "cross": report.cross}
    return {name: {leak.cause for leak in part.leaks} - {ALONE} for name, part in parts.items()}


def test_a_sound_model(batch):
    report = verify_encoder_decoder(toy(), batch)
    assert report.ok
    for part in (report.encoder, report.decoder, report.cross):
        assert {EARLIER, LATER} <= set(part.largest())
    assert AHEAD in report.decoder.largest() and AHEAD not in report.cross.largest()


def everything(mask):
    return np.ones_like(mask)


@pytest.mark.parametrize(
    ("faults", "due"),
    [
        ({"encoder": everything}, {"encoder": {EARLIER, LATER}}),
        ({"cross": everything}, {"cross": {EARLIER, LATER}}),
        ({"decoder": lambda mask: np.tril(np.ones_like(mask))}, {"decoder": {EARLIER}}),
        ({"within": False}, {"decoder": {EARLIER}}),
        ({"decoder": lambda mask: mask | np.eye(TARGETS, k=2, dtype=bool)}, {"decoder": {AHEAD}}),
    ],
)
def test_each_attention_that_leaks_is_told_from_the_others(batch, faults, due):
    report = verify_encoder_decoder(toy(**faults), batch)
    found = {name: causes & {EARLIER, LATER, AHEAD} for name, causes in leaking(report).items()}
    for name, causes in found.items():
        assert causes >= due.get(name, set()) and bool(causes) == (name in due)
    assert not report.ok


def test_a_hole_between_two_segments_is_named(batch):
    first = int(np.flatnonzero(batch["segment_ids"][1] == 2)[0])
    asking = int(np.flatnonzero(batch["target_segment_ids"][1] == 1)[-1])

    def change(mask):
        mask[1, asking, first] = True
        return mask

    report = verify_encoder_decoder(toy(cross=change), batch)
    assert leaking(report) == {"encoder": set(), "decoder": set(), "cross": {LATER}}
    [leak] = report.cross.leaks
    assert (leak.changed, leak.moved, leak.position) == ((1, 2), (1, 1), asking)


@pytest.mark.parametrize(
    ("part", "unread"), [(0, "input_ids"), (1, "target_ids"), (1, "input_ids")]
)
def test_a_model_that_does_not_read_is_refused(batch, part, unread):
    def outputs_of(rows):
        found = list(toy()(rows))
        found[part] = toy()(rows | {unread: rows[unread] * 0})[part]
        return tuple(found)

    with pytest.raises(UsageError, match=f"does not read `{unread}`"):
        verify_encoder_decoder(outputs_of, batch)


def t5(masked):
    """A tiny T5, with masks of segments or with those of padding that tokenizers give."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "d_ff": 48, "d_kv": 8}
    config = transformers.T5Config(**sizes, num_layers=2, num_heads=4, dropout_rate=0.0)
    model: Any = transformers.T5ForConditionalGeneration(config).eval()

    def bias(allowed):
        lowest = torch.finfo(torch.float32).min
        return torch.where(torch.from_numpy(allowed), 0.0, lowest)

    def outputs_of(rows):
        ids, before = (
            torch.from_numpy(a.astype(np.int64)) for a in (rows["input_ids"], shifted(rows))
        )
        encoder = cross = torch.from_numpy((rows["segment_ids"] > 0).astype(np.int64))
        decoder = None
        if masked:
            encoder = bias(attention_mask(rows["segment_ids"], causal=False))
            decoder = bias(attention_mask(rows["target_segment_ids"], causal=True))
            cross = bias(across(rows)[:, None])
        with torch.no_grad():
            states = model.encoder(input_ids=ids, attention_mask=encoder).last_hidden_state
            hidden = model.decoder(
                input_ids=before,
                attention_mask=decoder,
                encoder_hidden_states=states,
                encoder_attention_mask=cross,
                use_cache=False,
            ).last_hidden_state
            return states, model.lm_head(hidden)

    return outputs_of


def test_t5_with_the_usual_masks_leaks_everywhere(batch):
    report = verify_encoder_decoder(t5(masked=False), batch)
    found = leaking(report)
    assert found["encoder"] == {EARLIER, LATER} and found["decoder"] == {EARLIER}
    assert not report.cross.largest().keys() & {EARLIER, LATER}  # all of it comes by the encoder


def test_t5_with_masks_of_segments_keeps_documents_apart(batch):
    report = verify_encoder_decoder(t5(masked=True), batch)
    assert report.ok, report
    assert report.decoder.segments == len(np.unique(batch["target_segment_ids"][0])) - 1 + sum(
        int(row.max()) for row in batch["target_segment_ids"][1:]
    )
