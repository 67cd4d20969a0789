"""Layouts of other trainers: cases worked by hand, properties, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.features import task_features
from schemas.layouts import LAYOUTS, check_layout, huggingface, maxtext
from tests.tools.clm_factory import clm_schema
from tests.tools.shard_factory import mlm_schema

IDS = [[5, 6, 2, 8, 2, 9, 0, 0], [7, 7, 7, 7, 7, 7, 7, 2]]
SEGMENTS = [[1, 1, 1, 2, 2, 3, 0, 0], [1] * 8]


def decoder_rows(weights):
    """Rows of causal language modelling or question answering."""
    return {
        "input_ids": np.array(IDS, np.uint16),
        "segment_ids": np.array(SEGMENTS, np.uint8),
        "loss_weights": np.array(weights, np.uint8),
    }


def assert_columns(found, **expected):
    """Names, values and, as name_dtype, dtypes."""
    assert sorted(found) == sorted(expected)
    for name, (dtype, values) in expected.items():
        assert found[name].dtype == dtype and found[name].tolist() == values, name


def test_layouts_of_clm():
    rows = decoder_rows([[0, 1, 1, 0, 1, 0, 0, 0], [0] + [1] * 7])
    positions = ("int32", [[0, 1, 2, 0, 1, 0, 0, 0], list(range(8))])
    no = -100
    assert_columns(
        huggingface(rows),
        input_ids=("int32", IDS),
        labels=("int64", [[no, 6, 2, no, 2, no, no, no], [no, 7, 7, 7, 7, 7, 7, 2]]),
        position_ids=positions,
    )
    assert_columns(
        maxtext(rows),
        inputs=("int32", IDS),
        inputs_position=positions,
        inputs_segmentation=("int32", SEGMENTS),
        targets=("int32", [[6, 2, 0, 2, 0, 0, 0, 0], [7, 7, 7, 7, 7, 7, 2, 0]]),
        targets_position=positions,
        targets_segmentation=("int32", [[1, 1, 0, 2, 0, 0, 0, 0], [1] * 7 + [0]]),
    )


@given(st.data())
def test_both_layouts_predict_the_tokens_whose_weight_is_1(data):
    """Whatever the rows: pairs of (row, place of the input, token to predict) are the same.

    A document's first token is predicted from nothing, even if it has a weight.
    """
    lengths = data.draw(st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=3))
    segments = np.zeros((len(lengths), 24), np.uint8)
    for row, parts in zip(segments, lengths, strict=True):
        row[: sum(parts)] = np.repeat(np.arange(1, len(parts) + 1), parts)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    ids = random.integers(1, 70_000, segments.shape).astype(np.uint32)
    weights = random.integers(0, 2, segments.shape).astype(np.uint8)
    batch = {"input_ids": ids, "segment_ids": segments, "loss_weights": weights}
    counts = weights[:, 1:] * ((segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0))
    due = [(row, place, ids[row, place + 1]) for row, place in np.argwhere(counts)]
    labels = huggingface(batch)["labels"]
    assert (labels[:, 0] == -100).all()
    assert due == [(r, p, labels[r, p + 1]) for r, p in np.argwhere(labels[:, 1:] != -100)]
    found = maxtext(batch)
    counted = np.argwhere(found["targets_segmentation"])
    assert due == [(r, p, found["targets"][r, p]) for r, p in counted]
    assert all(found["inputs_segmentation"][r, p] == segments[r, p + 1] for r, p in counted)


def test_huggingface_of_masked_rows():
    rows = {
        "input_ids": np.array([[1, 4, 4, 9, 2, 0]], np.uint16),
        "segment_ids": np.array([[1, 1, 1, 1, 1, 0]], np.uint8),
        "masked_positions": np.array([[1, 2, 0]], np.uint16),
        "masked_ids": np.array([[7, 0, 0]], np.uint16),
        "masked_weights": np.array([[1, 1, 0]], np.uint8),
    }
    expected = {
        "attention_mask": ("uint8", [[1] * 5 + [0]]),
        "input_ids": ("int32", [[1, 4, 4, 9, 2, 0]]),
    }
    labels = ("int64", [[-100, 7, 0, -100, -100, -100]])
    assert_columns(huggingface(rows), **expected, labels=labels)
    unmasked = {name: rows[name] for name in ("input_ids", "segment_ids")}
    assert_columns(huggingface(unmasked), **expected)


def test_what_a_layout_cannot_say_is_refused():
    packed = mlm_schema()
    assert packed.packing == "best_fit"
    with pytest.raises(UsageError, match="huggingface cannot separate .* with --packing=none"):
        check_layout("huggingface", packed)
    check_layout("huggingface", mlm_schema(packing="none"))
    with pytest.raises(UsageError, match="maxtext needs rows of decoders, .* these are of mlm"):
        check_layout("maxtext", mlm_schema(packing="none"))
    parameters = {
        **{"bos": False, "max_answer_length": 4, "max_question_length": 4},
        **{"qa_form": "prefix", "qa_template": "x"},
    }
    features = task_features("qa", max_length=16, vocab_size=64, parameters=parameters)
    prefix = replace(
        clm_schema(), task="qa", parameters=parameters, features=features, fingerprint=""
    )
    for layout in LAYOUTS:
        with pytest.raises(UsageError, match=f"{layout} has no prefix_mask.*=causal"):
            check_layout(layout, prefix)
