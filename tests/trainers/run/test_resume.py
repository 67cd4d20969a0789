"""Runs that are broken off, wherever and however: resumed, each ends as one that nothing broke."""

import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.numpy_program import (
    Diary,
    NumpyFlags,
    numpy_flags,
    numpy_trainer,
    remains_of,
    run_numpy,
)
from tests.tools.python_process import run_python
from tests.tools.run_reading import change_flags, untimed_lines
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.flags.command_line import command
from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.reader import ShardSet
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.schedule import Schedule
from textmill.trainers.run.start import train
from textmill.trainers.tasks.language_models import ClmTask

pytestmark = pytest.mark.usefixtures("no_picture")


def go_on(flags: NumpyFlags) -> None:
    """Resumes a run as it printed."""
    train(change_flags(flags, resume=True), numpy_trainer())


def interrupted(flags: NumpyFlags, at: tuple[str, int], number: int) -> bool:
    """Starts a run that gets a signal at a call of its program; whether that call came."""
    sent = []

    def listen(name, count):
        if (name, count) == at and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    output = Path(str(flags.files.output))
    try:
        train(flags, numpy_trainer(Diary(listener=listen)))
    except SystemExit as left:
        assert left.code == 128 + number
    assert Checkpoints(output).latest == len(untimed_lines(output, "train")), "no step is lost"
    return bool(sent)


@pytest.mark.parametrize(
    "changes", [{}, {"evaluate_every": 2, "patience": 1, "steps": 16}], ids=str
)
def test_interrupted_after_every_step_and_in_every_evaluation(shards, whole, tmp_path, changes):
    run, exported = tmp_path / "run", tmp_path / "exported"
    flags, step = numpy_flags(shards, run, export=str(exported), **changes), 0
    while interrupted(change_flags(flags, resume=step > 0), ("train", step), signal.SIGTERM):
        step += 1
        assert Checkpoints(run).latest == step
        if step % flags.length.evaluate_every == 0:
            assert interrupted(change_flags(flags, resume=True), ("evaluate", 1), signal.SIGINT)
        assert not exported.exists()
    assert step >= 10 and (exported / "model.safetensors").exists()
    assert remains_of(run) == whole(**changes)


def test_an_interrupted_evaluation_writes_no_files(shards, tmp_path, monkeypatch, capfd):
    """Predictions and plots of a part of the split would replace those of all of it."""
    writes = []
    monkeypatch.setattr(ClmTask, "write_files", lambda task, folder: writes.append(folder))
    flags = numpy_flags(shards, tmp_path)
    assert interrupted(flags, ("evaluate", 1), signal.SIGTERM) and writes == []
    assert capfd.readouterr().err.splitlines()[-2:] == [
        f"interrupted: the checkpoint after step 4 is in {tmp_path}/checkpoints. Resume with:",
        f"  {command(flags, resume=True)}",
    ]
    go_on(flags)
    assert writes == [tmp_path] * 3


def run_traced(flags: NumpyFlags, at: tuple[str, int] | None, act) -> list[tuple[str, int]]:
    """Lines of trainers/run that a run goes through, once each; acts before one of them."""
    met: list[tuple[str, int]] = []

    def trace(frame, event, _):
        name = frame.f_code.co_filename
        if "/trainers/run/" not in name or frame.f_code.co_name == "<module>":
            return None
        if event == "line":
            place = (Path(name).name, frame.f_lineno)
            if place not in met:
                met.append(place)
                if place == at:
                    act()
        return trace

    sys.settrace(trace)
    try:
        train(flags, numpy_trainer())
    except (SystemExit, KeyboardInterrupt):
        pass
    finally:
        sys.settrace(None)
    return met


SHORT = {"steps": 3, "evaluate_every": 2, "checkpoint_every": 2, "batch_size": 5}


@pytest.fixture
def lines(shards, tmp_path) -> list[tuple[str, int]]:
    """Every line of trainers/run that a short run goes through."""
    found = run_traced(numpy_flags(shards, tmp_path / "lines", **SHORT), None, None)
    assert {name for name, _ in found} > {"loop.py", "start.py", *WRITE} and len(found) > 200
    return found


WRITE = ("checkpoint_files.py", "checkpoint_writer.py", "journal.py", "run_directory.py")
# Every sixteenth line each.
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 16))]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of an open file
@pytest.mark.parametrize("part", PARTS)
def test_ctrl_c_at_any_line(shards, whole, tmp_path, lines, part):
    """Also before the first step, and as the run ends."""
    for number, line in enumerate([line for line in lines if line[0] not in WRITE][part::16]):
        flags = numpy_flags(shards, tmp_path / str(number), **SHORT)
        run_traced(flags, line, lambda: os.kill(os.getpid(), signal.SIGINT))
        latest = Checkpoints(tmp_path / str(number)).latest
        assert latest == len(untimed_lines(tmp_path / str(number), "train")), line
        go_on(flags)
        assert remains_of(tmp_path / str(number)) == whole(**SHORT), line


@pytest.mark.parametrize("part", PARTS)
def test_killed_at_any_line_that_writes(shards, whole, tmp_path, lines, part):
    for number, line in enumerate([line for line in lines if line[0] in WRITE][part::16]):
        flags = numpy_flags(shards, tmp_path / str(number), **SHORT)
        child = os.fork()
        if not child:
            try:
                run_traced(flags, line, lambda: os._exit(9))
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, line
        go_on(flags)
        assert remains_of(tmp_path / str(number)) == whole(**SHORT), line


def test_a_second_signal_stops_at_once(shards, whole, tmp_path, capfd):
    def listen(name, count):
        if (name, count) == ("train", 7):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    flags = numpy_flags(shards, tmp_path)
    with pytest.raises(SystemExit) as left:
        train(flags, numpy_trainer(Diary(listener=listen)))
    assert left.value.code == 130
    said = capfd.readouterr().err.splitlines()
    assert said[-2] == "interrupted; resume with:"
    assert said[-1] == f"  {command(flags, resume=True)}"
    assert Checkpoints(tmp_path).latest == 6
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    go_on(flags)
    assert remains_of(tmp_path) == whole()


def test_in_another_thread_signals_are_others(shards, whole, tmp_path):
    """Python lets no other thread catch them; the run is the same."""
    failed = []

    def work():
        try:
            run_numpy(shards, tmp_path)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed and remains_of(tmp_path) == whole()


@pytest.mark.parametrize("steps_per_call", [2, 4])
def test_several_steps_a_call(shards, whole, tmp_path, steps_per_call):
    """Rows, rates and measurements are those of as many calls of one step."""
    diary = Diary()
    flags = numpy_flags(shards, tmp_path / "run", steps_per_call=steps_per_call, checkpoint_every=4)
    train(flags, numpy_trainer(diary))
    assert [count for name, count in diary.entries if name == "train"] == [
        *range(0, 12, steps_per_call)
    ]
    assert remains_of(tmp_path / "run") == whole(checkpoint_every=4)
    for count in range(0, 12, steps_per_call):
        flags = change_flags(flags, output=str(tmp_path / str(count)))
        assert interrupted(flags, ("train", count), signal.SIGTERM)
        assert Checkpoints(tmp_path / str(count)).latest == count + steps_per_call
        go_on(flags)
        assert remains_of(tmp_path / str(count)) == whole(checkpoint_every=4)


def test_calls_are_whole(shards, tmp_path, capfd):
    """A schedule of ten steps in calls of four is one of twelve."""
    run_numpy(shards, tmp_path / "ten", steps=10, steps_per_call=4)
    run_numpy(shards, tmp_path / "twelve", steps_per_call=4)
    assert remains_of(tmp_path / "ten") == remains_of(tmp_path / "twelve")
    flags = numpy_flags(shards, tmp_path / "stopped", steps_per_call=4, stop_after=6)
    train(flags, numpy_trainer())
    assert Checkpoints(tmp_path / "stopped").latest == 8
    assert "step 1/8  epoch 0.10" in capfd.readouterr().err
    train(change_flags(flags, resume=True, stop_after=None), numpy_trainer())
    assert remains_of(tmp_path / "stopped") == remains_of(tmp_path / "twelve")
    run_numpy(shards, tmp_path / "three", stop_after=3)
    message = (
        "the newest checkpoint is after step 3, not a multiple of --device_iterations=2: give a "
    )
    with pytest.raises(DataError, match=f"{message}divisor of 3"):
        run_numpy(shards, tmp_path / "three", resume=True, steps_per_call=2)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_run_is_not_resumed_on_another_corpus(shards, tmp_path, mixed):
    """Built with the same flags from other text, a set has the same schema and other rows."""
    write_clm_set(tmp_path / "other", train=39, step=0)
    write_clm_set(tmp_path / "copy", step=0)
    places = [str(shards), str(tmp_path / "other"), str(tmp_path / "copy")]
    if mixed:
        places = [f"{place}:3,{shards}:1" for place in (tmp_path / "copy", *places[1:])]
    first, other, copy = places
    if not mixed:
        assert ShardSet(first).schema == ShardSet(other).schema
    run_numpy(first, tmp_path / "run", stop_after=4)
    before = remains_of(tmp_path / "run")
    with pytest.raises(
        UsageError, match="shards' fingerprint was .* Give the dataset and settings"
    ):
        run_numpy(other, tmp_path / "run", resume=True)
    assert remains_of(tmp_path / "run") == before
    run_numpy(copy, tmp_path / "run", resume=True)
    run_numpy(first, tmp_path / "whole")
    assert remains_of(tmp_path / "run") == remains_of(tmp_path / "whole")


def test_gone_on_with_to_another_end(shards, whole, tmp_path, capfd):
    """The schedule is then that of the other number, from the next step on."""
    run_numpy(shards, tmp_path, stop_after=6)
    capfd.readouterr()
    run_numpy(shards, tmp_path, steps=8, resume=True)
    assert "note: steps was 12, is 8" in capfd.readouterr().err
    lines = untimed_lines(tmp_path, "train")
    assert lines[:6] == [line for line in whole()["lines"] if line["kind"] == "train"][:6]
    schedule = Schedule(8, OptimizationFlags(warmup_steps=2))
    rates = [float(np.float32(8.0 * schedule(step))) for step in (6, 7)]
    assert [line["learning_rate"] for line in lines[6:]] == rates
    assert [line["step"] for line in untimed_lines(tmp_path, "evaluation")] == [4, 8]
    run_numpy(shards, tmp_path, steps=12, stop_after=10, resume=True)
    assert [line["step"] for line in untimed_lines(tmp_path, "evaluation")] == [4, 8]
    diary = Diary()
    run_numpy(shards, tmp_path, steps=10, resume=True, diary=diary)
    assert not [name for name, _ in diary.entries if name == "train"]
    evaluated = [line["step"] for line in untimed_lines(tmp_path, "evaluation")]
    assert evaluated == [4, 8, 10], "shortened to where it is, a run owes its last evaluation"
    run_numpy(shards, tmp_path, steps=9, resume=True)
    assert "nothing to do: step 10 of 9 is done" in capfd.readouterr().err


def test_a_run_of_wsd_that_grows_before_its_decay_equals_a_longer_one(shards, whole, tmp_path):
    flags = {"schedule": "wsd", "decay_steps": 2, "evaluate_every": 3}
    run_numpy(shards, tmp_path, stop_after=6, steps=9, **flags)
    run_numpy(shards, tmp_path, resume=True, **flags)
    rates = [line["learning_rate"] for line in untimed_lines(tmp_path, "train")]
    assert rates[1:10] == [8.0] * 9 and rates[10:] == [np.float32(16 / 3), np.float32(8 / 3)]
    assert remains_of(tmp_path) == whole(**flags)


@pytest.mark.parametrize("export", ["run", "."])
def test_an_export_to_the_run_itself_is_refused_before_the_first_step(shards, tmp_path, export):
    diary = Diary()
    with pytest.raises(UsageError, match=f"^--export={tmp_path}/{export} exists already"):
        run_numpy(shards, tmp_path / "run", diary=diary, export=f"{tmp_path}/{export}")
    assert not [name for name, _ in diary.entries if name == "train"]


def test_a_run_that_is_done_is_exported_and_otherwise_left_alone(shards, tmp_path, capfd):
    run_numpy(shards, tmp_path / "run", keep_checkpoints=9)  # more than --resume is to keep
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run/[cb]*s*/*/*")}
    before, diary = remains_of(tmp_path / "run"), Diary()
    run_numpy(shards, tmp_path / "run", diary=diary, resume=True, export=f"{tmp_path}/hf")
    assert diary.entries == [], "no framework is needed"
    assert (tmp_path / "hf" / "model.safetensors").exists()
    assert remains_of(tmp_path / "run") == before
    assert {path: path.stat().st_mtime_ns for path in times} == times and times
    said = capfd.readouterr()
    assert "nothing to do: step 12 of 12 is done" in said.err
    assert re.search(r"^12 steps done; this run took \d+ s$", said.out, re.M)


def test_a_set_that_is_lost_on_the_way_is_named(shards, whole, tmp_path):
    """The reader's thread cannot go on; the run can, once the set is there again."""
    shutil.copytree(shards, tmp_path / "set")
    [*files] = (tmp_path / "set").glob("train-*.tfrecord")

    def listen(name, count):
        if name == "compile":
            for path in files:
                path.rename(path.with_suffix(".away"))

    flags = numpy_flags(tmp_path / "set", tmp_path / "run")
    with pytest.raises(DataError, match=rf"{tmp_path}/set/train-0000\d-of-00002.tfrecord"):
        train(flags, numpy_trainer(Diary(listener=listen)))
    for path in files:
        path.with_suffix(".away").rename(path)
    go_on(flags)
    assert remains_of(tmp_path / "run") == whole()


FULL = """
import resource, sys
from textmill.schemas.errors import DataError
from tests.tools.numpy_program import Diary, run_numpy
def fill(name, count):
    if (name, count) == (sys.argv[3], int(sys.argv[4])):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
try:
    run_numpy(*sys.argv[1:3], diary=Diary(listener=fill))
except DataError as error:
    print(error)
"""


FILLED = [
    ("train", 2, "{}: [Errno 27] File too large. Finished checkpoints are kept; repair the cau"),
    ("state", 6, "{}/checkpoints: the checkpoint after step 6 cannot be written: "),
    ("weights", 8, "{}/best: the checkpoint after step 8 cannot be written: "),
]


@pytest.mark.parametrize(("name", "count", "said"), FILLED)
def test_where_nothing_more_can_be_written(shards, whole, tmp_path, name, count, said):
    """A file that may not grow stands for a full disk; the run resumes once there is room."""
    done = run_python("-c", FULL, str(shards), str(tmp_path), name, str(count))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said.format(tmp_path)) and "--resume" in done.stdout
    run_numpy(shards, tmp_path, resume=True)
    assert remains_of(tmp_path) == whole()


def test_to_resume_what_has_not_begun_is_to_begin(shards, whole, tmp_path, capfd):
    run_numpy(shards, tmp_path, resume=True)
    assert "there is no checkpoint yet: starting with step 1" in capfd.readouterr().err
    assert remains_of(tmp_path) == whole()


def test_a_best_without_any_checkpoint_is_of_a_run_that_begins_anew(shards, tmp_path):
    """Perhaps with another --learning_rate: its weights after step 4 are others."""
    flags = numpy_flags(shards, tmp_path, checkpoint_every=100)

    def listen(name, count):
        if (name, count) == ("train", 6):
            raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        train(flags, numpy_trainer(Diary(listener=listen)))
    assert (Checkpoints(tmp_path).best, Checkpoints(tmp_path).latest) == (4, 0)
    again = change_flags(flags, resume=True, learning_rate=2.0, stop_after=4)
    train(again, numpy_trainer())
    train(change_flags(again, output=str(tmp_path / "anew"), resume=False), numpy_trainer())
    found, due = (remains_of(place) for place in (tmp_path, tmp_path / "anew"))
    assert found["best"] == due["best"] and found["weights"] == due["weights"]


def test_settings_that_a_run_began_with_stay(shards, tmp_path):
    run_numpy(shards, tmp_path)
    before = remains_of(tmp_path)
    others = {"batch_size": 8, "seed": 1, "best_metric": "none", "clip_norm": 2.0, "layers": 2}
    for name, value in others.items():
        with pytest.raises(UsageError, match=f"cannot be resumed with these settings: {name} was"):
            run_numpy(shards, tmp_path, resume=True, **{name: value})
    with pytest.raises(UsageError, match="holds a run already: add --resume"):
        run_numpy(shards, tmp_path)
    assert remains_of(tmp_path) == before
