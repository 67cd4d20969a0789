"""Several processes of one run: as one process, one signal stops all, and none waits in vain."""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.errors import UsageError
from tests.tools.run_processes import TINY, Group
from tests.tools.run_reading import read_metrics
from trainers.flags.framework_flags import ProcessFlags
from trainers.run.checkpoints import damage_of, read_checkpoint

pytestmark = pytest.mark.usefixtures("cache")


def flags_of(shards: Path, output: Path, *more: str) -> list[str]:
    run = ["--steps=20", "--evaluate_every=10", "--checkpoint_every=10"]
    return [f"--shards={shards}", f"--output={output}", *run, *TINY, *more]


def losses_of(output: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(str(output / "metrics.jsonl"))]


@pytest.mark.slow
def test_stopped_and_resumed_by_others_it_is_the_run_of_one_process(shards, tmp_path):
    """2 processes of 2 devices, of which one gets a signal; then 1, then 4; all with dropout."""
    whole, output = tmp_path / "whole" / "run", tmp_path / "run"
    with Group(tmp_path / "whole", 1, *flags_of(shards, whole)) as one:
        assert one.wait() == [0], one.texts
    with Group(tmp_path / "2", 2, *flags_of(shards, output, "--fsdp"), devices=2) as two:
        two.wait_for_step(output, 3)
        two.signal(1)
        assert two.wait() == [128 + signal.SIGTERM] * 2, two.texts
    first, other = two.texts
    assert "interrupted: the checkpoint after step" in first and "--resume" in first
    of_gloo = re.compile("Gloo|peer ranks")  # processes may interrupt each other's lines
    assert [line for line in other.splitlines() if not of_gloo.search(line)] == []
    [step] = [int(path.name) for path in (output / "checkpoints").iterdir()]
    assert 3 < step < 20 and damage_of(output / "checkpoints" / str(step)) is None
    assert read_metrics(str(output / "metrics.jsonl"))[-1]["step"] == step
    more = ["--resume", f"--stop_after={step + 2}"]
    with Group(tmp_path / "1", 1, *flags_of(shards, output, *more)) as one:
        assert one.wait() == [0], one.texts
    with Group(tmp_path / "4", 4, *flags_of(shards, output, "--resume", "--fsdp")) as four:
        assert four.wait() == [0] * 4, four.texts
    np.testing.assert_allclose(losses_of(output), losses_of(whole), rtol=1e-6)
    ours, due = (read_checkpoint(run / "checkpoints" / "20").weights for run in (output, whole))
    assert max(np.abs(ours[name] - due[name]).max() for name in due) < 1e-5


@pytest.mark.slow
def test_a_killed_process_ends_the_other_in_words(shards, tmp_path):
    output = tmp_path / "run"
    flags = flags_of(shards, output, "--steps=100000", "--evaluate_every=100000")
    with Group(tmp_path, 2, *flags) as two:
        two.wait_for_step(output, 3)
        two.signal(0, signal.SIGKILL)
        assert two.wait(60) == [-signal.SIGKILL, 1]
    words = two.texts[1]
    assert "error: process 0 of 2 has ended" in words and "--resume" in words
    assert "Traceback" not in words and "stack trace" not in words


@pytest.mark.slow
def test_what_one_process_refuses_ends_the_other(shards, tmp_path):
    with Group(tmp_path, 2, *flags_of(shards, tmp_path / "run", "--batch_size=7")) as two:
        codes = two.wait(90)
    assert 2 in codes and 0 not in codes
    for text in two.texts:
        assert "--batch_size=7 cannot be shared by 2 devices" in text and "Traceback" not in text


@pytest.mark.parametrize(
    "values, words",
    [
        ({"process_id": 0}, "--process_id needs --num_processes"),
        ({"num_processes": "auto", "coordinator_address": "a:1"}, "--coordinator_address needs"),
        ({"num_processes": "two"}, "--num_processes=two: give a number from 1 on, or auto"),
        ({"num_processes": "2", "process_id": 0}, "needs --coordinator_address=HOST:PORT"),
        ({"num_processes": "2", "process_id": 2, "coordinator_address": "a:1"}, "from 0 to 1"),
        ({"num_processes": "2", "process_id": 1, "coordinator_address": "a"}, "give HOST:PORT"),
    ],
)
def test_flags_that_do_not_go_together(values: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        ProcessFlags(**values)
