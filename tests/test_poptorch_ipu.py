"""What PopTorch is asked to do, against a stand-in with its signatures; no IPU ran any of it."""

from collections import Counter

import numpy as np
import pytest
import torch
from class_factory import write_class_set
from poptorch_stub import installed

from schemas.errors import UsageError
from trainers.on_poptorch.config import TrainConfig, plan_run
from trainers.on_poptorch.devices import runner_for
from trainers.on_poptorch.placement import parse_blocks, place
from trainers.on_poptorch.runner import example_rows
from trainers.poptorch_classifier import main
from trainers.reader import ShardSet
from trainers.run.journal import read_metrics

SMALL = {"hidden_size": 16, "heads": 2, "intermediate_size": 24, "embedding_size": 8}
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


def runner(shards, **settings):
    """A runner compiled for a plan, on the stand-in's IPUs or without."""
    config = TrainConfig(shards=str(shards), **{**SMALL, "layers": 3, **settings})
    plan = plan_run(config, ShardSet(str(shards)).schema, train_rows=64)
    made, steps, _ = runner_for(plan)
    made.compile(plan.schema, trains=True, evaluates=True)
    return made, steps


def test_every_call_that_poptorch_gets(shards, tmp_path):
    """Three layers on four IPUs, two replicas, two steps a call: from the options to the end."""
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", *FLAGS, "--layers=3"]
    with installed() as poptorch:
        main(
            [
                *flags,
                "--device=ipu",
                "--replication=2",
                "--device_iterations=2",
                "--batch_size=32",
                "--steps=4",
                "--checkpoint_every=2",
                f"--executable_cache={tmp_path / 'cache'}",
            ]
        )
    train = "int32[64, 16], int32[64, 16], int32[64, 16], int32[64]"
    evaluate = "int32[64, 16], int32[64, 16], int32[64, 16]"
    assert poptorch.calls == [
        "BeginBlock(layer_to_call=Embeddings, user_id='embeddings', ipu_id=0)",
        "BeginBlock(layer_to_call=EncoderLayer, user_id='layer 0', ipu_id=1)",
        "BeginBlock(layer_to_call=EncoderLayer, user_id='layer 1', ipu_id=2)",
        "BeginBlock(layer_to_call=EncoderLayer, user_id='layer 2', ipu_id=3)",
        "BeginBlock(layer_to_call=Head, user_id='classifier', ipu_id=3)",
        "optim.AdamW(params=list, lr=5e-05, betas=(0.9, 0.999), eps=1e-08, loss_scaling=128.0, "
        "bias_correction=True, accum_type=torch.float16, "
        "first_order_momentum_accum_type=torch.float32, "
        "second_order_momentum_accum_type=torch.float32, max_grad_norm=1.0)",
        "Options()",
        "Options.replicationFactor(replication_factor=2)",
        "Options.outputMode(output_mode=OutputMode.All)",
        "PipelinedExecution(AutoStage.SameAsIpu)",
        "Options.setExecutionStrategy(strategy=PipelinedExecution)",
        "Precision.setPartialsType(dtype=torch.float32)",
        f"Options.enableExecutableCaching(path='{tmp_path / 'cache'}')",
        "Options.deviceIterations(device_iterations=2)",
        # 32 rows over 2 replicas, in 8 micro-batches of 2: at least 7 fill 4 + 3 stages.
        "Training.gradientAccumulation(gradient_accumulation=8)",
        "Training.accumulationAndReplicationReductionType(reduction_type=ReductionType.Mean)",
        "Options.randomSeed(random_seed=0)",
        "Options.relaxOptimizerAttributesChecks(relax=True)",
        "Precision.enableStochasticRounding(enabled=True)",
        "trainingModel(model=Classifier, options=Options, optimizer=AdamW)",
        f"training.compile({train})",
        "identity_loss(x=float32[], reduction='none')",
        "training.detachFromDevice()",
        "Options()",
        "Options.replicationFactor(replication_factor=2)",
        "Options.outputMode(output_mode=OutputMode.All)",
        "PipelinedExecution(AutoStage.SameAsIpu)",
        "Options.setExecutionStrategy(strategy=PipelinedExecution)",
        "Precision.setPartialsType(dtype=torch.float32)",
        f"Options.enableExecutableCaching(path='{tmp_path / 'cache'}')",
        # No accumulation in evaluation: its 8 micro-batches are device iterations.
        "Options.deviceIterations(device_iterations=16)",
        "Precision.enableStochasticRounding(enabled=False)",
        "inferenceModel(model=Classifier, options=Options)",
        f"inference.compile({evaluate})",
        "inference.detachFromDevice()",
        "training.attachToDevice()",
        "training.setOptimizer(AdamW)",
        f"training.__call__({train})",
        "training.copyWeightsToHost()",  # for the checkpoint after step 2
        "training.setOptimizer(AdamW)",
        f"training.__call__({train})",
        "training.detachFromDevice()",
        "inference.attachToDevice()",
        f"inference.__call__({evaluate})",  # 24 rows, and 40 that fill the call up
    ]
    blocks = [("embeddings", 0), ("layer 0", 1), ("layer 1", 2), ("layer 2", 3), ("classifier", 3)]
    assert poptorch.blocks == {"training": blocks, "inference": blocks}


def test_what_is_traced(shards):
    """The operators BERT is made of, none of them fused, and nothing of the rows traced with."""
    with installed() as poptorch:
        made, _ = runner(shards, device="ipu", precision="float32", batch_size=28)
    rows = next(ShardSet(str(shards)).batches("train", batch_size=4, seed=0, prefetch=0))
    inputs = made.place(rows).tensors[:3]
    made.model.eval()
    torch.testing.assert_close(poptorch.programs["inference"](*inputs), made.model(*inputs))
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
    """Without dropout, in float32: the same losses, measures and weights, step for step."""
    flags = [f"--shards={shards}", *FLAGS, "--layers=3", "--dropout=0", "--precision=float32"]
    flags += ["--steps=6", "--evaluate_every=2", "--batch_size=28", "--learning_rate=0.01"]
    main([*flags, f"--output={tmp_path / 'cpu'}", "--device=cpu", "--accumulation=7"])
    with installed():
        main([*flags, f"--output={tmp_path / 'ipu'}"])  # auto finds the stand-in
    lines = [read_metrics(str(tmp_path / name / "metrics.jsonl")) for name in ("cpu", "ipu")]
    assert len(lines[0]) == len(lines[1]) == 6 + 3
    for here, there in zip(*lines, strict=True):
        for name in ("kind", "step", "loss", "accuracy", "auc", "learning_rate"):
            if name in here:
                assert there[name] == (
                    here[name] if isinstance(here[name], str) else pytest.approx(here[name], 1e-4)
                )
    weights = [torch.load(tmp_path / name / "best.pt")["model"] for name in ("cpu", "ipu")]
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_resumed_run_has_the_same_bits(shards, tmp_path):
    """Moments, schedule and the random numbers of dropout come back to the IPUs."""
    flags = [f"--shards={shards}", *FLAGS, "--layers=1", "--precision=float32", "--device=ipu"]
    flags += ["--steps=6", "--batch_size=8", "--learning_rate=0.01", "--evaluate_every=3"]
    with installed():
        main([*flags, f"--output={tmp_path / 'whole'}"])
    with installed():
        main([*flags, f"--output={tmp_path / 'parts'}", "--stop_after=3"])
    with installed() as poptorch:
        main([*flags, f"--output={tmp_path / 'parts'}", "--resume"])
    assert "training.rng_state = (...)" in poptorch.calls
    states = [
        torch.load(tmp_path / name / "checkpoints" / "step-00000006.pt")
        for name in ("whole", "parts")
    ]
    for name, value in states[0]["model"].items():
        assert torch.equal(states[1]["model"][name], value), name
    assert states[0]["progress"] == states[1]["progress"]
    with pytest.raises(UsageError, match="is of a run on ipu, and this one is on plain"):
        main(
            [*flags[:-5], f"--output={tmp_path / 'parts'}", "--resume", "--device=cpu", *flags[-4:]]
        )


def test_half_precision(shards):
    """Weights are float16, and no epsilon is below what float16 can hold."""
    with installed():
        made, _ = runner(shards, device="ipu", batch_size=28)
    assert {weight.dtype for weight in made.model.parameters()} == {torch.float16}
    epsilons = {m.eps for m in made.model.modules() if isinstance(m, torch.nn.LayerNorm)}
    assert epsilons == {1e-6}
    assert np.float16(min(epsilons)) > 0


def test_sgd(shards):
    with installed() as poptorch:
        runner(shards, device="ipu", optimizer="sgd_momentum", precision="float32", batch_size=28)
    [call] = [call for call in poptorch.calls if call.startswith("optim.")]
    assert call == (
        "optim.SGD(params=list, lr=5e-05, momentum=0.9, loss_scaling=1.0, "
        "use_combined_accum=False, accum_type=torch.float32, velocity_accum_type=torch.float32, "
        "max_grad_norm=1.0)"
    )


def test_what_ipus_cannot_do_is_refused(shards):
    with installed():
        with pytest.raises(UsageError, match="--optimizer=lion: PopTorch has SGD, Adam"):
            runner(shards, device="ipu", optimizer="lion", batch_size=28)
        with pytest.raises(UsageError, match="--steps=5 is no multiple of --device_iterations=2"):
            runner(shards, device="ipu", steps=5, device_iterations=2, batch_size=28)
    with pytest.raises(UsageError, match="--device=ipu: no IPU was found"):
        runner(shards, device="ipu")


def test_steps_of_epochs_are_whole_calls(shards):
    """64 rows in batches of 28 are 3 steps, and a call runs 2."""
    with installed():
        _, steps = runner(
            shards, device="ipu", batch_size=28, device_iterations=2, evaluate_every=2,
            checkpoint_every=2,
        )  # fmt: skip
    assert steps == 4


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
        ("1,4,4,4", "numbers of blocks with \\+ between them"),
        ("1+4+4", "places 9 blocks, and the model has 13"),
        ("0+5+4+4", "each IPU takes at least one"),
        ("5+4+4", "takes 3 IPUs, and PopTorch books a power of two"),
    ],
)
def test_blocks_that_have_no_place(text, said):
    with pytest.raises(UsageError, match=said):
        parse_blocks(text, 12)


def placed(**changes):
    settings = dict(
        device="ipu",
        precision="auto",
        blocks_per_ipu="auto",
        layers=12,
        batch_size=64,
        accumulation=None,
        replication=1,
        device_iterations=1,
    )
    return place(**{**settings, **changes})


def test_rows_are_shared_out():
    """64 rows: 8 micro-batches of 8 fill a pipeline of 4 + 3 stages; 2 replicas take half each."""
    found = placed()
    assert (found.micro_batch, found.accumulation, found.call_rows) == (8, 8, 64)
    found = placed(replication=2, device_iterations=4)
    assert (found.micro_batch, found.accumulation, found.batch_size) == (4, 8, 64)
    assert found.call_rows == 256
    assert found.description == (
        "8 IPUs, float16: blocks 1 + 4 + 4 + 4, 2 replicas, 8 micro-batches of 4 rows a replica "
        "and step, 4 steps a call"
    )
    found = placed(device="cpu", replication=2, device_iterations=4, accumulation=4)
    assert (found.micro_batch, found.replication, found.device_iterations) == (16, 1, 1)
    assert found.description == "PyTorch on cpu, float32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accumulation": 4}, "4 IPUs make 7 stages.*give at least 7"),
        ({"accumulation": 9}, "cannot be cut into --accumulation=9"),
        ({"replication": 3}, "--batch_size=64 is no multiple of --replication=3"),
        ({"batch_size": 4}, "cannot be cut into --accumulation=7"),
        ({"precision": "bfloat16"}, "IPUs have float16 and float32"),
        ({"device": "cpu", "precision": "float16"}, "float16 is for IPUs"),
    ],
)
def test_rows_that_cannot_be_shared_out(changes, said):
    with pytest.raises(UsageError, match=said):
        placed(**changes)


def test_what_is_compiled_has_the_shapes_of_batches(shards):
    reader = ShardSet(str(shards))
    with_zeros = example_rows(reader.schema, 4)
    batch = next(reader.batches("train", batch_size=4, seed=0, prefetch=0))
    for name, zeros in with_zeros.items():
        assert (batch[name].shape, batch[name].dtype) == (zeros.shape, zeros.dtype), name
