"""Programs for PopTorch, run by a stand-in with its names and rules; no IPU ran any of it."""

import json

import numpy as np
import pytest
import torch

from tests.tools.poptorch_programs import make_program
from tests.tools.poptorch_stub import installed
from tests.tools.run_reading import read_metrics
from tests.tools.snapshots import weights_in
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers import evaluate
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.on_poptorch.ipu_placement import parse_blocks, place_on_ipus
from textmill.trainers.poptorch_classifier import PoptorchClassifierFlags, main
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import Checkpoints

pytestmark = pytest.mark.usefixtures("no_picture")
SMALL = {
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 24,
    "embedding_size": 8,
    "family": "electra",
}


@pytest.fixture
def run(shards, tmp_path):
    """Trains a small model into `tmp_path / name` and returns its lines of metrics."""

    def run(name, device, *flags):
        small = [f"--{key}={value}" for key, value in SMALL.items()]
        output = f"--output={tmp_path / name}"
        main([f"--shards={shards}", output, f"--device={device}", *small, *flags])
        return read_metrics(str(tmp_path / name / "metrics.jsonl"))

    return run


def compiled(shards, **settings):
    """A program of three layers on the stand-in's IPUs, compiled."""
    given = {**SMALL, "layers": 3, "device": "ipu", "batch_size": 28, **settings}
    program = make_program(shards, **given)
    program.compile(trains=True, evaluates=True)
    return program


def test_the_numbers_are_those_of_plain_pytorch(run, tmp_path):
    """Without dropout, in float32: the same losses, metrics and weights, step for step."""
    flags = ["--layers=3", "--dropout=0", "--precision=float32", "--learning_rate=0.01"]
    flags += ["--steps=6", "--evaluate_every=2", "--batch_size=28"]
    cpu = run("cpu", "cpu", *flags, "--gradient_accumulation_steps=7")
    with installed():
        ipu = run("ipu", "auto", *flags)
    assert len(cpu) == len(ipu) == 6 + 3
    for here, there in zip(cpu, ipu, strict=True):
        assert here["kind"] == there["kind"]
        for name in {"step", "loss", "accuracy", "auc", "learning_rate", "weight"} & here.keys():
            assert there[name] == pytest.approx(here[name], 1e-4)
    best = [Checkpoints(tmp_path / name).choose("best")[0] for name in ("cpu", "ipu")]
    assert best[0].name == best[1].name
    weights = [read_weights(path) for path in best]
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd_momentum"])
def test_a_resumed_run_has_the_same_bits(run, tmp_path, optimizer):
    """Moments, schedule and the random numbers of dropout come back to the IPUs."""
    flags = ["--layers=1", "--precision=float32", "--steps=6", "--batch_size=8"]
    flags += ["--learning_rate=0.01", "--evaluate_every=3", f"--optimizer={optimizer}"]
    for name, *more in (("whole",), ("parts", "--stop_after=3"), ("parts", "--resume")):
        with installed():
            run(name, "ipu", *flags, *more)
    whole, parts = (Checkpoints(tmp_path / name).read(6) for name in ("whole", "parts"))
    for before, after in ((whole.weights, parts.weights), (whole.state or {}, parts.state or {})):
        assert before.keys() == after.keys()
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert "random" in (parts.state or {}) and whole.progress == parts.progress


def test_a_run_stays_on_its_kind_of_device(run):
    flags = ["--layers=1", "--steps=2"]
    run("cpu", "cpu", *flags, "--stop_after=1")
    with installed():
        run("ipu", "ipu", *flags, "--stop_after=1")
    refused = pytest.raises(DataError, match="a run on plain PyTorch, but this run is on IPUs")
    with installed(), refused:
        run("cpu", "ipu", *flags, "--resume")
    with pytest.raises(DataError, match="a run on IPUs, but this run is on plain PyTorch"):
        run("ipu", "cpu", *flags, "--resume")


@pytest.mark.parametrize(
    ("more", "rates"),
    [
        (["--steps=4"], [1, 11 / 12, 2 / 4, 1 / 4]),
        # The rate that the program is compiled with, which PopTorch would not copy again.
        (["--steps=4", "--warmup_steps=3"], [1, 11 / 12, 1, 1 / 2]),
    ],
)
def test_another_number_of_steps_has_its_own_schedule_from_the_first_on(run, more, rates):
    """After 2 of 12 steps: what the IPUs ran with, and what metrics.jsonl says."""
    flags = ["--layers=1", "--learning_rate=0.01", "--batch_size=8"]
    with installed() as before:
        run("run", "ipu", *flags, "--steps=12", "--stop_after=2")
    with installed() as after:
        lines = run("run", "ipu", *flags, *more, "--resume")
    due = [0.01 * rate for rate in rates]
    np.testing.assert_allclose(before.rates + after.rates, due)
    said = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    np.testing.assert_allclose(said, due)


def test_every_checkpoint_can_be_measured(run, tmp_path):
    """One program, each time with other weights: they get to the IPUs."""
    flags = ["--layers=1", "--batch_size=8", "--learning_rate=0.01", "--precision=float32"]
    with installed():
        lines = run("run", "ipu", *flags, "--steps=4", "--evaluate_every=2", "--checkpoint_every=2")
    report = tmp_path / "report.jsonl"
    with installed() as poptorch:
        more = ["--checkpoint=all", "--precision=auto", f"--report={report}"]
        evaluate.main([str(tmp_path / "run"), *more])
    assert "training" not in poptorch.executors
    trained = [line["loss"] for line in lines if line["kind"] == "evaluation"]
    found = [json.loads(line)["loss"] for line in report.read_text().splitlines()]
    assert len(found) == 2 and found[0] != found[1]
    np.testing.assert_allclose(found, trained, rtol=1e-2)  # float16 of the weights


def test_programs_of_two_replicas_and_two_steps_a_call(shards):
    """Three layers on four IPUs: at least 7 microbatches fill 4 + 3 stages."""
    intervals = {"evaluate_every": 2, "checkpoint_every": 2}
    with installed() as poptorch:
        program = compiled(
            shards, batch_size=32, replication=2, device_iterations=2, epochs=1.5, **intervals
        )
    assert (program.steps, program.steps_per_call) == (4, 2), (
        "3 steps of 1.5 epochs, and whole calls"
    )
    training, inference = (poptorch.executors[kind] for kind in ("training", "inference"))
    assert training.options["gradientAccumulation"] == 8
    assert training.options["accumulationAndReplicationReductionType"].name == "Mean"
    # No accumulation in evaluation: its 8 microbatches are device iterations.
    for executor, iterations in ((training, 2), (inference, 16)):
        assert executor.options["deviceIterations"] == iterations
        assert executor.options["replicationFactor"] == 2
        assert executor.options["outputMode"].name == "All"
        assert executor.options["enableStochasticRounding"] == (executor is training)
        assert not [name for name in executor.traced if "scaled_dot_product" in name]
    blocks = [("embeddings", 0), ("layer 0", 1), ("layer 1", 2), ("layer 2", 3), ("classifier", 3)]
    assert poptorch.blocks == blocks


def test_half_precision(shards):
    """Weights are float16, moments are not, and no epsilon is below what float16 can hold."""
    with installed():
        made = compiled(shards)
    assert {weight.dtype for weight in made.module.parameters()} == {torch.float16}
    epsilons = {m.eps for m in made.module.modules() if isinstance(m, torch.nn.LayerNorm)}
    assert np.float16(min(epsilons)) > 0
    assert {array.dtype.name for array in weights_in(made).values()} == {"float32"}
    settings = made._optimizer.settings
    assert (settings["loss_scaling"], settings["accum_type"]) == (128.0, torch.float16)
    moments = ("first_order_momentum_accum_type", "second_order_momentum_accum_type")
    assert {settings[name] for name in moments} == {torch.float32}


def test_what_ipus_cannot_do_is_refused(shards, monkeypatch):
    with installed():
        with pytest.raises(
            UsageError, match="--steps=5 is not a multiple of --device_iterations=2"
        ):
            compiled(shards, steps=5, device_iterations=2)
        with pytest.raises(UsageError, match="--class_weights: IPUs weigh all microbatches"):
            compiled(shards, class_weights="1,2")
        compiled(shards, class_weights="1,1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(UsageError, match="WORLD_SIZE=2: a run on IPUs .*--replication"):
            compiled(shards)
        monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(UsageError, match="--device=ipu: PopTorch finds no IPU"):
        compiled(shards)


def placed(**changes):
    """The placement of 12 layers."""
    settings = {"batch_size": 64, "shards": "set", **changes}
    return place_on_ipus(make_flags(PoptorchClassifierFlags, **settings).compute, layers=12)


def test_blocks_and_rows_are_shared_out():
    """64 rows: 8 microbatches of 8 fill a pipeline of 4 + 3 stages; 2 replicas take half each."""
    assert parse_blocks("auto", 12) == (1, 4, 4, 4)
    assert parse_blocks("auto", 13) == (1, 5, 4, 4)
    assert parse_blocks("auto", 3) == (1, 1, 1, 1)
    assert parse_blocks("auto", 2) == (3,)
    assert parse_blocks("7+6", 12) == (7, 6)
    assert parse_blocks("13", 12) == (13,)
    found = placed()
    assert (found.microbatch, found.accumulation, found.call_rows) == (8, 8, 64)
    found = placed(replication=2, device_iterations=4)
    assert (found.microbatch, found.accumulation, found.call_rows) == (4, 8, 256)
    assert found.description == (
        "8 IPUs, float16: blocks 1 + 4 + 4 + 4, 2 replicas, 8 microbatches of 4 rows a replica "
        "and step, 4 steps a call"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"blocks_per_ipu": "1,4,4,4"}, "give numbers of blocks joined by \\+"),
        ({"blocks_per_ipu": "1+4+4"}, "places 9 blocks, but the model has 13"),
        ({"blocks_per_ipu": "0+5+4+4"}, "give numbers above 0 that sum to 13"),
        ({"blocks_per_ipu": "5+4+4"}, "needs 3 IPUs, but PopTorch reserves a power of two"),
        (
            {"gradient_accumulation_steps": 4},
            "4 IPUs have 7 forward and backward stages.*give at least 7",
        ),
        (
            {"gradient_accumulation_steps": 32, "replication": 4},
            "cannot be cut into --gradient_accumulation_steps=32",
        ),
        ({"replication": 3}, "--batch_size=64 is not a multiple of --replication=3"),
        ({"batch_size": 4}, "cannot be cut into --gradient_accumulation_steps=7"),
        ({"precision": "bfloat16"}, "IPUs support float16 and float32"),
        ({"replication": 0}, "--replication=0: must be at least 1"),
        ({"device_iterations": 0}, "--device_iterations=0: must be at least 1"),
        ({"loss_scaling": 0}, "--loss_scaling=0: must be above 0 and at most 1e30"),
    ],
)
def test_placements_that_are_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        placed(**changes)
