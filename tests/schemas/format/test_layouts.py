"""Layouts of other trainers: by hand, as properties, and by the losses of models of transformers.

Legend: B rows, L tokens a row.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.clm_factory import chat_schema, clm_rows, clm_schema
from tests.tools.shard_factory import mlm_schema, packed_rows
from textmill.schemas.errors import UsageError
from textmill.schemas.format.features import task_features, unmask
from textmill.schemas.format.layouts import (
    NO_LOSS,
    check_layout,
    huggingface,
    llm_foundry,
    maxtext,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

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
    assert_columns(llm_foundry(rows), tokens=("int32", IDS))


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
    for layout in ("huggingface", "maxtext"):
        with pytest.raises(UsageError, match=f"{layout} has no prefix_mask.*=causal"):
            check_layout(layout, prefix)
    check_layout("llm_foundry", clm_schema(packing="concat"))
    with pytest.raises(UsageError, match="llm_foundry has no mark for padding .*=concat"):
        check_layout("llm_foundry", clm_schema())
    with pytest.raises(UsageError, match="llm_foundry holds tokens without weights.* are of chat"):
        check_layout("llm_foundry", chat_schema())


# Losses of models of transformers


SMALL: dict[str, Any] = {
    **{"vocab_size": 50, "max_position_embeddings": 32, "attn_implementation": "eager"},
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 32, "num_labels": 3, "initializer_range": 0.5},  # all inputs count
}
T5: dict[str, Any] = {
    **{"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    **{"pad_token_id": 0, "decoder_start_token_id": 0},
}


def tensors(columns):
    return {name: torch.from_numpy(values) for name, values in columns.items()}


def make(model, config):
    """A model of random weights in float64, which drops nothing out."""
    torch.manual_seed(0)
    return model(config).double().eval()


def tokens_of(columns, row, length):
    """The first tokens of a row: int64 [1, length]."""
    return torch.from_numpy(columns[row : row + 1, :length].astype(np.int64))


def documents(rows):
    """Ids and loss weights of each segment of each row."""
    for ids, segments, weights in zip(
        rows["input_ids"], rows["segment_ids"], rows["loss_weights"], strict=True
    ):
        for number in range(1, segments.max() + 1):
            yield ids[segments == number], weights[segments == number]


def loss_alone(model, ids, weights):
    """Cross-entropy of a document's tokens that count, added up; by its logits, without labels."""
    given = torch.from_numpy(ids.astype(np.int64))[None]
    nats = cross_entropy(model(input_ids=given).logits[0, :-1], given[0, 1:], reduction="none")
    return (nats * torch.from_numpy(weights[1:].astype(float))).sum().item()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["Llama", "GPT2"])
@pytest.mark.parametrize("prompts", [False, True])
def test_packed_rows_cost_what_their_documents_do(name, attention, prompts):
    if name == "Llama":
        config = transformers.LlamaConfig(**SMALL)
        model = transformers.LlamaForCausalLM
    else:
        config = transformers.GPT2Config(
            vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2
        )
        model = transformers.GPT2LMHeadModel
    config._attn_implementation = attention
    made = make(model, config)
    rows = clm_rows(clm_schema(), 12, seed=5)
    if prompts:  # the first half of the tokens is given, not learned
        rows["loss_weights"] *= np.random.default_rng(0).integers(0, 2, (12, 16), np.uint8)
    assert rows["segment_ids"].max() > 1 and (rows["segment_ids"] == 0).any()
    with torch.no_grad():
        columns = huggingface(rows)
        counted = (columns["labels"][:, 1:] != NO_LOSS).sum()
        packed = made(**tensors(columns), use_cache=False).loss.item() * counted
        alone = sum(loss_alone(made, *document) for document in documents(rows))
    assert counted == rows["loss_weights"].sum()
    assert packed == pytest.approx(alone, rel=1e-6)


def encoder_rows():
    """Masked rows of one document each, with padding."""
    rows = packed_rows(mlm_schema(packing="none"), 12, seed=5)
    rows["segment_ids"] = (np.arange(16) < np.arange(3, 15)[:, None]).astype(np.uint8)
    rows["masked_weights"] *= rows["masked_positions"] < np.arange(3, 15)[:, None]
    return rows


def test_masked_rows_cost_what_their_documents_do():
    model = make(transformers.BertForMaskedLM, transformers.BertConfig(**SMALL))
    rows, alone = encoder_rows(), 0.0
    before = unmask(rows)
    with torch.no_grad():
        packed = model(**tensors(huggingface(rows))).loss.item() * rows["masked_weights"].sum()
        for row, length in enumerate(rows["segment_ids"].sum(axis=1)):
            logits = model(input_ids=tokens_of(rows["input_ids"], row, length)).logits[0]
            places = rows["masked_positions"][row][rows["masked_weights"][row] > 0].astype(int)
            due = torch.from_numpy(before[row][places].astype(np.int64))
            alone += cross_entropy(logits[places], due, reduction="sum").item()
    assert packed == pytest.approx(alone, rel=1e-6)


def test_rows_of_classes_cost_what_their_documents_do():
    config = transformers.BertConfig(**SMALL)
    model = make(transformers.BertForSequenceClassification, config)
    masked = encoder_rows()
    rows = {
        **{name: masked[name] for name in ("input_ids", "segment_ids")},
        "token_type_ids": (np.arange(16) > 5)[None].repeat(12, axis=0).astype(np.uint8),
        "label": (np.arange(12) % 3).astype(np.uint8),
    }
    with torch.no_grad():
        packed = model(**tensors(huggingface(rows))).loss.item()
        alone = [
            model(
                input_ids=tokens_of(rows["input_ids"], row, length),
                token_type_ids=tokens_of(rows["token_type_ids"], row, length),
                labels=torch.tensor([row % 3]),
            ).loss.item()
            for row, length in enumerate(rows["segment_ids"].sum(axis=1))
        ]
    assert packed == pytest.approx(np.mean(alone), rel=1e-6)


def test_rows_of_spans_cost_what_their_documents_do():
    model = make(transformers.T5ForConditionalGeneration, transformers.T5Config(**T5))
    rows = {name: encoder_rows()[name] for name in ("input_ids", "segment_ids")}
    targets = np.arange(12)[:, None] % 7 + 1
    rows["target_ids"] = rows["input_ids"][:, ::-1][:, :8].copy()
    rows["target_segment_ids"] = (np.arange(8) < targets).astype(np.uint8)
    with torch.no_grad():
        packed = model(**tensors(huggingface(rows))).loss.item() * targets.sum()
        alone = 0.0
        for row, length in enumerate(rows["segment_ids"].sum(axis=1)):
            labels = tokens_of(rows["target_ids"], row, targets[row, 0])
            found = model(input_ids=tokens_of(rows["input_ids"], row, length), labels=labels)
            alone += found.loss.item() * labels.numel()
    assert packed == pytest.approx(alone, rel=1e-6)
