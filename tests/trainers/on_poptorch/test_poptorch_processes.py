"""Two processes of the PyTorch trainer (gloo, CPU) train as one does, stop together and resume."""

import signal

import numpy as np
import pytest
import torch

from tests.tools.class_factory import write_class_set
from tests.tools.run_processes import Group
from tests.tools.run_reading import read_metrics
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.on_poptorch.ranks import (
    Ranks,
    choose_gpu,
    hint_at_gpus,
    join_ranks,
    report_lost_ranks,
)
from textmill.trainers.poptorch_classifier import main
from textmill.trainers.run.checkpoints import Checkpoints

MODEL = ("--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=24", "--dropout=0")
FLAGS = (
    *MODEL,
    "--batch_size=8",
    "--gradient_accumulation_steps=2",
    "--class_weights=1,2.5",
    "--device=cpu",
)
LENGTH = ("--steps=12", "--evaluate_every=4", "--checkpoint_every=3", "--learning_rate=1e-3")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """64 training rows and 22 of validation: the last batch of an evaluation is not full."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory, validation=22)
    return directory


def start(work, count, *flags, **more):
    """The processes that torchrun would start; their messages are in `work`."""
    return Group(work, count, *map(str, flags), entry="poptorch_classifier", **more)


def lines_of(output):
    return read_metrics(str(output / "metrics.jsonl"))


def assert_same_run(a, b, step):
    """Losses and evaluations of all steps, and weights and moments after one."""
    for one, other in zip(lines_of(a), lines_of(b), strict=True):
        assert one.keys() == other.keys()
        for name in ("step", "weight", "tokens", "learning_rate", "rows", "accuracy"):
            assert one.get(name) == other.get(name)
        assert abs(one["loss"] - other["loss"]) < 1e-6
    one, other = (Checkpoints(output).read(step) for output in (a, b))
    for name, value in one.weights.items():
        np.testing.assert_allclose(other.weights[name], value, atol=1e-6, rtol=0, err_msg=name)
    assert one.state and other.state and one.state.keys() == other.state.keys()


@pytest.mark.slow
def test_two_processes_are_one_and_one_resumes_them(shards, tmp_path):
    flags = [f"--shards={shards}", *FLAGS, *LENGTH]
    two = tmp_path / "two"
    with start(tmp_path, 2, *flags, f"--output={two}", "--stop_after=6") as processes:
        assert processes.wait() == [0, 0], processes.texts
    first, other = processes.texts
    assert "PyTorch on 2 x cpu, float32" in first and first.count("step 4: validation") == 1
    assert other == ""
    main([*flags, f"--output={tmp_path / 'one'}", "--stop_after=6"])
    assert_same_run(tmp_path / "one", two, step=6)
    main([*flags, f"--output={tmp_path / 'one'}", "--resume"])
    main([*flags, f"--output={two}", "--resume"])
    assert_same_run(tmp_path / "one", two, step=12)


@pytest.mark.slow
def test_processes_that_differ_end_before_the_first_step(shards, tmp_path):
    flags = [f"--shards={shards}", *FLAGS, *LENGTH, f"--output={tmp_path / 'run'}"]
    with start(tmp_path, 2, *flags, own={1: ["--class_weights=1,3", "--seed=2"]}) as two:
        assert two.wait(120) == [1, 1], two.texts
    due = "--seed is 0 in process 0, 2 in process 1; --class_weights is 1,2.5 in process 0, 1,3 in"
    for text in two.texts:
        assert f"error: the 2 processes of the run differ: {due} process 1. Start all" in text
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.slow
def test_a_signal_to_one_ends_all_after_the_same_step(shards, tmp_path):
    output = tmp_path / "run"
    flags = [f"--shards={shards}", *FLAGS, f"--output={output}", "--steps=100000"]
    with start(tmp_path, 2, *flags) as processes:
        processes.wait_for_step(output, 5)
        processes.signal(1, signal.SIGTERM)
        assert processes.wait() == [143, 143], processes.texts
    step = Checkpoints(output).latest
    assert f"interrupted: the checkpoint after step {step} is in" in processes.texts[0]
    assert lines_of(output)[-1]["step"] == step > 4
    again = [*flags, "--resume", f"--stop_after={step + 2}"]
    with start(tmp_path / "again", 2, *again) as processes:
        assert processes.wait() == [0, 0], processes.texts
    assert f"resuming after step {step} of" in processes.texts[0]
    assert Checkpoints(output).latest == step + 2


@pytest.mark.slow
def test_a_process_that_dies_ends_the_other(shards, tmp_path):
    output = tmp_path / "run"
    flags = [f"--shards={shards}", *FLAGS, f"--output={output}", "--steps=100000"]
    with start(tmp_path, 2, *flags) as processes:
        processes.wait_for_step(output, 5)
        processes.signal(1, signal.SIGKILL)
        assert processes.wait() == [1, -signal.SIGKILL], processes.texts
    said = processes.texts[0]
    assert "error: another process of the run has ended" in said and "--resume" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_batch_that_two_cannot_share(shards, tmp_path):
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", "--device=cpu"]
    with start(
        tmp_path, 2, *flags, "--batch_size=6", "--gradient_accumulation_steps=2"
    ) as processes:
        assert processes.wait() == [2, 2], processes.texts
    for text in processes.texts:
        assert "--batch_size=6 cannot be shared by 2 processes in 2 microbatches" in text


def test_one_process_needs_no_others():
    alone, values = Ranks(), torch.arange(3.0)
    assert (alone.index, alone.count, alone.local, alone.is_first) == (0, 1, 0, True)
    assert alone.add(values) is alone.concatenate(values) is values
    assert alone.share(lambda: "x") == "x"


def test_an_environment_that_is_not_torchruns(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"WORLD_SIZE=2 .*KeyError\('RANK'\).*`torchrun --nproc"):
        join_ranks()


def test_a_machine_with_too_few_gpus_and_one_with_more():
    gpus = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"LOCAL_RANK={gpus}: .* has {gpus}: .*--device=cpu"):
        choose_gpu(gpus)
    assert hint_at_gpus(1) == ""
    assert hint_at_gpus(8).startswith(" (1 of 8 GPUs; all of them: torchrun --nproc_per_node=8 -m")


def test_a_lost_process_is_reported_and_a_defect_is_not():
    with pytest.raises(DataError, match="another process of the run has ended.*--resume"):
        with report_lost_ranks():
            raise RuntimeError("[gloo/transport/tcp/pair.cc:544] Connection closed")
    with pytest.raises(RuntimeError, match="size of tensor"):
        with report_lost_ranks():
            raise RuntimeError("The size of tensor a (2) must match")
