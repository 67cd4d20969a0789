"""Two processes of the PyTorch trainer (gloo, CPU) train as one does, stop together and resume."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.tools.class_factory import write_class_set
from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from trainers.poptorch_classifier import main
from trainers.run.checkpoints import Checkpoints

pytestmark = pytest.mark.slow
MODEL = ("--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=24", "--dropout=0")
FLAGS = (*MODEL, "--batch_size=8", "--accumulation=2", "--class_weights=1,2.5", "--device=cpu")
LENGTH = ("--steps=12", "--evaluate_every=4", "--checkpoint_every=3", "--learning_rate=1e-3")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """64 training rows and 22 of validation: the last batch of an evaluation is not full."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory, validation=22)
    return directory


def start(count, *flags):
    """The processes that torchrun would start."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "trainers.poptorch_classifier", *map(str, flags)]
    shared = dict(WORLD_SIZE=count, MASTER_ADDR="localhost", MASTER_PORT=port, OMP_NUM_THREADS=1)
    environments = [dict(shared, RANK=rank, LOCAL_RANK=rank) for rank in range(count)]
    return [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in environments
    ]


def end(processes):
    """Exit codes and outputs."""
    try:
        said = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], said


def wait_for_steps(output, processes):
    """Until a run has made some steps."""
    until = time.monotonic() + 60
    while not (output / "metrics.jsonl").exists() or len(lines_of(output)) < 5:
        assert time.monotonic() < until and all(p.poll() is None for p in processes)
        time.sleep(0.1)


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


def test_two_processes_are_one_and_one_resumes_them(shards, tmp_path):
    flags = [f"--shards={shards}", *FLAGS, *LENGTH]
    two = tmp_path / "two"
    codes, said = end(start(2, *flags, f"--output={two}", "--stop_after=6"))
    assert codes == [0, 0], said
    assert "PyTorch on 2 x cpu, float32" in said[0] and said[0].count("step 4: validation") == 1
    assert said[1] == ""
    main([*flags, f"--output={tmp_path / 'one'}", "--stop_after=6"])
    assert_same_run(tmp_path / "one", two, step=6)
    main([*flags, f"--output={tmp_path / 'one'}", "--resume"])
    main([*flags, f"--output={two}", "--resume"])
    assert_same_run(tmp_path / "one", two, step=12)


def test_a_signal_to_one_ends_all_after_the_same_step(shards, tmp_path):
    output = tmp_path / "run"
    flags = [f"--shards={shards}", *FLAGS, f"--output={output}", "--steps=100000"]
    processes = start(2, *flags)
    wait_for_steps(output, processes)
    processes[1].send_signal(signal.SIGTERM)
    codes, said = end(processes)
    step = Checkpoints(output).latest
    assert f"interrupted: the checkpoint after step {step} is in" in said[0]
    assert codes == [143, 143], said
    assert lines_of(output)[-1]["step"] == step > 4
    codes, said = end(start(2, *flags, "--resume", f"--stop_after={step + 2}"))
    assert codes == [0, 0] and f"resuming after step {step} of" in said[0]
    assert Checkpoints(output).latest == step + 2


def test_a_process_that_dies_ends_the_other(shards, tmp_path):
    output = tmp_path / "run"
    processes = start(2, f"--shards={shards}", *FLAGS, f"--output={output}", "--steps=100000")
    wait_for_steps(output, processes)
    processes[1].kill()
    codes, said = end(processes)
    assert codes == [1, -signal.SIGKILL], said
    assert "error: another process of the run has ended" in said[0] and "--resume" in said[0]
    assert "Traceback" not in said[0]


def test_a_batch_that_two_cannot_share(shards, tmp_path):
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", "--device=cpu"]
    codes, said = end(start(2, *flags, "--batch_size=6", "--accumulation=2"))
    assert codes == [2, 2]
    for text in said:
        assert "--batch_size=6 cannot be shared by 2 processes in 2 microbatches" in text
