"""Programs for PopTorch, run by a stand-in with its signatures; no IPU ran any of it."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from schemas.errors import DataError, UsageError
from tests.tools.class_factory import write_class_set
from tests.tools.poptorch_programs import make_program
from tests.tools.poptorch_stub import installed
from tests.tools.run_reading import read_metrics
from trainers import use_model
from trainers.flags.command_line import make_flags
from trainers.on_poptorch.classifier import classifier_arrays
from trainers.on_poptorch.ipu_program import parse_blocks, place_on_ipus
from trainers.poptorch_classifier import PoptorchClassifierFlags, main
from trainers.reader import ShardSet
from trainers.run.checkpoints import Checkpoints, read_weights

SMALL = {
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 24,
    "embedding_size": 8,
    "family": "electra",
}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]


@pytest.fixture(autouse=True)
def one_thread():
    """Models are too small for more, which other tests need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """64 training rows and 24 of validation, two classes."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory)
    return directory


def compiled(shards, **settings):
    """A program on the stand-in's IPUs or without, compiled."""
    program = make_program(shards, **{**SMALL, "layers": 3, **settings})
    program.compile(trains=True, evaluates=True)
    return program


def settings_of(executor):
    """The options that a program was made with."""
    options = executor.options
    found = {**options.values, **options.Training.values, **options.Precision.values}
    found.pop("strategy")  # the stand-in takes one only
    return found


def test_options_optimizer_and_blocks(shards, tmp_path):
    """Three layers on four IPUs, two replicas, two steps a call."""
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", *FLAGS, "--layers=3"]
    flags += ["--device=ipu", "--replication=2", "--device_iterations=2", "--batch_size=32"]
    cache = str(tmp_path / "cache")
    with installed() as poptorch:
        main([*flags, "--steps=4", "--checkpoint_every=2", f"--executable_cache={cache}"])
    shared = {"replication": 2, "output_mode": poptorch.OutputMode.All, "cache": cache}
    shared["partials"] = torch.float32
    training, inference = (poptorch.executors[kind] for kind in ("training", "inference"))
    assert settings_of(training) == {
        **shared,
        "device_iterations": 2,
        # 32 rows over 2 replicas, in 8 microbatches of 2: at least 7 fill 4 + 3 stages.
        "accumulation": 8,
        "reduction": poptorch.ReductionType.Mean,
        "seed": 0,
        "stochastic_rounding": True,
    }
    # No accumulation in evaluation: its 8 microbatches are device iterations.
    assert settings_of(inference) == {
        **shared,
        "device_iterations": 16,
        "accumulation": 1,
        "stochastic_rounding": False,
    }
    assert training.shapes == [((64, 16), torch.int32)] * 3 + [((64,), torch.int32)]
    assert inference.shapes == [((64, 16), torch.int32)] * 3
    assert poptorch.optimizer_arguments == {
        "lr": 5e-5,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "loss_scaling": 128.0,
        "bias_correction": True,
        "accum_type": torch.float16,
        "first_order_momentum_accum_type": torch.float32,
        "second_order_momentum_accum_type": torch.float32,
        "max_grad_norm": 1.0,
    }
    blocks = [("embeddings", 0), ("layer 0", 1), ("layer 1", 2), ("layer 2", 3), ("classifier", 3)]
    assert poptorch.blocks == {"training": blocks, "inference": blocks}


def test_what_is_traced(shards):
    """The operators BERT is made of, none of them fused, and nothing of the rows traced with."""
    flags = {**SMALL, "layers": 3, "precision": "float32", "batch_size": 28}
    with installed() as poptorch:
        made = compiled(shards, device="ipu", **flags)
    rows = next(ShardSet(str(shards)).batches("train", batch_size=4, seed=0, prefetch=0))
    inputs = made.put(rows)[:3]
    plain = make_program(shards, device="cpu", **flags).module.eval()
    torch.testing.assert_close(poptorch.programs["inference"](*inputs), plain(*inputs))
    traced = {kind: Counter(operators) for kind, operators in poptorch.traced.items()}
    layers = 3
    for kind, found in traced.items():
        assert found["aten::linear"] == 1 + 4 * layers + 2, kind
        assert found["aten::matmul"] == 2 * layers
        assert found["aten::softmax"] == layers
        assert found["aten::layer_norm"] == 1 + 2 * layers
        assert found["aten::embedding"] == 2
        assert not [operator for operator in found if "scaled_dot_product" in operator]
    assert traced["training"]["aten::cross_entropy_loss"] == 1
    assert "aten::cross_entropy_loss" not in traced["inference"]


def test_the_numbers_are_those_of_plain_pytorch(shards, tmp_path):
    """Without dropout, in float32: the same losses, metrics and weights, step for step."""
    flags = [f"--shards={shards}", *FLAGS, "--layers=3", "--dropout=0", "--precision=float32"]
    flags += ["--steps=6", "--evaluate_every=2", "--batch_size=28", "--learning_rate=0.01"]
    main([*flags, f"--output={tmp_path / 'cpu'}", "--device=cpu", "--accumulation=7"])
    with installed():
        main([*flags, f"--output={tmp_path / 'ipu'}"])  # auto finds the stand-in
    lines = [read_metrics(str(tmp_path / name / "metrics.jsonl")) for name in ("cpu", "ipu")]
    assert len(lines[0]) == len(lines[1]) == 6 + 3
    for here, there in zip(*lines, strict=True):
        for name in ("kind", "step", "loss", "accuracy", "auc", "learning_rate", "weight"):
            if name in here:
                assert there[name] == (
                    here[name] if isinstance(here[name], str) else pytest.approx(here[name], 1e-4)
                )
    best = [Checkpoints(tmp_path / name).choose("best")[0] for name in ("cpu", "ipu")]
    assert best[0].name == best[1].name
    weights = [read_weights(path) for path in best]
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_resumed_run_has_the_same_bits(shards, tmp_path):
    """Moments, schedule and the random numbers of dropout come back to the IPUs."""
    flags = [f"--shards={shards}", *FLAGS, "--layers=1", "--precision=float32"]
    flags += ["--steps=6", "--batch_size=8", "--learning_rate=0.01", "--evaluate_every=3"]
    with installed():
        main([*flags, f"--output={tmp_path / 'whole'}", "--device=ipu"])
    with installed():
        main([*flags, f"--output={tmp_path / 'parts'}", "--device=ipu", "--stop_after=3"])
    with pytest.raises(DataError, match="is of a run on IPUs, but this run is on plain PyTorch"):
        main([*flags, f"--output={tmp_path / 'parts'}", "--resume", "--device=cpu"])
    with installed():
        main([*flags, f"--output={tmp_path / 'parts'}", "--device=ipu", "--resume"])
    whole, parts = (Checkpoints(tmp_path / name).read(6) for name in ("whole", "parts"))
    for before, after in ((whole.weights, parts.weights), (whole.state or {}, parts.state or {})):
        assert before.keys() == after.keys()
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert {"random", "step___head.out.bias", "exp_avg___layers.0.qkv.weight"} <= set(
        parts.state or {}
    )
    assert whole.progress == parts.progress


def test_a_run_of_plain_pytorch_does_not_go_on_on_ipus(shards, tmp_path):
    flags = [f"--shards={shards}", *FLAGS, "--layers=1", f"--output={tmp_path / 'run'}"]
    main([*flags, "--steps=2", "--stop_after=1", "--device=cpu"])
    with (
        installed(),
        pytest.raises(DataError, match="is of a run on plain PyTorch, but this run is on IPUs"),
    ):
        main([*flags, "--steps=2", "--resume", "--device=ipu"])


@pytest.mark.parametrize(
    ("more", "rates"),
    [
        (["--steps=4"], [1, 11 / 12, 2 / 4, 1 / 4]),
        # The rate that the program is compiled with, of which PopTorch then hears no more.
        (["--steps=4", "--warmup_steps=3"], [1, 11 / 12, 1, 1 / 2]),
    ],
)
def test_another_number_of_steps_has_its_own_schedule_from_the_first_on(
    shards, tmp_path, more, rates
):
    """After 2 of 12 steps: what the IPUs ran with, and what metrics.jsonl says."""
    flags = [f"--shards={shards}", *FLAGS, "--layers=1", f"--output={tmp_path / 'run'}"]
    flags += ["--learning_rate=0.01", "--device=ipu", "--batch_size=8"]
    with installed() as before:
        main([*flags, "--steps=12", "--stop_after=2"])
    with installed() as after:
        main([*flags, *more, "--resume"])
    np.testing.assert_allclose(before.rates + after.rates, [0.01 * rate for rate in rates])
    lines = read_metrics(str(tmp_path / "run" / "metrics.jsonl"))
    said = [line["learning_rate"] for line in lines if line["kind"] == "train"]
    np.testing.assert_allclose(said, [0.01 * rate for rate in rates])


def test_every_checkpoint_can_be_measured(shards, tmp_path, capsys):
    """One program, each time with other weights: they get to the IPUs."""
    flags = [*FLAGS, "--layers=1", f"--output={tmp_path / 'run'}", "--batch_size=8"]
    more = ["--learning_rate=0.01", "--steps=4", "--evaluate_every=2", "--checkpoint_every=2"]
    with installed():
        main([*flags, *more, f"--shards={shards}", "--device=ipu", "--precision=float32"])
    report = tmp_path / "report.jsonl"
    with installed() as poptorch:
        more = ["--checkpoint=all", "--precision=auto", f"--report={report}"]
        use_model.main([str(tmp_path / "run"), "--evaluate", *more])
    assert "training" not in poptorch.executors
    lines = read_metrics(str(tmp_path / "run" / "metrics.jsonl"))
    trained = [line["loss"] for line in lines if line["kind"] == "evaluation"]
    found = [json.loads(line)["loss"] for line in report.read_text().splitlines()]
    assert len(found) == 2 and found[0] != found[1]
    np.testing.assert_allclose(found, trained, rtol=1e-2)  # float16 of the weights


def test_half_precision(shards):
    """Weights are float16, and no epsilon is below what float16 can hold."""
    with installed():
        made = compiled(shards, device="ipu", batch_size=28)
    assert {weight.dtype for weight in made.module.parameters()} == {torch.float16}
    epsilons = {m.eps for m in made.module.modules() if isinstance(m, torch.nn.LayerNorm)}
    assert epsilons == {1e-6}
    assert np.float16(min(epsilons)) > 0
    assert {array.dtype.name for array in made.weights().values()} == {"float32"}


def test_sgd_in_float32(shards):
    with installed() as poptorch:
        compiled(shards, device="ipu", optimizer="sgd_momentum", precision="float32", batch_size=28)
    assert poptorch.optimizer_arguments == {
        "lr": 5e-5,
        "momentum": 0.9,
        "loss_scaling": 1.0,
        "use_combined_accum": False,
        "accum_type": torch.float32,
        "velocity_accum_type": torch.float32,
        "max_grad_norm": 1.0,
    }


def test_what_ipus_cannot_do_is_refused(shards):
    with installed():
        with pytest.raises(
            UsageError, match="--steps=5 is not a multiple of --device_iterations=2"
        ):
            compiled(shards, device="ipu", steps=5, device_iterations=2, batch_size=28)
        with pytest.raises(UsageError, match="--class_weights: IPUs weigh all microbatches"):
            compiled(shards, device="ipu", class_weights="1,2", batch_size=28)
        compiled(shards, device="ipu", class_weights="1,1", batch_size=28)
    with pytest.raises(UsageError, match="--device=ipu: PopTorch finds no IPU"):
        compiled(shards, device="ipu")


def test_a_checkpoint_inside_of_a_call_is_refused(shards, tmp_path):
    flags = [f"--shards={shards}", *FLAGS, "--layers=1", f"--output={tmp_path / 'run'}"]
    flags += ["--device=ipu", "--steps=6", "--batch_size=8"]
    with installed():
        main([*flags, "--stop_after=3"])
        with pytest.raises(
            DataError, match="after step 3, not a multiple of --device_iterations=2"
        ):
            main([*flags, "--resume", "--device_iterations=2"])


def test_steps_of_epochs_are_whole_calls(shards):
    """64 rows in batches of 28 are 3 steps, and a call runs 2."""
    with installed():
        made = compiled(
            shards, device="ipu", batch_size=28, device_iterations=2, evaluate_every=2,
            checkpoint_every=2,
        )  # fmt: skip
    assert made.steps == 4 and made.steps_a_call == 2


@pytest.mark.parametrize(
    ("text", "layers", "expected"),
    [
        ("auto", 12, (1, 4, 4, 4)),
        ("auto", 13, (1, 5, 4, 4)),
        ("auto", 3, (1, 1, 1, 1)),
        ("auto", 2, (3,)),
        ("1+4+4+4", 12, (1, 4, 4, 4)),
        ("7+6", 12, (7, 6)),
        ("13", 12, (13,)),
    ],
)
def test_blocks(text, layers, expected):
    assert parse_blocks(text, layers) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,4,4,4", "give numbers of blocks joined by \\+"),
        ("1+4+4", "places 9 blocks, but the model has 13"),
        ("0+5+4+4", "give numbers above 0 that sum to 13"),
        ("5+4+4", "needs 3 IPUs, but PopTorch reserves a power of two"),
    ],
)
def test_blocks_that_have_no_place(text, said):
    with pytest.raises(UsageError, match=said):
        parse_blocks(text, 12)


def placed(**changes):
    """The placement of 12 layers."""
    settings = {"batch_size": 64, "shards": "set", **changes}
    return place_on_ipus(make_flags(PoptorchClassifierFlags, **settings).compute, layers=12)


def test_rows_are_shared_out(shards):
    """64 rows: 8 microbatches of 8 fill a pipeline of 4 + 3 stages; 2 replicas take half each."""
    found = placed()
    assert (found.microbatch, found.accumulation, found.call_rows) == (8, 8, 64)
    found = placed(replication=2, device_iterations=4)
    assert (found.microbatch, found.accumulation, found.batch_size) == (4, 8, 64)
    assert found.call_rows == 256
    assert found.description == (
        "8 IPUs, float16: blocks 1 + 4 + 4 + 4, 2 replicas, 8 microbatches of 4 rows a replica "
        "and step, 4 steps a call"
    )
    plain = compiled(
        shards, device="cpu", batch_size=64, replication=2, device_iterations=4, accumulation=4
    )
    assert (plain.evaluation_rows, plain.steps_a_call) == (16, 1)
    assert plain.description == "PyTorch on cpu, float32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accumulation": 4}, "4 IPUs have 7 forward and backward stages.*give at least 7"),
        ({"accumulation": 32, "replication": 4}, "cannot be cut into --accumulation=32"),
        ({"replication": 3}, "--batch_size=64 is not a multiple of --replication=3"),
        ({"batch_size": 4}, "cannot be cut into --accumulation=7"),
        ({"precision": "bfloat16"}, "IPUs support float16 and float32"),
        # These whatever the device.
        ({"accumulation": 9}, "--batch_size=64 is not a multiple of --accumulation=9"),
        ({"replication": 0}, "--replication=0: must be at least 1"),
        ({"device_iterations": 0}, "--device_iterations=0: must be at least 1"),
        ({"loss_scaling": 0}, "--loss_scaling=0: must be above 0"),
    ],
)
def test_rows_that_cannot_be_shared_out(changes, said):
    with pytest.raises(UsageError, match=said):
        placed(**changes)


def test_what_is_compiled_has_the_shapes_of_batches(shards):
    """And the dtypes, with labels and without."""
    zeros = classifier_arrays({"input_ids": np.zeros((4, 16), np.int32)})
    batch = next(ShardSet(str(shards)).batches("train", batch_size=4, seed=0, prefetch=0))
    for name, array in classifier_arrays(batch).items():
        assert (array.shape, array.dtype) == (zeros[name].shape, zeros[name].dtype), name
