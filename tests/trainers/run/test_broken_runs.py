"""All five trainers, broken off, damaged and used: a run goes on to what it would have been."""

import json
import os
import shlex
import shutil
import signal
from typing import Any

import numpy as np
import pytest

from tests.tools.compile_cache import compiled_once
from tests.tools.run_reading import untimed_lines
from tests.tools.trainer_list import TRAINERS
from textmill.schemas.errors import DataError
from textmill.trainers import evaluate
from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import numbered
from textmill.trainers.run.schedule import Schedule
from textmill.trainers.run.trainer import Trainer

# PyTorch finds no GPU in a process that TensorFlow came to first, and warns.
pytestmark = pytest.mark.filterwarnings("ignore:CUDA initialization:UserWarning")
STEPS, STOPPED, RATE = 12, 7, 0.01
FLAGS = [
    f"--steps={STEPS}",
    "--evaluate_every=5",
    "--checkpoint_every=1",
    "--keep_checkpoints=20",
    f"--learning_rate={RATE}",
    "--dropout=0.2",
    "--best_metric=loss",
]
EVALUATED = [5, 10, 12]


@pytest.fixture(scope="module", autouse=True)
def quickly(no_picture, compiled):
    """Equal programs of JAX are compiled once for all tests here, and no loss curve is drawn."""
    with compiled_once(compiled):
        yield


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A set of each trainer's task by its name."""
    folder = tmp_path_factory.mktemp("sets")
    for trainer in TRAINERS:
        trainer.write_set(folder / trainer.name)
    return folder


QUICKEST = "flax_clm"  # of the five
CHOICE = [
    trainer if trainer.name == QUICKEST else pytest.param(trainer, marks=pytest.mark.slow)
    for trainer in TRAINERS
]


@pytest.fixture(scope="module", params=CHOICE, ids=[trainer.name for trainer in TRAINERS])
def trainer(request):
    return request.param


@pytest.fixture(scope="module")
def train(trainer, sets):
    """A function of an output directory and more flags; a later one replaces one before."""

    def train(output, *more):
        flags = [f"--shards={sets / trainer.name}", *trainer.small, *FLAGS]
        given = dict(flag.partition("=")[::2] for flag in [*flags, *more])
        words = [f"{name}={value}" if value else name for name, value in given.items()]
        trainer.main([f"--output={output}", *words])

    return train


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """The directory of a run that nothing broke; its weights are in `exported` beside it."""
    output = tmp_path_factory.mktemp("whole") / "run"
    train(output, f"--export={output.parent / 'exported'}")
    assert evaluated(output) == EVALUATED
    return output


@pytest.fixture(scope="module")
def stopped(train, tmp_path_factory):
    """The directory of a run that --stop_after ended: the best is after 5 steps, the last after 7.

    Tests that change it take a copy.
    """
    output = tmp_path_factory.mktemp("stopped") / "run"
    train(output, f"--stop_after={STOPPED}")
    assert evaluated(output) == [5]
    return output


def evaluated(output):
    return [line["step"] for line in untimed_lines(output, "evaluation")]


def files_of(*folders):
    """Content of all files by their paths below their folder's parent."""
    return {
        str(path.relative_to(folder.parent)): path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def checkpoints_of(output):
    return files_of(output / "checkpoints", output / "best")


def states_of(output):
    """Weights and optimizer's state after the last step, and the best weights."""
    last, best = numbered(output / "checkpoints"), numbered(output / "best")
    found = {name: folder[max(folder)] for name, folder in (("last", last), ("best", best))}
    return {
        name: (path.name, (path / "state.safetensors").read_bytes()) for name, path in found.items()
    }


def command_after(said, words):
    """The arguments of the command that a run printed after these words."""
    command = said.split(words)[1].split("\n")[0]
    return shlex.split(command)[3:]  # python -m trainers.flax_mlm


def test_it_goes_on_by_the_command_it_printed(trainer, train, whole, tmp_path, capsys):
    """In parts that end before, at and after evaluations: what an unbroken run writes, to the bit.

    test_resume.py breaks off the loop after every step.
    """
    train(tmp_path / "run", "--stop_after=1", f"--export={tmp_path / 'exported'}")
    assert (tmp_path / "exported" / "model.safetensors").is_file()
    for step in (4, 5, 6, 10, STEPS):
        command = command_after(capsys.readouterr().out, "  resume      ")
        assert "--resume" in command
        trainer.main([*command, f"--stop_after={step}"])
    assert "  resume  " not in capsys.readouterr().out
    assert untimed_lines(tmp_path / "run") == untimed_lines(whole)
    assert checkpoints_of(tmp_path / "run") == checkpoints_of(whole)


def test_a_run_leaves_its_files(trainer, whole):
    files = {"config.json", "config.yaml", "schema.json", "tokenizer.json", "metrics.jsonl"}
    files |= {"loss.png", ".lock", "checkpoints", "best", *trainer.evaluation_files}
    exported = {path.name for path in (whole.parent / "exported").iterdir()}
    files |= exported & {"generation_config.json"}  # of a decoder
    assert {path.name for path in whole.iterdir()} - {"evaluation"} == files
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= exported


def test_a_run_begins_with_the_weights_that_another_exported(train, whole, tmp_path):
    """After a step of next to no length it has the loss of the best weights."""
    init = f"--init_from={whole.parent / 'exported'}"
    train(tmp_path, init, "--steps=1", "--learning_rate=1e-30", "--weight_decay=0")
    [line] = untimed_lines(tmp_path, "evaluation")
    best = min(line["loss"] for line in untimed_lines(whole, "evaluation"))
    assert line["loss"] == pytest.approx(best, rel=1e-5)


def test_another_schedule_begins_with_the_first_step_after_it_was_given(
    train, whole, stopped, tmp_path
):
    """One step from one state: it is as long as the rate is high."""
    run = shutil.copytree(stopped, tmp_path / "run")
    train(run, "--steps=40", "--resume", f"--stop_after={STOPPED + 1}")

    def share(steps):
        return Schedule(steps, OptimizationFlags())(STOPPED)

    due = RATE * share(40)
    assert untimed_lines(run)[-1]["learning_rate"] == pytest.approx(due, rel=1e-5)
    before = read_weights(stopped / "checkpoints" / str(STOPPED))

    def length(output):
        after = read_weights(output / "checkpoints" / str(STOPPED + 1))
        return np.sqrt(sum(np.square(after[name] - before[name]).sum() for name in before))

    ratio = share(40) / share(STEPS)
    assert length(run) / length(whole) == pytest.approx(ratio, rel=1e-3)


def test_a_loss_that_is_no_number_stops_the_run_with_its_batch(train, tmp_path):
    with pytest.raises(DataError, match=r"step \d+: the loss is (nan|inf).* on rows ") as stopped:
        train(tmp_path, "--learning_rate=1e30", "--clip_norm=0")
    [saved] = tmp_path.glob("stopped-at-step-*.npz")
    assert str(saved) in str(stopped.value)
    with np.load(saved) as batch:
        named = ", ".join(map(str, batch["row_index"]))
    assert f"on rows {named} of the split" in str(stopped.value)


def test_a_damaged_run_goes_on_from_what_is_whole(train, whole, stopped, tmp_path, capfd):
    """The newest checkpoint with a bit flipped, metrics.jsonl with a torn line."""
    run = shutil.copytree(stopped, tmp_path / "run")
    newest = run / "checkpoints" / str(STOPPED)
    damaged = newest / "state.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().split(b"\n")
    lines[1] = lines[1][:20] + lines[1]
    metrics.write_bytes(b"\n".join(lines))
    train(run, "--resume")
    said = capfd.readouterr().err
    assert f"note: the checkpoint after step 7 is damaged: {damaged} has changed" in said
    assert f"It is kept as {newest}.damaged; the run resumes after step 6" in said
    assert "resuming after step 6 of 12" in said
    assert f"note: {metrics}: line 2 is broken; removed it and all later lines" in said
    assert untimed_lines(run) == [line for line in untimed_lines(whole) if not 1 < line["step"] < 7]
    assert states_of(run) == states_of(whole)


def test_damaged_best_weights_are_measured_again(train, whole, stopped, tmp_path, capfd):
    run = shutil.copytree(stopped, tmp_path / "run")
    (run / "best" / "5" / "progress.json").write_bytes(b"{}")
    train(run, "--resume")
    assert "resuming after step 4 of 12" in capfd.readouterr().err
    assert untimed_lines(run) == untimed_lines(whole)
    assert states_of(run) == states_of(whole)


def test_evaluate_measures_what_the_run_measured(trainer, whole):
    evaluate.main([str(whole), "--checkpoint=all", "--batch_size=4"])
    [path] = whole.glob("evaluation/*/metrics.jsonl")
    found = {line["step"]: line for line in map(json.loads, path.read_text().splitlines())}
    assert list(found) == list(range(1, STEPS + 1))
    told = [dict(line) for line in untimed_lines(whole) if line.pop("kind") == "evaluation"]
    assert [found[line["step"]] for line in told] == told


def test_ctrl_c_waits_for_an_import():
    """TensorFlow's says ImportError if it is cut off."""
    done = []

    def import_program(plan, task) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        done.append("imported")

    nothing: Any = None
    maker = Trainer(nothing, nothing, import_program, "NumPy", 0.1)
    with pytest.raises(KeyboardInterrupt):
        maker.make_program(nothing, nothing)
    assert done == ["imported"]
