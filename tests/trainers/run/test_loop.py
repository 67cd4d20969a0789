"""The one training loop, with a trainer without a framework: what it asks, writes and goes on from.

Whatever breaks a run, and wherever: gone on with, it ends with the weights, measurements and files
of one that nothing broke.
"""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import DataError, UsageError
from tests.tools.clm_factory import clm_rows, clm_schema, write_clm_set
from tests.tools.numpy_program import (
    TABLE,
    Diary,
    NumpyFlags,
    NumpyProgram,
    bigram_gradient,
    bigram_sums,
    numpy_trainer,
)
from tests.tools.places import ROOT
from tests.tools.run_reading import TIMED, change_flags, read_metrics
from tests.tools.shard_factory import count_rows, write_mlm_set, write_set
from trainers.flags.command_line import command, make_flags
from trainers.flags.run_flags import OptimizationFlags
from trainers.models.flops import training_flops
from trainers.models.weights import fresh
from trainers.reader import ShardSet
from trainers.run import journal, start
from trainers.run.checkpoints import Checkpoints, Progress, read_weights
from trainers.run.program import Schedule, check_state
from trainers.run.start import train
from trainers.run.trained import find_trained
from trainers.tasks.language_models import ClmTask

FILES = {
    *("config.json", "config.yaml", "loss.png", "metrics.jsonl", "schema.json", "tokenizer.json"),
    *("checkpoints", "best", ".lock"),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """40 rows to train on, 10 to evaluate: batches of 4, 4, and 2 with 2 filling rows."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_clm_set(directory, step=0)
    return directory


@pytest.fixture(autouse=True)
def no_picture(request, monkeypatch):
    """Drawing takes longer than training; that of one test is real."""
    if "real_picture" not in request.fixturenames:
        monkeypatch.setattr(start, "draw_curve", lambda lines, path, *_, **__: Path(path).touch())


@pytest.fixture
def real_picture():
    """Asks for the loss curve."""


def flags_of(shards, output, **changes) -> NumpyFlags:
    """Twelve steps, evaluations after 4, 8 and 12, checkpoints after 3, 6, 9 and 12."""
    given = {"steps": 12, "evaluate_every": 4, "checkpoint_every": 3, "best_by": "loss"}
    return make_flags(NumpyFlags, shards=str(shards), output=str(output), **{**given, **changes})


def lines_of(output: Path, kind: str = "") -> list[dict]:
    """metrics.jsonl but for times."""
    lines = read_metrics(str(output / "metrics.jsonl"))
    return [
        {name: value for name, value in line.items() if name not in TIMED}
        for line in lines
        if kind in ("", line["kind"])
    ]


def bits_of(arrays) -> dict[str, tuple[str, tuple, bytes]]:
    return {name: (str(v.dtype), v.shape, v.tobytes()) for name, v in (arrays or {}).items()}


def remains_of(output: Path) -> dict:
    """What a run leaves, but for times and for the checkpoints before its newest."""
    checkpoints = Checkpoints(output)
    stored = checkpoints.read(checkpoints.latest)
    lines = lines_of(output)
    task = ClmTask(make_flags(NumpyFlags, shards="-", best_by="loss"), clm_schema())
    best = {path.name: bits_of(read_weights(path)) for path in (output / "best").glob("*")}
    return {
        "step": checkpoints.latest,
        "weights": bits_of(stored.weights),
        "state": bits_of(stored.state),
        "progress": Progress.resume(stored.progress, lines, task),
        "lines": lines,
        "best": best,
        "files": {path.name for path in output.iterdir()},
    }


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """What an unbroken run leaves, by its further flags."""
    found = {}

    def remains(**changes):
        name = json.dumps(changes)
        if name not in found:
            output = tmp_path_factory.mktemp("whole") / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(start, "draw_curve", lambda lines, path, *_, **__: Path(path).touch())
                train(flags_of(shards, output, **changes), numpy_trainer())
            found[name] = remains_of(output)
        return found[name]

    return remains


def test_the_gradient_is_that_of_the_loss():
    """Else no test here would train anything."""
    random = np.random.default_rng(0)
    rows = clm_rows(clm_schema(vocab_size=20), 3, 0)
    table = random.standard_normal((20, 4))
    loss, counted, gradient = bigram_gradient(table, rows)
    sums = bigram_sums(table, rows)
    assert counted == sums["counted"] == rows["loss_weights"].sum()
    assert loss == pytest.approx(float(sums["loss"]) / counted, rel=1e-6)
    for place in ((7, 0), (12, 3), (2, 1)):
        moved = table.copy()
        moved[place] += 1e-6
        slope = (bigram_gradient(moved, rows)[0] - loss) / 1e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-5)


def test_what_a_run_measures(shards, tmp_path):
    """Every value of metrics.jsonl, worked out anew from the set and the formulas."""
    train(flags_of(shards, tmp_path / "run"), numpy_trainer())
    config = find_trained(str(tmp_path / "run")).config
    table, momentum = fresh(config, 0)[TABLE], np.float32(0)
    schedule, due = Schedule(12, OptimizationFlags(warmup_steps=2)), []
    reader = ShardSet(str(shards))
    validation = reader.read("validation", np.arange(10))
    for step, rows in enumerate(reader.batches("train", batch_size=4, seed=0, stop_step=12)):
        loss, counted, gradient = bigram_gradient(table, rows)
        momentum = np.float32(0.9) * momentum + gradient
        table = table - np.float32(8.0 * schedule(step)) * momentum
        due.append(
            {
                "kind": "train",
                "step": step + 1,
                "epoch": round(4 * (step + 1) / 40, 4),
                "loss": loss,
                "learning_rate": float(np.float32(8.0 * schedule(step))),
                "gradient_norm": float(np.sqrt((gradient * gradient).sum())),
                "predicted": float(rows["loss_weights"].sum()),
                "tokens": int((rows["segment_ids"] > 0).sum()),
                "flops_per_token": training_flops(config, 16),
            }
        )
        if step + 1 in (4, 8, 12):
            sums = bigram_sums(table, validation)
            loss = float(sums["loss"]) / float(sums["counted"])
            metrics = {
                "loss": pytest.approx(loss, rel=1e-6),
                "accuracy": float(sums["correct"]) / float(sums["counted"]),
                "perplexity": pytest.approx(math.exp(loss), rel=1e-6),
                "predicted": float(sums["counted"]),
                "unpredicted": float((validation["segment_ids"] > 0).sum() - sums["counted"]),
            }
            documents = count_rows(validation, clm_schema())
            total = metrics["predicted"] * loss
            metrics["bits_per_byte"] = pytest.approx(
                total / math.log(2) / documents.text_bytes, rel=1e-6
            )
            due.append({"kind": "evaluation", "step": step + 1, **metrics})
    lines = lines_of(tmp_path / "run")
    assert lines == due
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.1, "it learns"
    stored = Checkpoints(tmp_path / "run").read(12)
    np.testing.assert_array_equal(stored.weights[TABLE], table)
    np.testing.assert_array_equal((stored.state or {})["momentum"], momentum)
    for line in read_metrics(str(tmp_path / "run" / "metrics.jsonl")):
        if line["kind"] == "train":
            assert line["tokens_per_second"] > 0 and 0 <= line["waiting"] <= 1


def test_it_never_waits_for_what_it_has_just_started(shards, tmp_path):
    """Step k + 1 is started before step k is read; so are evaluations' batches."""
    diary = Diary()
    flags = flags_of(shards, tmp_path, steps=5, evaluate_every=5, checkpoint_every=3)
    train(flags, numpy_trainer(diary))
    assert diary.in_main_thread == [
        *(("load", 0), ("compile", 3)),
        *(("train", 0), ("train", 1), ("read", 0), ("train", 2), ("read", 1), ("read", 2)),
        *(("weights", 3), ("state", 3)),
        *(("train", 3), ("train", 4), ("read", 3), ("read", 4)),
        *(("evaluate", 0), ("evaluate", 1), ("read_evaluation", 0), ("evaluate", 2)),
        *(("read_evaluation", 1), ("read_evaluation", 2)),
        *(("weights", 5), ("weights", 5), ("state", 5)),
    ]
    assert diary.placed_in == {"read_ahead"}, "rows go to the devices while others are at work"
    assert len(diary.entries) - len(diary.in_main_thread) == 5 + 3, "and none is placed in vain"


def test_what_is_measured_when(shards, tmp_path):
    def evaluated(name, **changes):
        train(flags_of(shards, tmp_path / name, **changes), numpy_trainer())
        return [line["step"] for line in lines_of(tmp_path / name, "evaluation")]

    assert evaluated("ten", steps=10) == [4, 8, 10]
    assert evaluated("stopped", stop_after=6) == [4]
    assert evaluated("seldom", evaluate_every=100) == [12]
    assert evaluated("another", validation_split="train", evaluate_every=6) == [6, 12]


def test_patience_ends_a_run_and_keeps_the_best(shards, tmp_path, capfd):
    """The loss is lowest after step 8, and grows for the next evaluations."""
    output = tmp_path / "run"
    flags = flags_of(shards, output, steps=24, evaluate_every=2, patience=2)
    train(flags, numpy_trainer())
    said = capfd.readouterr()
    losses = {line["step"]: line["loss"] for line in lines_of(output, "evaluation")}
    assert list(losses) == [2, 4, 6, 8, 10, 12]
    assert losses[8] == min(losses.values()) and losses[10] > losses[8] < losses[12]
    assert (
        "no better loss in 2 evaluations: stopping after step 12; the best was after step 8\n"
        in said.err
    )
    begins = r"[a-z0-9]+, \d+ layers of \d+, [\d,]+ parameters; \d+ rows of \d+ tokens, 24 steps of"
    assert re.search(begins, said.err)
    checkpoints = Checkpoints(output)
    assert (checkpoints.latest, checkpoints.best) == (12, 8)
    assert "  resume  " not in said.out
    before = remains_of(output)
    diary = Diary()
    train(change_flags(flags, resume=True), numpy_trainer(diary))
    assert diary.entries == [] and remains_of(output) == before
    assert "nothing to do: step 12 of 24 is done" in capfd.readouterr().err
    train(change_flags(flags, resume=True, patience=5), numpy_trainer())
    whole = tmp_path / "whole"
    train(change_flags(flags, output=str(whole), patience=5), numpy_trainer())
    assert remains_of(output) == remains_of(whole)
    train(flags_of(shards, tmp_path / "all", steps=24, evaluate_every=2), numpy_trainer())
    assert Checkpoints(tmp_path / "all").best == 24, "a run without patience would have seen better"


def test_best_weights_do_not_pile_up_before_a_checkpoint(shards, tmp_path):
    """Every evaluation is the best so far: a resumed run needs none of those before the newest."""
    counts = []

    def listen(name, number):
        if name == "train":  # not in the reader's thread, which runs beside the writer
            counts.append(len(list((tmp_path / "best").glob("*"))))

    flags = flags_of(shards, tmp_path, evaluate_every=1, checkpoint_every=1000)
    train(flags, numpy_trainer(Diary(listener=listen)))
    losses = [line["loss"] for line in lines_of(tmp_path, "evaluation")]
    assert sorted(losses[:9], reverse=True) == losses[:9] and set(counts) == {0, 1}


def test_without_a_measure_to_choose_by_none_is_best(shards, tmp_path):
    train(flags_of(shards, tmp_path, best_by="none"), numpy_trainer())
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"best"}


@pytest.mark.parametrize(
    "changes", [{}, {"evaluate_every": 2, "patience": 1, "steps": 16}], ids=str
)
@pytest.mark.parametrize("stop", range(1, 12))
def test_stopped_after_any_step(shards, whole, tmp_path, stop, changes):
    """And again after the next."""
    flags = flags_of(shards, tmp_path, **changes)
    train(change_flags(flags, stop_after=stop), numpy_trainer())
    train(change_flags(flags, stop_after=stop + 1, resume=True), numpy_trainer())
    train(change_flags(flags, resume=True), numpy_trainer())
    assert remains_of(tmp_path) == whole(**changes)


def go_on(flags: NumpyFlags) -> None:
    """What a user does who was told how to go on."""
    train(change_flags(flags, resume=True), numpy_trainer())


def interrupted(flags: NumpyFlags, at: tuple[str, int], number: int) -> bool:
    """Starts a run that gets a signal as something is asked of it; whether that came to be."""
    sent = []

    def listen(name, count):
        if (name, count) == at and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    try:
        train(flags, numpy_trainer(Diary(listener=listen)))
    except SystemExit as left:
        assert left.code == 128 + number
    return bool(sent)


# What is asked of the program of a run of twelve steps, and how often.
ASKED = {
    "train": range(12),
    "read": range(12),
    "evaluate": range(9),  # the first, the middle and the last batch of three evaluations
    "read_evaluation": range(9),
    "place": range(0, 21, 4),
    "weights": (3, 4, 6, 8, 9, 12),  # of checkpoints, and of the best after 4, 8 and 12
    "state": (3, 6, 9, 12),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_signal_at_any_point(shards, whole, tmp_path, name):
    for index, count in enumerate(ASKED[name]):
        output = tmp_path / str(count)
        flags = flags_of(shards, output)
        number = signal.SIGTERM if index % 2 else signal.SIGINT
        assert interrupted(flags, (name, count), number)
        checkpoints = Checkpoints(output)
        assert checkpoints.latest == len(lines_of(output, "train")), "no step is lost"
        evaluated = [line["step"] for line in lines_of(output, "evaluation")]
        assert evaluated == [4, 8, 12][: len(evaluated)]
        go_on(flags)
        assert remains_of(output) == whole(), count


def test_a_run_that_is_interrupted_again_and_again(shards, whole, tmp_path):
    flags = flags_of(shards, tmp_path)
    for _ in range(30):
        count = Checkpoints(tmp_path).latest
        asked = ("train", count) if count < 12 else ("evaluate", 0)
        if not interrupted(change_flags(flags, resume=count > 0), asked, signal.SIGTERM):
            break
        if count in (4, 8):  # in the evaluation that is due next
            assert (
                interrupted(change_flags(flags, resume=True), ("evaluate", 1), signal.SIGINT)
                is True
            )
    go_on(flags)
    assert remains_of(tmp_path) == whole()


def run_traced(flags: NumpyFlags, at: tuple[str, int] | None, act) -> list[tuple[str, int]]:
    """Lines of trainers/run that a run goes through, once each; acts before one of them."""
    met: dict[tuple[str, int], int] = {}

    def trace(frame, event, _):
        name = frame.f_code.co_filename
        if "/trainers/run/" not in name or frame.f_code.co_name == "<module>":
            return None
        if event == "line":
            place = (Path(name).name, frame.f_lineno)
            if place not in met:
                met[place] = 1
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
    return list(met)


SHORT = {"steps": 3, "evaluate_every": 2, "checkpoint_every": 2, "batch_size": 5}


@pytest.fixture
def lines(shards, tmp_path) -> list[tuple[str, int]]:
    """Every line of trainers/run that a short run goes through."""
    found = run_traced(flags_of(shards, tmp_path / "lines", **SHORT), None, None)
    assert {name for name, _ in found} > {"loop.py", "start.py", *WRITE} and len(found) > 200
    return found


WRITE = ("checkpoints.py", "journal.py", "run_directory.py")


# Every fourth line each.
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of an open file
@pytest.mark.parametrize("part", PARTS)
def test_ctrl_c_at_any_line(shards, whole, tmp_path, lines, part):
    """Also before the first step, and as the run ends."""
    for number, line in enumerate([line for line in lines if line[0] not in WRITE][part::4]):
        flags = flags_of(shards, tmp_path / str(number), **SHORT)
        run_traced(flags, line, lambda: os.kill(os.getpid(), signal.SIGINT))
        go_on(flags)
        assert remains_of(tmp_path / str(number)) == whole(**SHORT), line


@pytest.mark.parametrize("part", PARTS)
def test_killed_at_any_line_that_writes(shards, whole, tmp_path, lines, part):
    for number, line in enumerate([line for line in lines if line[0] in WRITE][part::4]):
        flags = flags_of(shards, tmp_path / str(number), **SHORT)
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

    flags = flags_of(shards, tmp_path)
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


def test_what_is_said_of_an_interruption(shards, tmp_path, capfd):
    flags = flags_of(shards, tmp_path)
    assert interrupted(flags, ("read", 4), signal.SIGTERM)
    said = capfd.readouterr().err.splitlines()
    step = Checkpoints(tmp_path).latest
    assert said[-2] == (
        f"interrupted: the checkpoint after step {step} is in {tmp_path}/checkpoints. Resume with:"
    )
    assert said[-1] == f"  {command(flags, resume=True)}"
    assert "--resume" in said[-1] and said[-1].startswith(
        "  python -m trainers.numpy_clm --shards="
    )


def test_in_another_thread_signals_are_others(shards, whole, tmp_path):
    """Where Python lets nobody catch them; the run is the same."""
    failed = []

    def work():
        try:
            train(flags_of(shards, tmp_path), numpy_trainer())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed and remains_of(tmp_path) == whole()


@pytest.mark.parametrize("steps_a_call", [2, 4])
def test_several_steps_a_call(shards, whole, tmp_path, steps_a_call):
    """Rows, rates and measurements are those of as many calls of one step."""
    diary = Diary()
    flags = flags_of(shards, tmp_path / "run", steps_a_call=steps_a_call, checkpoint_every=4)
    train(flags, numpy_trainer(diary))
    assert [count for name, count in diary.entries if name == "train"] == [
        *range(0, 12, steps_a_call)
    ]
    assert remains_of(tmp_path / "run") == whole(checkpoint_every=4)
    for count in range(0, 12, steps_a_call):
        flags = change_flags(flags, output=str(tmp_path / str(count)))
        assert interrupted(flags, ("train", count), signal.SIGTERM)
        assert Checkpoints(tmp_path / str(count)).latest == count + steps_a_call
        go_on(flags)
        assert remains_of(tmp_path / str(count)) == whole(checkpoint_every=4)


def test_calls_are_whole(shards, tmp_path, capfd):
    """A schedule of ten steps in calls of four is one of twelve."""
    train(flags_of(shards, tmp_path / "ten", steps=10, steps_a_call=4), numpy_trainer())
    train(flags_of(shards, tmp_path / "twelve", steps_a_call=4), numpy_trainer())
    assert remains_of(tmp_path / "ten") == remains_of(tmp_path / "twelve")
    flags = flags_of(shards, tmp_path / "stopped", steps_a_call=4, stop_after=6)
    train(flags, numpy_trainer())
    assert Checkpoints(tmp_path / "stopped").latest == 8
    assert "step 1/8  epoch 0.10" in capfd.readouterr().err
    train(change_flags(flags, resume=True, stop_after=None), numpy_trainer())
    assert remains_of(tmp_path / "stopped") == remains_of(tmp_path / "twelve")


def test_a_checkpoint_between_calls_is_refused(shards, tmp_path):
    train(flags_of(shards, tmp_path, stop_after=3), numpy_trainer())
    message = (
        "the newest checkpoint is after step 3, not a multiple of --device_iterations=2: give a "
        "divisor of 3"
    )
    with pytest.raises(DataError, match=message):
        train(flags_of(shards, tmp_path, resume=True, steps_a_call=2), numpy_trainer())


def test_a_mixture(shards, tmp_path, capfd):
    """Seven of ten rows come from one set, in a resumed run too; a split is that of both."""
    write_clm_set(tmp_path / "web", train=20, validation=6, seed=5, step=0)
    both = f"{shards}:0.7,{tmp_path}/web:0.3"
    train(flags_of(both, tmp_path / "whole", batch_size=10), numpy_trainer())
    said = capfd.readouterr().err
    assert f"70.00% of the rows from {shards}: 2.10 passes over its 40 in 12 steps" in said
    assert f"30.00% of the rows from {tmp_path}/web: 1.80 passes over its 20 in 12 steps" in said
    predicted = sum(
        ShardSet(str(place)).read("validation", np.arange(rows))["loss_weights"].sum()
        for place, rows in ((shards, 10), (tmp_path / "web", 6))
    )
    assert {line["predicted"] for line in lines_of(tmp_path / "whole", "evaluation")} == {predicted}
    flags = flags_of(both, tmp_path / "stopped", batch_size=10)
    for stop in (5, 9, None):
        train(change_flags(flags, stop_after=stop, resume=stop != 5), numpy_trainer())
    assert remains_of(tmp_path / "stopped") == remains_of(tmp_path / "whole")
    with pytest.raises(UsageError, match="shards' fingerprint was"):
        train(flags_of(shards, tmp_path / "whole", batch_size=10, resume=True), numpy_trainer())


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
    train(flags_of(first, tmp_path / "run", stop_after=4), numpy_trainer())
    before = remains_of(tmp_path / "run")
    with pytest.raises(
        UsageError, match="shards' fingerprint was .* Give the dataset and settings"
    ):
        train(flags_of(other, tmp_path / "run", resume=True), numpy_trainer())
    assert remains_of(tmp_path / "run") == before
    train(flags_of(copy, tmp_path / "run", resume=True), numpy_trainer())
    assert len(lines_of(tmp_path / "run", "train")) == 12


def test_gone_on_with_to_another_end(shards, whole, tmp_path, capfd):
    """The schedule is then that of the other number, from the next step on."""
    train(flags_of(shards, tmp_path, stop_after=6), numpy_trainer())
    capfd.readouterr()
    train(flags_of(shards, tmp_path, steps=8, resume=True), numpy_trainer())
    assert "note: steps was 12, is 8" in capfd.readouterr().err
    lines = lines_of(tmp_path, "train")
    assert lines[:6] == [line for line in whole()["lines"] if line["kind"] == "train"][:6]
    schedule = Schedule(8, OptimizationFlags(warmup_steps=2))
    rates = [float(np.float32(8.0 * schedule(step))) for step in (6, 7)]
    assert [line["learning_rate"] for line in lines[6:]] == rates
    assert [line["step"] for line in lines_of(tmp_path, "evaluation")] == [4, 8]
    train(flags_of(shards, tmp_path, steps=10, resume=True), numpy_trainer())
    assert [line["step"] for line in lines_of(tmp_path, "evaluation")] == [4, 8, 10]
    train(flags_of(shards, tmp_path, steps=9, resume=True), numpy_trainer())
    assert "nothing to do: step 10 of 9 is done" in capfd.readouterr().err


def test_a_run_of_wsd_that_grows_before_its_decay_equals_a_longer_one(shards, whole, tmp_path):
    flags = {"schedule": "wsd", "decay_steps": 2, "evaluate_every": 3}
    train(flags_of(shards, tmp_path, stop_after=6, steps=9, **flags), numpy_trainer())
    train(flags_of(shards, tmp_path, resume=True, **flags), numpy_trainer())
    rates = [line["learning_rate"] for line in lines_of(tmp_path, "train")]
    assert rates[1:10] == [8.0] * 9 and rates[10:] == [np.float32(16 / 3), np.float32(8 / 3)]
    assert remains_of(tmp_path) == whole(**flags)


def test_shortened_to_where_it_is_a_run_owes_its_last_evaluation(shards, tmp_path):
    train(flags_of(shards, tmp_path, stop_after=6), numpy_trainer())
    diary = Diary()
    train(flags_of(shards, tmp_path, steps=6, resume=True), numpy_trainer(diary))
    assert [line["step"] for line in lines_of(tmp_path, "evaluation")] == [4, 6]
    assert not [name for name, _ in diary.entries if name == "train"]


def test_with_nothing_to_do_nothing_is_touched(shards, tmp_path, capfd):
    flags = flags_of(shards, tmp_path)
    train(flags, numpy_trainer())
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[cb]*s*/*/*")}
    before = remains_of(tmp_path)
    diary = Diary()
    train(change_flags(flags, resume=True), numpy_trainer(diary))
    assert diary.entries == [] and remains_of(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times and times
    said = capfd.readouterr()
    assert "nothing to do: step 12 of 12 is done" in said.err
    assert re.search(r"^12 steps done; this run took \d+ s$", said.out, re.M)


def test_a_run_that_is_done_is_exported_without_its_framework(shards, tmp_path):
    flags = flags_of(shards, tmp_path / "run")
    train(flags, numpy_trainer())
    diary = Diary()
    train(change_flags(flags, resume=True, export=f"{tmp_path}/hf"), numpy_trainer(diary))
    assert diary.entries == [] and (tmp_path / "hf" / "model.safetensors").exists()


def test_a_set_that_is_lost_on_the_way_is_named(shards, whole, tmp_path):
    """The reader's thread cannot go on; the run can, once the set is there again."""
    shutil.copytree(shards, tmp_path / "set")
    [*files] = (tmp_path / "set").glob("train-*.tfrecord")

    def listen(name, count):
        if name == "compile":
            for path in files:
                path.rename(path.with_suffix(".away"))

    flags = flags_of(tmp_path / "set", tmp_path / "run")
    with pytest.raises(DataError, match=rf"{tmp_path}/set/train-0000\d-of-00002.tfrecord"):
        train(flags, numpy_trainer(Diary(listener=listen)))
    for path in files:
        path.with_suffix(".away").rename(path)
    go_on(flags)
    assert remains_of(tmp_path / "run") == whole()


FULL = """
import resource, sys
from tests.tools.numpy_program import Diary, NumpyFlags, numpy_trainer
from schemas.errors import DataError
from tests.tools.run_reading import change_flags
from trainers.flags.command_line import make_flags
from trainers.run import start
start.draw_curve = lambda lines, path, *_, **__: open(path, "w").close()
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
def fill(name, count):
    if (name, count) == (sys.argv[3], int(sys.argv[4])):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
flags = make_flags(NumpyFlags, shards=sys.argv[1], output=sys.argv[2], steps=12, evaluate_every=4,
                   checkpoint_every=3, best_by="loss")
try:
    start.train(flags, numpy_trainer(Diary(listener=fill)))
except DataError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
start.train(change_flags(flags, resume=True), numpy_trainer())
"""


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        (
            "train",
            2,
            "{}: [Errno 27] File too large. Finished checkpoints are kept; repair the cau",
        ),
        ("state", 6, "{}/checkpoints: the checkpoint after step 6 cannot be written: "),
        ("weights", 8, "{}/best: the checkpoint after step 8 cannot be written: "),
    ],
)
def test_where_nothing_more_can_be_written(shards, whole, tmp_path, name, count, said):
    """A file that may not grow stands for a full disk, of which test_checkpoints has a real one."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(shards), str(tmp_path), name, str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said.format(tmp_path))
    assert remains_of(tmp_path) == whole()


def test_to_resume_what_has_not_begun_is_to_begin(shards, whole, tmp_path, capfd):
    train(flags_of(shards, tmp_path, resume=True), numpy_trainer())
    assert "there is no checkpoint yet: starting with step 1" in capfd.readouterr().err
    assert remains_of(tmp_path) == whole()


def test_a_best_without_any_checkpoint_is_of_a_run_that_begins_anew(shards, tmp_path):
    """Perhaps with another --learning_rate: its weights after step 4 are others."""
    flags = flags_of(shards, tmp_path, checkpoint_every=100)

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


def test_a_run_is_not_overwritten(shards, tmp_path):
    flags = flags_of(shards, tmp_path)
    train(flags, numpy_trainer())
    before = remains_of(tmp_path)
    with pytest.raises(UsageError, match="holds a run already: add --resume"):
        train(flags, numpy_trainer())
    others = {"batch_size": 8, "seed": 1, "best_by": "none", "clip_norm": 2.0, "layers": 2}
    for name, value in others.items():
        with pytest.raises(UsageError, match=f"cannot be resumed with these settings: {name} was"):
            train(change_flags(flags, resume=True, **{name: value}), numpy_trainer())
    assert remains_of(tmp_path) == before


def test_the_optimizers_state_is_its_own(shards, tmp_path):
    flags = flags_of(shards, tmp_path, stop_after=6)
    train(flags, numpy_trainer())
    checkpoints = Checkpoints(tmp_path)
    stored = checkpoints.read(6)
    progress = Progress(**{**stored.progress, "step": 7})
    checkpoints.save(progress, stored.weights, {"momentum": np.zeros((3, 3))})
    with pytest.raises(
        DataError, match="does not fit --optimizer=adamw and this model: count is mis"
    ):
        train(change_flags(flags, resume=True, stop_after=None), numpy_trainer())


def test_states_that_do_not_fit_are_named():
    due = {"count": np.zeros(()), "momentum": np.zeros((2, 3))}
    check_state(dict(due), due, "lion")
    for state, said in (
        ({"count": due["count"]}, r"momentum is missing instead of float64 \(2, 3\)"),
        ({**due, "a": due["count"]}, r"a is float64 \(\) instead of missing"),
        (
            {**due, "momentum": due["momentum"].astype(np.int32)},
            r"int32 \(2, 3\) instead of float",
        ),
        ({**due, "momentum": np.zeros((3, 2))}, r"float64 \(3, 2\) instead of float64 \(2, 3\)"),
    ):
        with pytest.raises(DataError, match=f"--optimizer=lion and this model: .*{said}"):
            check_state(state, due, "lion")


@pytest.mark.parametrize("steps_a_call", [1, 4])
def test_a_loss_that_is_no_number_names_its_rows(shards, tmp_path, steps_a_call):
    """The batch lies beside, as the reader gave it; the run goes on from before, more carefully."""
    flags = flags_of(shards, tmp_path, learning_rate=1e12, steps_a_call=steps_a_call)
    with pytest.raises(DataError) as stopped:
        train(flags, numpy_trainer())
    said = str(stopped.value)
    step = int(said.split(":")[0].removeprefix("step "))
    assert 2 <= step <= 4
    reader = ShardSet(str(shards))
    rows = next(reader.batches("train", batch_size=4, seed=0, start_step=step - 1))
    named = ", ".join(str(row) for row in rows["row_index"])
    assert f"step {step}: the loss is " in said and f"on rows {named} of the split" in said
    path = tmp_path / f"stopped-at-step-{step}.npz"
    assert f"The batch is in {path} (for numpy.load)" in said
    with np.load(path) as saved:
        assert set(saved) == set(rows)
        for name, values in rows.items():
            np.testing.assert_array_equal(saved[name], values)
            assert saved[name].dtype == values.dtype
    assert [line["step"] for line in lines_of(tmp_path)] == list(range(1, step))
    train(change_flags(flags, resume=True, learning_rate=8.0), numpy_trainer())
    assert Checkpoints(tmp_path).latest == 12


def test_an_evaluation_that_is_no_number_is_never_the_best(shards, tmp_path):
    """The loss that was trained on is still one: the last step broke it."""
    flags = flags_of(shards, tmp_path, steps=1, learning_rate=1e25)
    train(flags, numpy_trainer())
    [line] = lines_of(tmp_path, "evaluation")
    assert math.isnan(line["loss"])
    assert (Checkpoints(tmp_path).latest, Checkpoints(tmp_path).best) == (1, None)


def write_splits(directory: Path, **splits: int) -> None:
    """A set with so many rows in each split; those of `unweighted` count for nothing."""
    shares = {name: 1 / len(splits) for name in splits}
    schema = clm_schema(splits=shares, shards=dict.fromkeys(splits, 1))
    columns = {name: clm_rows(schema, rows, 1, step=0) for name, rows in splits.items()}
    if "unweighted" in columns:
        columns["unweighted"]["loss_weights"][:] = 0
    write_set(directory, schema, columns)


@pytest.mark.parametrize("splits", [{"train": 20}, {"train": 20, "validation": 0}], ids=str)
def test_without_rows_to_evaluate_there_is_no_evaluation(tmp_path, capfd, splits):
    write_splits(tmp_path / "set", **splits)
    diary = Diary()
    flags = flags_of(tmp_path / "set", tmp_path / "run", patience=1, stop_after=7)
    train(flags, numpy_trainer(diary))
    train(change_flags(flags, resume=True, stop_after=None), numpy_trainer(diary))
    assert capfd.readouterr().err.count("split 'validation' has no rows: no evaluations") == 2
    assert lines_of(tmp_path / "run", "evaluation") == []
    assert [entry for entry in diary.entries if entry[0] == "compile"] == [("compile", 1)] * 2
    assert Checkpoints(tmp_path / "run").latest == 12 and Checkpoints(tmp_path / "run").best is None


def test_where_nothing_counts_nothing_is_measured(tmp_path, capfd):
    write_splits(tmp_path / "set", train=20, unweighted=5)
    flags = flags_of(tmp_path / "set", tmp_path / "run", validation_split="unweighted", patience=1)
    train(flags, numpy_trainer())
    said = capfd.readouterr().err
    for step in (4, 8, 12):
        assert f"step {step}: all loss weights of unweighted are 0: no evaluation" in said
    assert lines_of(tmp_path / "run", "evaluation") == []
    assert Checkpoints(tmp_path / "run").latest == 12
    diary = Diary()
    train(change_flags(flags, resume=True), numpy_trainer(diary))
    assert diary.entries == []


@pytest.mark.parametrize(
    ("splits", "error", "said"),
    [
        ({"validation": 5}, UsageError, "has no split 'train': it has validation"),
        (
            {"train": 0, "validation": 5},
            DataError,
            "split 'train' has no rows; build the dataset from",
        ),
    ],
)
def test_without_rows_to_train_on_there_is_no_run(tmp_path, splits, error, said):
    write_splits(tmp_path / "set", **splits)
    with pytest.raises(error, match=said):
        train(flags_of(tmp_path / "set", tmp_path / "run"), numpy_trainer())
    assert not (tmp_path / "run").exists()


def test_a_run_makes_what_its_last_word_names(shards, tmp_path, capfd, real_picture):
    flags = flags_of(shards, tmp_path / "run", stop_after=9, export=str(tmp_path / "hf"))
    train(flags, numpy_trainer())
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    out, err = capfd.readouterr()
    run_line, *lines = out.splitlines()
    rates = r"on average [\d,]+\.\d\d steps/s, [\d,]+ tokens/s, waiting for data \d+\.\d%"
    assert re.fullmatch(rf"9 steps done; this run took \d+ s: {rates}", run_line)
    first, last = (lines_of(tmp_path / "run", "train")[place]["loss"] for place in (0, -1))
    assert lines[0] == f"  training    loss {first:.4f} at first, {last:.4f} at last"
    assert lines[1].startswith("  last        step 8: loss 3.")
    assert lines[2].startswith("  best        step 8: loss 3.")
    assert lines[3:7] == [
        f"  checkpoint  {tmp_path}/run/checkpoints/9",
        f"  best        {tmp_path}/run/best/8",
        f"  metrics     {tmp_path}/run/metrics.jsonl",
        f"  loss curve  {tmp_path}/run/loss.png",
    ]
    words = command(flags, export=None, resume=True, stop_after=None)
    assert lines[7:] == [f"  resume      {words}"]
    assert f"exporting the weights after step 8\nweights for transformers: {tmp_path}/hf" in err
    first, *begins = err.splitlines()
    assert first == (
        "gpt2, 1 layers of 8, 1,008 parameters; 40 rows of 16 tokens, 12 steps of 4 rows"
    )
    assert begins[0] == "numpy on the CPU, float32" and begins[1].startswith("ready in ")
    assert re.match(r"step 1/9  epoch 0.10  loss 3.9092  [\d.e-]+ s/step  [\d,]+ tok", begins[2])


def test_evaluations_show_progress_in_a_log(shards, tmp_path, capfd, monkeypatch):
    """The last one too: the validation split has 10 rows, 4 in a batch."""
    monkeypatch.setattr(journal, "LOG_SECONDS", 0.0)
    train(flags_of(shards, tmp_path, steps=5), numpy_trainer())
    lines = re.findall(r"^step \d: evaluating .*left$", capfd.readouterr().err, re.M)
    assert [re.sub(r"\d+ s left", "0 s left", line) for line in lines] == [
        f"step {step}: evaluating validation: batch {number} of 3, 0 s left"
        for step in (4, 5)
        for number in (1, 2)
    ]


def test_speed_of_each_device_and_its_share_of_the_peak(shards, tmp_path, capfd, monkeypatch):
    """On two devices whose peak is known; on CPUs nothing mentions it."""
    train(flags_of(shards, tmp_path / "cpu"), numpy_trainer())
    assert not any("mfu" in line for line in read_metrics(str(tmp_path / "cpu/metrics.jsonl")))
    line = capfd.readouterr().err
    assert "MFU" not in line and "a device" not in line
    monkeypatch.setattr(NumpyProgram, "devices", 2)
    monkeypatch.setattr(NumpyProgram, "peak", 1e9)
    train(flags_of(shards, tmp_path / "gpus"), numpy_trainer())
    assert re.search(r"[\d,]+ tokens/s \([\d,]+ a device, MFU \d+\.\d%\)", capfd.readouterr().err)
    for line in read_metrics(str(tmp_path / "gpus/metrics.jsonl")):
        if line["kind"] == "train":
            a_device = line["tokens_per_second_per_device"]
            assert a_device == pytest.approx(line["tokens_per_second"] / 2, abs=0.1)
            assert line["mfu"] == pytest.approx(a_device * line["flops_per_token"] / 1e9, abs=1e-4)
            tokens_a_step = line["tokens_per_second"] * line["seconds_per_step"]
            assert 0 < tokens_a_step <= 4 * 16 * 1.001


def test_as_many_tokens_as_requested(shards, tmp_path):
    """By the mean of a row: the run saw them, but for a step and the rows' scatter."""
    reader = ShardSet(str(shards))
    mean = np.count_nonzero(reader.read("train", np.arange(40))["segment_ids"]) / 40
    train(flags_of(shards, tmp_path, steps=None, tokens=1000.0), numpy_trainer())
    lines = lines_of(tmp_path, "train")
    assert len(lines) == math.ceil(1000 / (4 * mean))
    assert sum(line["tokens"] for line in lines) == pytest.approx(1000, rel=0.1)


def test_an_evaluation_of_the_first_rows(shards, tmp_path):
    """Six of ten: a batch of 4, and 2 with 2 padding rows; in every evaluation and in use_model."""
    train(flags_of(shards, tmp_path, evaluation_rows=6), numpy_trainer())
    stored, reader = Checkpoints(tmp_path).read(12), ShardSet(str(shards))
    rows = reader.read("validation", np.arange(6))
    sums = bigram_sums(stored.weights[TABLE], rows)
    last = lines_of(tmp_path, "evaluation")[-1]
    assert last["predicted"] == sums["counted"]
    loss = float(sums["loss"])
    assert last["loss"] == pytest.approx(loss / last["predicted"], rel=1e-6)
    counts, tokens = reader.stats.split("validation"), np.count_nonzero(rows["segment_ids"])
    text = counts.text_bytes * tokens / counts.tokens_in_rows
    assert last["bits_per_byte"] == pytest.approx(loss / math.log(2) / text, rel=1e-6)


def test_each_dataset_of_a_mixture_has_a_loss(shards, tmp_path, capfd):
    """It is that of an evaluation of this dataset alone, and the mixture's is their mean."""
    write_clm_set(tmp_path / "web", validation=7)
    both = f"{shards}:0.7,{tmp_path / 'web'}:0.3"
    train(flags_of(both, tmp_path / "run"), numpy_trainer())
    last = lines_of(tmp_path / "run", "evaluation")[-1]
    table = Checkpoints(tmp_path / "run").read(12).weights[TABLE]
    counted = total = 0.0
    for name, directory in (("set", shards), ("web", tmp_path / "web")):
        reader = ShardSet(str(directory))
        rows = reader.read("validation", np.arange(reader.rows("validation")))
        sums = bigram_sums(table, rows)
        due = float(sums["loss"]) / float(sums["counted"])
        assert last[f"loss/{name}"] == pytest.approx(due, rel=1e-6)
        total, counted = total + float(sums["loss"]), counted + float(sums["counted"])
    assert last["loss"] == pytest.approx(total / counted, rel=1e-6)
    said = f"(set {last['loss/set']:.4f}, web {last['loss/web']:.4f})"
    assert said in capfd.readouterr().err


def test_a_full_epoch_is_the_default(shards, tmp_path):
    train(flags_of(shards, tmp_path, steps=None, epochs=0.85), numpy_trainer())
    lines = lines_of(tmp_path, "train")
    assert len(lines) == 9 and lines[-1]["epoch"] == 0.9
    rows = [
        batch["row_index"]
        for batch in itertools.islice(
            ShardSet(str(shards)).batches("train", batch_size=4, seed=0), 9
        )
    ]
    assert len(np.unique(np.concatenate(rows))) == 36


def test_a_set_of_another_task_is_refused(tmp_path):
    write_mlm_set(tmp_path / "set")
    message = (
        f"{tmp_path}/set holds rows of --task=mlm, and this trainer needs clm: build a dataset"
    )
    with pytest.raises(UsageError, match=message):
        train(flags_of(tmp_path / "set", tmp_path / "run"), numpy_trainer())
    assert not (tmp_path / "run").exists()
