"""Runs on a mixture in stages: what they report and write, and how they resume."""

import re
from typing import Any

import numpy as np
import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.numpy_program import (
    Diary,
    numpy_flags,
    numpy_trainer,
    record_rows,
    remains_of,
    run_numpy,
)
from tests.tools.run_reading import untimed_lines
from tests.tools.shard_factory import write_mlm_set
from textmill.schemas.errors import UsageError
from textmill.trainers.data.shards_value import open_shards
from textmill.trainers.flags.command_line import parse_flags
from textmill.trainers.run import summary
from textmill.trainers.run.run_directory import read_settings
from textmill.trainers.run.start import train

pytestmark = pytest.mark.usefixtures("no_picture")
STAGES = "0:web=0.5,code=0.5;5:code=1;75%:math=0.8,web=0.2"


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> str:
    """--shards of three sets, one with a name of its own."""
    directory = tmp_path_factory.mktemp("three")
    for number, name in enumerate(("web", "code", "numbers")):
        write_clm_set(directory / name, train=10 + 5 * number, validation=3, step=number)
    return f"{directory}/web,{directory}/code,math={directory}/numbers"


def test_what_a_run_reads_and_measures(three, tmp_path, monkeypatch):
    """Twelve steps of 4 rows: 5, 4 and 3 of each stage; an evaluation ends each."""
    read = record_rows(monkeypatch)
    run_numpy(three, tmp_path / "run", stages=STAGES)
    mixture = open_shards(three, stages=STAGES, batch_size=4, steps=12)
    due = mixture.batches("train", batch_size=4, seed=0, stop_step=12)
    for ids, batch in zip(read, due, strict=True):
        np.testing.assert_array_equal(ids, batch["input_ids"])
    lines = untimed_lines(tmp_path / "run", "train")
    assert [line["stage"] for line in lines] == [1] * 5 + [2] * 4 + [3] * 3
    measured = untimed_lines(tmp_path / "run", "evaluation")
    assert [(line["step"], line["stage"]) for line in measured] == [
        *((4, 1), (5, 1), (8, 2), (9, 2), (12, 3))
    ]
    assert all({"loss/web", "loss/code", "loss/math"} < set(line) for line in measured)
    config = read_settings(tmp_path / "run")["config"]
    assert config["stages"] == "0:web=0.5,code=0.5;5:code=1;9:math=0.8,web=0.2"
    assert config["stage_shares"] == "tokens"
    assert f"stages: {STAGES}" in (tmp_path / "run" / "config.yaml").read_text()


def test_what_a_run_prints(three, tmp_path, capfd):
    run_numpy(three, tmp_path / "run", stages=STAGES, stage_shares="rows")
    said = capfd.readouterr()
    table = said.err[said.err.index("stage     steps") :].splitlines()[:6]
    assert [line.split()[-1] for line in table[1:]] == ["1.00", "0.67", "1.73", "1.20", "0.50"]
    assert [line.split()[-3] for line in table[1:]] == ["10", "10", "16", "2", "10"]
    stages = re.findall(r"^  stage (\d)     (steps .*)$", said.out, flags=re.M)
    assert [number for number, _ in stages] == ["1", "2", "3"]
    evaluated = untimed_lines(tmp_path / "run", "evaluation")
    trained = untimed_lines(tmp_path / "run", "train")
    for (_, text), last, first in zip(stages, (5, 9, 12), (1, 6, 10), strict=True):
        [line] = [line for line in evaluated if line["step"] == last]
        of_sets = ", ".join(f"{n} {line[f'loss/{n}']:.4f}" for n in ("web", "code", "math"))
        assert text.startswith(
            f"steps {first} to {last}: training loss {trained[last - 1]['loss']:.4f} at last; "
            f"step {last}: loss {line['loss']:.4f} ({of_sets}), accuracy"
        )


def test_the_curve_shows_stages_and_datasets(three, tmp_path, monkeypatch):
    drawn = []

    def note(lines, path, title, *, unit, starts):
        drawn.append((starts, {name for line in lines for name in line if "/" in name}))

    monkeypatch.setattr(summary, "draw_curve", note)
    run_numpy(three, tmp_path / "run", stages=STAGES)
    assert drawn == [([5, 9], {"loss/web", "loss/code", "loss/math"})]


@pytest.mark.parametrize("stop", [1, 5, 7, 9])
def test_a_resumed_run_is_an_unbroken_one(three, tmp_path, stop):
    run_numpy(three, tmp_path / "whole", stages=STAGES)
    run_numpy(three, tmp_path / "run", stages=STAGES, stop_after=stop)
    run_numpy(three, tmp_path / "run", stages=STAGES, resume=True)
    assert remains_of(tmp_path / "run") == remains_of(tmp_path / "whole")


def test_later_stages_may_change(three, tmp_path, capfd):
    """Those before the checkpoint may not; the note has both, with starts in steps."""
    output, first = tmp_path / "run", "0:web=0.5,code=0.5;5:code=1"
    run_numpy(three, output, stages=first, stop_after=6)
    for stages, said in (
        ("0:web=0.5,code=0.5;4:code=1", "0:web=0.5,code=0.5;4:code=1"),
        ("0:web=0.6,code=0.5;5:code=1", "0:web=0.6,code=0.5;5:code=1"),
        ("0:web=0.5,code=0.5", "0:web=0.5,code=0.5"),
    ):
        due = (
            f"{output} cannot be resumed with these stages: up to its checkpoint of step 6 they "
            f"were {first}, and would be {said} (starts in steps). Stages that begin after step 6"
        )
        with pytest.raises(UsageError, match=re.escape(due)):
            run_numpy(three, output, stages=stages, resume=True)
    with pytest.raises(UsageError, match="stage_shares was 'tokens', is 'rows'"):
        run_numpy(three, output, stages=first, stage_shares="rows", resume=True)
    with pytest.raises(UsageError, match="shards' fingerprint was"):
        weights = ",".join(f"{part}:1" for part in three.split(","))
        run_numpy(weights, output, resume=True)
    capfd.readouterr()
    later = f"{first};6:math=1;90%:web=1"
    run_numpy(three, output, stages=later, resume=True)
    note = f"note: stages was '{first}', is '{first};6:math=1;11:web=1'"
    assert note in capfd.readouterr().err.splitlines()
    run_numpy(three, tmp_path / "whole", stages=later)
    lines = [untimed_lines(tmp_path / name, "train") for name in ("run", "whole")]
    assert lines[0] == lines[1]


def test_parts_of_a_longer_run(three, tmp_path):
    """75% of 12 steps are 9, of 16 are 12: before step 9 is trained, either is the future."""
    run_numpy(three, tmp_path / "run", stages=STAGES, stop_after=9, schedule="wsd", decay_steps=1)
    more: dict[str, Any] = {"stages": STAGES, "steps": 16, "schedule": "wsd", "decay_steps": 1}
    run_numpy(three, tmp_path / "run", resume=True, stop_after=12, **more)
    with pytest.raises(UsageError, match="up to its checkpoint of step 12 .* and would be 0:web"):
        run_numpy(three, tmp_path / "run", resume=True, **{**more, "steps": 12})


def test_a_dry_run_touches_nothing(three, tmp_path, capfd):
    diary = Diary()
    flags = numpy_flags(three, tmp_path / "run", stages=STAGES, dry_run=True)
    assert train(flags, numpy_trainer(diary)) is None
    said = capfd.readouterr().out
    assert "; 45 rows of 16 tokens, 12 steps of 4 rows\n" in said
    assert "\nstage     steps  dataset    share  tokens  rows  passes  passes so far\n" in said
    assert diary.entries == [] and not (tmp_path / "run").exists()
    train(numpy_flags(three.split(",")[0], tmp_path / "run", dry_run=True), numpy_trainer())
    assert (
        capfd.readouterr()
        .out.splitlines()[0]
        .endswith("; 10 rows of 16 tokens, 12 steps of 4 rows")
    )


def test_a_length_in_tokens(three, tmp_path, capfd):
    """Half of the tokens is where the second stage begins, and each stage has its own mean."""
    flags: Any = {"stages": "0:web=1;50%:math=1", "tokens": 800.0, "steps": None}
    train(numpy_flags(three, tmp_path / "run", dry_run=True, **flags), numpy_trainer())
    said = capfd.readouterr().out
    parts = open_shards(three).parts  # type: ignore[union-attr]
    first = -(-400 // (4 * parts[0].mean_tokens_per_row("train")))
    left = 800 - first * 4 * parts[0].mean_tokens_per_row("train")
    steps = int(first + -(-left // (4 * parts[2].mean_tokens_per_row("train"))))
    assert f"{steps} steps of 4 rows" in said and f"  {int(first) + 1} to {steps}  math" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stages": "0:web=1;3:book=1"}, "--stages=0:web=1;3:book=1: there is no dataset 'book'"),
        ({"stages": "0:web=1;12:code=1"}, "the stage at 12 begins after the end of the run, which"),
        ({"stages": "0:web=1;90%:code=1", "steps": None}, "90% of the run needs its length"),
        ({"stages": "0:web=1;100%:code=1"}, "the stage at 100% begins after the end of the run"),
        ({"stages": None}, "has no weight; give one directory, or each with its weight"),
    ],
)
def test_stages_that_a_run_refuses(three, tmp_path, changes, said):
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        run_numpy(three, tmp_path / "run", **changes)
    assert "\n" not in str(refused.value) and refused.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_datasets_without_training_rows_and_with_weights(three, tmp_path):
    write_clm_set(tmp_path / "empty", train=0)
    with pytest.raises(UsageError, match="empty has no rows in split 'train'"):
        shards = f"{three},{tmp_path}/empty"
        run_numpy(shards, tmp_path / "run", stages="0:web=1;5:empty=1")
    weights = ",".join(f"{part}:1" for part in three.split(","))
    with pytest.raises(UsageError, match="leave the weights of --shards"):
        run_numpy(weights, tmp_path / "run", stages="0:web=1")
    write_mlm_set(tmp_path / "other")
    with pytest.raises(UsageError, match="cannot be mixed: task is"):
        shards = f"{three},{tmp_path}/other"
        run_numpy(shards, tmp_path / "run", stages="0:web=1;5:other=1")


def test_stages_in_a_file(three, tmp_path):
    """As a mapping, as a list and as text; an error names the file and its key."""
    path = tmp_path / "job.yaml"
    due = numpy_flags(three, tmp_path, stages="0:web=0.5,code=0.5;90%:math=1").length.stages
    kind = numpy_trainer().flags
    for text in (
        "stages: {0: {web: 0.5, code: 0.5}, 90%: {math: 1}}",
        'stages: ["0:web=0.5,code=0.5", "90%:math=1"]',
        "stages: 0:web=0.5,code=0.5; 90%:math=1",
    ):
        path.write_text(text)
        assert parse_flags([f"--config={path}"], kind).length.stages == due
    path.write_text("stages: {0: {web: -1}}")
    due = f"{path}: stages=0:web=-1: the share -1 of web must be above 0"
    with pytest.raises(UsageError, match=re.escape(due)):
        parse_flags([f"--config={path}"], kind)
    with pytest.raises(UsageError, match="the first stage starts at 5: it must start at 0"):
        parse_flags(["--stages=5:web=1"], kind)
