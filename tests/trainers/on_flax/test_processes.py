"""Several processes of one run: as one process, one signal stops all, and none waits in vain."""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.run_processes import TINY, Group
from tests.tools.run_reading import read_metrics
from textmill.schemas.errors import UsageError
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.framework_flags import ProcessFlags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.weights import init_weights, to_published
from textmill.trainers.run.checkpoint_files import damage_of, read_checkpoint

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


@pytest.mark.slow
def test_processes_that_differ_end_before_the_first_step(shards, tmp_path):
    """In flags, dataset or first weights; both name what differs, and the run has no step."""
    write_clm_set(tmp_path / "set", train=30)
    directory = write_first_weights(tmp_path, shards)
    cases = {
        "--seed is 0 in process 0, 1 in process 1; ": (["--seed=0"], ["--seed=1"]),
        "fingerprint of the dataset is ": ([f"--shards={shards}"], [f"--shards={tmp_path}/set"]),
        "first weights is ": [[f"--init_from={directory}/{name}"] for name in "ab"],
    }
    for number, (words, own) in enumerate(cases.items()):
        output = tmp_path / str(number)
        flags = [f"--shards={shards}", f"--output={output}", "--steps=2", "--batch_size=8"]
        with Group(output, 2, *flags, own=dict(enumerate(own))) as two:
            assert two.wait(120) == [1, 1], two.texts
        for text in two.texts:
            found = [line for line in text.splitlines() if line.startswith("error: ")]
            due = f"error: the 2 processes of the run differ: {words.rstrip('; ')}"
            assert len(found) == 1 and found[0].startswith(due), text
            assert "Start all of them with the same flags" in text and "Traceback" not in text
        assert not (output / "metrics.jsonl").exists()


def write_first_weights(place: Path, shards: Path) -> Path:
    """Weights in place/a and place/b, which differ in one value."""
    schema = ShardSet(str(shards)).schema
    sizes = make_flags(FlaxClmFlags, shards="-", layers=1, hidden_size=8, heads=1)
    config = plan_model(sizes, schema).config
    for name in "ab":
        weights = init_weights(config, 0)
        weights["embeddings.tokens.weight"][7, 3] += name == "b"
        content = (shards / "tokenizer.json").read_bytes()
        published = to_published(weights, config)
        write_directory(str(place / name), config.to_json({}), published, content)
    return place


@pytest.mark.slow
def test_a_taken_port_and_a_number_twice_are_named(shards, tmp_path):
    """In words, without a stack trace of JAX."""
    flags = flags_of(shards, tmp_path / "run")
    twice = {2: ["--process_id=1"]}
    with Group(tmp_path / "twice", 3, *flags, own=twice) as three:
        assert three.wait(120) == [1] * 3, three.texts
    assert all("error: two processes have --process_id=1 at 127." in t for t in three.texts)
    twice = {1: ["--process_id=0"]}
    with Group(tmp_path / "first", 2, *flags, own=twice) as two:
        assert two.wait(120) == [1, 1], two.texts
    assert any("process 0 cannot use this port (Address already" in t for t in two.texts)
    assert not any("stack trace" in text for text in (*three.texts, *two.texts))


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


@pytest.mark.slow
def test_a_mixture_in_stages_on_three_hosts(tmp_path):
    """Stopped on three and ended by one, it has the losses of one process."""
    for number, name in enumerate(("web", "code")):
        write_clm_set(tmp_path / name, train=20 + 10 * number, step=number)
    shards = Path(f"{tmp_path}/web,{tmp_path}/code")
    more = ["--stages=0:web=0.6,code=0.4;7:code=1;75%:web=0.3,code=0.7", "--batch_size=6"]
    whole, output = tmp_path / "whole" / "run", tmp_path / "run"
    with Group(tmp_path / "whole", 1, *flags_of(shards, whole, *more)) as one:
        assert one.wait() == [0], one.texts
    with Group(tmp_path / "3", 3, *flags_of(shards, output, *more, "--stop_after=9")) as three:
        assert three.wait() == [0] * 3, three.texts
    with Group(tmp_path / "1", 1, *flags_of(shards, output, *more, "--resume")) as one:
        assert one.wait() == [0], one.texts
    np.testing.assert_allclose(losses_of(output), losses_of(whole), rtol=1e-6)
    stages = [
        [line["stage"] for line in read_metrics(str(run / "metrics.jsonl"))]
        for run in (output, whole)
    ]
    assert stages[0] == stages[1] and set(stages[0]) == {1, 2, 3}
