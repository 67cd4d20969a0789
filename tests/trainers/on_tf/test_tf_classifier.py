"""The TensorFlow classifier: a run and its use, its program, optimizers and devices.

tests/trainers/run, flags and use/test_uses.py test the code that all five trainers share.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tools.class_factory import write_class_set
from tests.tools.python_process import run_python
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import replace_file
from tests.tools.snapshots import state_in, weights_in
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers import evaluate, export_model, generate, predict
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.framework_flags import TfComputeFlags
from textmill.trainers.metrics.class_scores import class_metrics, probabilities
from textmill.trainers.models.hf_files import read_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import init_weights
from textmill.trainers.on_tf.backend import keras, tf
from textmill.trainers.on_tf.tf_encoder import ClassificationObjective, Encoder
from textmill.trainers.on_tf.tf_layers import fill
from textmill.trainers.on_tf.tf_program import TfProgram, choose_strategy, make_optimizer
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.trained import find_trained
from textmill.trainers.tasks.classification import count_labels
from textmill.trainers.tf_classifier import TfClassifierFlags, main

DIMENSIONS = {
    "layers": 1,
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 24,
    "batch_size": 8,
    "learning_rate": 0.03,
    "device": "cpu",
}
SMALL = [f"--{name}={value}" for name, value in DIMENSIONS.items()]
SMALL += ["--dropout=0.02", "--no_verify"]
FAST = "--no_jit_compile"  # where compiling would take the longest of a test


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """64 training rows and 24 of validation, two classes."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory)
    return directory


def train(shards, output, *more):
    main([f"--shards={shards}", f"--output={output}", *SMALL, *more])


def lines_of(output, kind="train"):
    lines = read_metrics(str(output / "metrics.jsonl"))
    return [line for line in lines if line["kind"] == kind]


def losses_of(output):
    return [line["loss"] for line in lines_of(output)]


@pytest.mark.slow
def test_two_devices_take_the_steps_of_one(shards, tmp_path):
    """They differ by the order in which gradients are added up, no more; with XLA, and resumed."""
    flags = ["--steps=6", "--dropout=0", "--evaluate_every=2"]
    train(shards, tmp_path / "one", *flags, FAST)
    train(shards, tmp_path / "two", *flags, "--stop_after=3")
    arguments = [f"--shards={shards}", f"--output={tmp_path / 'two'}", *SMALL, *flags, "--resume"]
    more = ["--cpu_devices=2", "--gradient_accumulation_steps=2"]  # 2 rows at a time on each
    run_python("-m", "trainers.tf_classifier", *arguments, *more, check=True)
    assert len(losses_of(tmp_path / "two")) == 6
    np.testing.assert_allclose(losses_of(tmp_path / "two"), losses_of(tmp_path / "one"), rtol=1e-5)
    one, two = (lines_of(tmp_path / name, "evaluation") for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    assert one[-1]["loss"] == pytest.approx(two[-1]["loss"], rel=1e-4)


def test_a_run_learns_and_is_used(shards, tmp_path, capfd):
    """Measured, asked about texts, and exported, all with its best weights."""
    whole = tmp_path / "run"
    train(shards, whole, FAST, "--steps=24", "--evaluate_every=8", "--checkpoint_every=8")
    evaluations = lines_of(whole, "evaluation")
    assert [line["step"] for line in evaluations] == [8, 16, 24]
    assert set(evaluations[0]) >= {"loss", "accuracy", "auc", "f1", "ece", "rows"}
    assert evaluations[-1]["loss"] < 0.9 * evaluations[0]["loss"], "it learns"
    best = 8 * (1 + int(np.argmax([line["accuracy"] for line in evaluations])))
    assert (Checkpoints(whole).steps, Checkpoints(whole).best) == ([16, 24], best)
    rows = next(ShardSet(str(shards)).sequential_batches("validation", batch_size=24, prefetch=0))
    texts = [
        " ".join(f"w{number}" for number in ids[segments > 0][1:-1])
        for ids, segments in zip(rows["input_ids"], rows["segment_ids"], strict=True)
    ]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    use = [str(whole), "--batch_size=5"]
    file, saved = f"--input={tmp_path / 'texts.txt'}", f"--export_saved_model={tmp_path / 'saved'}"
    evaluate.main(use)
    predict.main([*use, file, f"--output={tmp_path / 'found.tsv'}"])
    with pytest.raises(UsageError, match="^--export_saved_model is a flag of export_model: leave"):
        evaluate.main([*use, saved])
    export_model.main([*use, f"--output={tmp_path / 'published'}", saved])
    with pytest.raises(UsageError, match="models of trainers.tf_classifier write no texts; give"):
        generate.main([str(whole), "w7"])
    trained = find_trained(str(whole), "best")
    [(_, read)] = trained.weights
    model = Encoder(trained.config)
    fill(model, read())
    logits = model(rows["input_ids"], rows["segment_ids"]).numpy()
    expected = probabilities(logits)
    lines = [line.split("\t") for line in (tmp_path / "found.tsv").read_text().splitlines()]
    assert [label for label, _ in lines] == [["neg", "pos"][n] for n in logits.argmax(axis=1)]
    np.testing.assert_allclose([float(p) for _, p in lines], expected.max(axis=1), atol=2e-6)

    [folder] = (whole / "evaluation").glob("set-validation-*/[0-9]*")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == pytest.approx(class_metrics(logits, rows["label"]), rel=1e-5)
    assert metrics["accuracy"] == max(line["accuracy"] for line in evaluations)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".png"}

    _, stored = read_directory(str(tmp_path / "published"))
    table = read_weights(Checkpoints(whole).choose("best")[0])["embeddings.tokens.weight"]
    np.testing.assert_array_equal(stored["bert.embeddings.word_embeddings.weight"], table)

    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    inputs = {name: tf.constant(rows[name], tf.int32) for name in ("input_ids", "segment_ids")}
    answers = served(**inputs)
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-6)
    assert [label.decode() for label in answers["label"].numpy()] == [label for label, _ in lines]

    capfd.readouterr()
    predict.main([*use, "--checkpoint=last", file])
    said = capfd.readouterr()
    assert len(said.out.splitlines()) == 24 and "the weights after step 24" in said.err


def test_a_cluster_and_a_gpu_that_is_not_there_are_refused(shards, tmp_path, monkeypatch):
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", "--device=cpu"]
    with pytest.raises(UsageError, match="TensorFlow finds no GPU"):
        main([*flags, "--device=gpu"])
    jobs = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "evaluator": ["d:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": {"index": 0}}))
    with pytest.raises(UsageError, match="TF_CONFIG names 3 workers, .* unset TF_CONFIG"):
        main(flags)
    monkeypatch.setenv("TF_CONFIG", "worker")
    with pytest.raises(UsageError, match="TF_CONFIG=worker is not a cluster .*: unset it"):
        main(flags)
    alone = TfComputeFlags(device="cpu")
    for one in ({}, {"cluster": {"worker": ["a:1"]}}, {"cluster": {"chief": ["a:1"]}}):
        monkeypatch.setenv("TF_CONFIG", json.dumps(one))
        assert choose_strategy(alone).num_replicas_in_sync == 1


def test_labels_are_counted_by_stats_json_where_it_can(shards, tmp_path, monkeypatch):
    """Else each row of a split would be read before step 1, from a bucket too."""
    labels = ShardSet(str(shards)).read("train", np.arange(64))["label"]
    counts = [64 - int(labels.sum()), int(labels.sum())]
    assert count_labels(ShardSet(str(shards)), "train") == counts
    shutil.copytree(shards, tmp_path / "set")
    found = ShardSet(str(shards))
    first, second = [name for name in found.stats.shards if name.startswith("train")][:2]
    told = dict(found.stats.shards)
    of_first = told[first].documents
    told[first] = replace(told[first], labels={"neg": of_first - 3, "pos": 3})
    rest = {"neg": counts[0] - of_first + 3, "pos": counts[1] - 3}
    told[second] = replace(told[second], labels=rest)
    stats = replace(found.stats, shards=told).to_dict(found.schema.row_tokens)
    replace_file(tmp_path / "set", "stats.json", json.dumps(stats).encode())
    monkeypatch.setattr(ShardSet, "read", None)
    assert count_labels(ShardSet(str(tmp_path / "set")), "train") == counts


def program_of(shards, **flags):
    """A program with new weights, and the first batches of its training split."""
    given = {**DIMENSIONS, "jit_compile": False, **flags}
    config = make_flags(TfClassifierFlags, shards=str(shards), **given)
    reader = ShardSet(str(shards))
    model = plan_model(config, reader.schema).config
    plan = TrainingPlan(config, reader.schema, model, 10, Path("run"))
    program = TfProgram(plan, lambda: ClassificationObjective(model, [1.0, 2.0]))
    program.load(init_weights(model, 0), None)
    batches = reader.batches("train", batch_size=8, seed=0, stop_step=4, prefetch=0)
    return program, list(batches)


def steps_of(program, batches, start=0):
    return [program.train(program.put(b), start + i)()[0] for i, b in enumerate(batches)]


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compiling_changes_nothing(shards, jit):
    """Not a bit of weights and state, though XLA compiles a step by making it.

    The schedule is that of the other trainers, by the rate that Keras' optimizer has, too.
    """
    program, batches = program_of(shards, jit_compile=jit, learning_rate=1.0, warmup_steps=2)
    before = weights_in(program)
    program.compile(trains=True, evaluates=True)
    same(weights_in(program), before)
    state = state_in(program)
    assert state.pop("adamw/iteration") == 0 and state.pop("adamw/learning_rate") > 0
    assert not any(value.any() for value in state.values())
    rates = [1 / 2, 1, *(n / 9 for n in range(8, 0, -1))]
    for step, rate in enumerate(rates):
        [metrics] = steps_of(program, batches[:1], start=step)
        assert metrics["learning_rate"] == pytest.approx(rate)
        assert program._optimizer and float(program._optimizer.learning_rate) == pytest.approx(rate)
    assert before["head.out.weight"].std() > 0, "what was read before did not change since"


@pytest.mark.parametrize("name", ["adamw", pytest.param("sgd_momentum", marks=pytest.mark.slow)])
def test_a_program_goes_on_from_its_state(name, shards):
    """Each variable of an optimizer has a name."""
    program, batches = program_of(shards, optimizer=name, dropout=0.1)
    program.compile(trains=True, evaluates=False)
    steps_of(program, batches[:2])
    weights, state = weights_in(program), state_in(program)
    assert program._optimizer and len(state) == len(program._optimizer.variables)
    rest = steps_of(program, batches[2:], start=2)
    resumed, _ = program_of(shards, optimizer=name, dropout=0.1)
    resumed.load(weights, state)
    resumed.compile(trains=True, evaluates=False)
    assert steps_of(resumed, batches[2:], start=2) == rest
    same(weights_in(resumed), weights_in(program))
    same(state_in(resumed), state_in(program))
    other = {"adamw": "sgd_momentum"}.get(name, "adamw")
    with pytest.raises(DataError, match=f"does not fit --optimizer={other} and this model: "):
        program_of(shards, optimizer=other)[0].load(weights, state)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_microbatches_make_the_same_step(shards, jit):
    """8 rows as 2 each; classes weigh differently, and so do microbatches."""
    found = []
    for count in (None, 4):
        program, batches = program_of(
            shards, gradient_accumulation_steps=count, dropout=0.0, jit_compile=jit
        )
        program.compile(trains=True, evaluates=False)
        found.append((steps_of(program, batches[:1])[0], weights_in(program)))
        assert program.evaluation_rows == 8 // (count or 1)
    (whole, weights), (metrics, changed) = found
    assert whole["counted"] > 8
    assert metrics == pytest.approx(whole, rel=1e-5)
    assert max(np.abs(changed[name] - value).max() for name, value in weights.items()) < 1e-6


def test_microbatches_drop_each_their_own(shards):
    """The same rows twice give other losses than once: each has a seed of its own."""
    losses = []
    for count in (1, 2):
        program, batches = program_of(
            shards, gradient_accumulation_steps=count, dropout=0.5, learning_rate=1e-9
        )
        program.compile(trains=True, evaluates=False)
        twice = {name: np.tile(c[:4], (2,) + (1,) * (c.ndim - 1)) for name, c in batches[0].items()}
        losses.append([found["loss"] for found in steps_of(program, [twice, twice])])
    assert len({*losses[0], *losses[1]}) == 4


def test_class_weights_weigh_rows_of_the_loss_only(shards):
    """Dropout is off: by the logits of an evaluation, whose accuracy has no weights either."""
    program, [batch, *_] = program_of(shards, dropout=0.0)
    program.compile(trains=True, evaluates=True)
    chance = probabilities(program.evaluate(program.put(batch))()["logits"])
    [found] = steps_of(program, [batch])
    weights = np.array([1.0, 2.0])[batch["label"]]
    losses = -np.log(chance[np.arange(8), batch["label"]])
    assert found["counted"] == weights.sum() > 8
    assert found["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-5)
    hits = chance.argmax(axis=1) == batch["label"]
    assert found["accuracy"] == hits.mean() != np.average(hits, weights=weights)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_is_that_of_pytorch(momentum):
    """Whatever the rate of each step, and with a decay that is part of the gradient."""
    config = make_flags(
        TfClassifierFlags,
        shards="x",
        optimizer="sgd_momentum",
        beta1=momentum,
        weight_decay=0.5,
        learning_rate=9.0,
    )
    matrix = keras.Variable(np.arange(6.0).reshape(2, 3), dtype="float32")
    vector = keras.Variable([1.0, -2.0], dtype="float32")
    optimizer = make_optimizer(config.optimization, [matrix, vector])
    due = [torch.tensor(each.numpy(), dtype=torch.float64) for each in (matrix, vector)]
    oracle = torch.optim.SGD(
        [{"params": due[:1], "weight_decay": 0.5}, {"params": due[1:]}], lr=1, momentum=momentum
    )
    for step, rate in enumerate((0.1, 0.3, 0.01)):
        gradients = [np.full(each.shape, step - 0.5, np.float32) for each in (matrix, vector)]
        optimizer.learning_rate = rate
        optimizer.apply([tf.constant(each) for each in gradients], [matrix, vector])
        for group, weight, gradient in zip(oracle.param_groups, due, gradients, strict=True):
            group["lr"] = rate
            weight.grad = torch.tensor(gradient, dtype=torch.float64)
        oracle.step()
    for found, wanted in zip((matrix, vector), due, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)
