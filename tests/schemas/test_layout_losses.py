"""Losses that models of transformers take of rows in their layout, beside each document alone.

Legend: B rows, L tokens a row.
"""

import warnings
from typing import Any

import numpy as np
import pytest

from schemas.features import unmask
from schemas.layouts import NO_LOSS, huggingface
from tests.tools.clm_factory import clm_rows, clm_schema
from tests.tools.shard_factory import mlm_schema, packed_rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

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
