"""The one training loop, with a trainer without a framework: what it does, measures and writes."""

import math
import re
import time
from pathlib import Path

import numpy as np
import pytest

from tests.tools.clm_factory import clm_rows, clm_schema, write_clm_set
from tests.tools.numpy_program import (
    TABLE,
    Diary,
    NumpyProgram,
    bigram_gradient,
    bigram_sums,
    numpy_flags,
    numpy_trainer,
    remains_of,
    run_numpy,
)
from tests.tools.run_reading import change_flags, read_metrics, untimed_lines
from tests.tools.shard_factory import write_set
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.flags.command_line import command
from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.metrics import plots
from textmill.trainers.models.plan_model import training_flops
from textmill.trainers.models.weights import init_weights
from textmill.trainers.reader import ShardSet
from textmill.trainers.run import compilation, journal, summary
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.schedule import Schedule
from textmill.trainers.run.start import train
from textmill.trainers.run.step_reports import are_finite, losses_in, stop_at
from textmill.trainers.run.tensors import check_state
from textmill.trainers.run.trained import find_trained

pytestmark = pytest.mark.usefixtures("no_picture")
FILES = {
    *("config.json", "config.yaml", "generation_config.json", "loss.png", "metrics.jsonl"),
    *("schema.json", "tokenizer.json"),
    *("checkpoints", "best", ".lock"),
}


@pytest.mark.parametrize(("more", "rows"), [({}, 10), ({"evaluation_rows": 6}, 6)], ids=str)
def test_what_a_run_measures(shards, tmp_path, more, rows):
    """Every value of metrics.jsonl, worked out again from the set and the formulas.

    Six rows of ten are a batch of 4, and 2 with 2 padding rows.
    """
    run_numpy(shards, tmp_path / "run", **more)
    config = find_trained(str(tmp_path / "run")).config
    table, momentum = init_weights(config, 0)[TABLE], np.float32(0)
    schedule, due = Schedule(12, OptimizationFlags(warmup_steps=2)), []
    reader = ShardSet(str(shards))
    validation = reader.read("validation", np.arange(rows))
    counts = reader.stats.split("validation")
    text = counts.text_bytes * np.count_nonzero(validation["segment_ids"]) / counts.tokens_in_rows
    for step, batch in enumerate(reader.batches("train", batch_size=4, seed=0, stop_step=12)):
        loss, counted, gradient = bigram_gradient(table, batch)
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
                "predicted": float(batch["loss_weights"].sum()),
                "tokens": int((batch["segment_ids"] > 0).sum()),
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
            total = metrics["predicted"] * loss
            metrics["bits_per_byte"] = pytest.approx(total / math.log(2) / text, rel=1e-6)
            due.append({"kind": "evaluation", "step": step + 1, **metrics})
    lines = untimed_lines(tmp_path / "run")
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
    flags = numpy_flags(shards, tmp_path, steps=5, evaluate_every=5, checkpoint_every=3)
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
        run_numpy(shards, tmp_path / name, **changes)
        return [line["step"] for line in untimed_lines(tmp_path / name, "evaluation")]

    assert evaluated("ten", steps=10) == [4, 8, 10]
    assert evaluated("stopped", stop_after=6) == [4]
    assert evaluated("seldom", evaluate_every=100, best_metric="none") == [12]
    assert {path.name for path in (tmp_path / "seldom").iterdir()} == FILES - {"best"}
    assert evaluated("another", validation_split="train", evaluate_every=6) == [6, 12]


def test_patience_ends_a_run_and_keeps_the_best(shards, tmp_path, capfd):
    """The loss is lowest after step 8, and grows for the next evaluations."""
    output = tmp_path / "run"
    flags = numpy_flags(shards, output, steps=24, evaluate_every=2, patience=2)
    train(flags, numpy_trainer())
    said = capfd.readouterr()
    losses = {line["step"]: line["loss"] for line in untimed_lines(output, "evaluation")}
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
    run_numpy(shards, tmp_path / "all", steps=24, evaluate_every=2)
    assert Checkpoints(tmp_path / "all").best == 24, "a run without patience would have seen better"


def test_best_weights_do_not_pile_up_before_a_checkpoint(shards, tmp_path):
    """Every evaluation is the best so far: a resumed run needs none of those before the newest."""
    counts = []

    def listen(name, number):
        if name == "train":  # not in the reader's thread, which runs beside the writer
            counts.append(len(list((tmp_path / "best").glob("*"))))

    flags = numpy_flags(shards, tmp_path, evaluate_every=1, checkpoint_every=1000)
    train(flags, numpy_trainer(Diary(listener=listen)))
    losses = [line["loss"] for line in untimed_lines(tmp_path, "evaluation")]
    assert sorted(losses[:9], reverse=True) == losses[:9] and set(counts) == {0, 1}


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


@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_a_loss_that_is_no_number_names_its_rows(shards, tmp_path, steps_per_call):
    """The batch is in a file, as the reader gave it; the run resumes with a lower rate."""
    flags = numpy_flags(shards, tmp_path, learning_rate=1e12, steps_per_call=steps_per_call)
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
    assert [line["step"] for line in untimed_lines(tmp_path)] == list(range(1, step))
    train(change_flags(flags, resume=True, learning_rate=8.0), numpy_trainer())
    assert Checkpoints(tmp_path).latest == 12


@pytest.mark.parametrize("loss, norm", [(math.nan, 1.0), (1.0, math.inf), (-math.inf, math.nan)])
def test_a_loss_or_a_norm_that_is_no_number_stops_the_run(tmp_path, loss, norm):
    losses = losses_in({"loss": loss, "learning_rate": 0.1, "gradient_norm": norm})
    assert losses == {"loss": loss, "gradient norm": norm} and not are_finite(losses)
    for rows, named in (
        ([7, 1 << 40], "7, 1099511627776 of the split"),
        (range(100), "0, 1, .* 62, 63 and 36 more of the split"),
    ):
        said = f"^step 12: the loss is {loss} and the gradient norm is {norm}, on rows {named}"
        with pytest.raises(DataError, match=f"{said}.*checkpoints up to step 10 are kept"):
            batch = {"row_index": np.array(rows)}
            raise stop_at(12, losses, batch, output=str(tmp_path), checkpoint=10)


def test_an_evaluation_that_is_no_number_is_never_the_best(shards, tmp_path):
    """The loss that was trained on is still one: the last step broke it."""
    flags = numpy_flags(shards, tmp_path, steps=1, learning_rate=1e25)
    train(flags, numpy_trainer())
    [line] = untimed_lines(tmp_path, "evaluation")
    assert math.isnan(line["loss"])
    assert (Checkpoints(tmp_path).latest, Checkpoints(tmp_path).best) == (1, None)


def write_splits(directory: Path, **splits: int) -> None:
    """A set with so many rows in each split; loss weights of `unweighted` are 0."""
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
    flags = numpy_flags(tmp_path / "set", tmp_path / "run", patience=1, stop_after=7)
    train(flags, numpy_trainer(diary))
    train(change_flags(flags, resume=True, stop_after=None), numpy_trainer(diary))
    assert capfd.readouterr().err.count("split 'validation' has no rows: no evaluations") == 2
    assert untimed_lines(tmp_path / "run", "evaluation") == []
    assert [entry for entry in diary.entries if entry[0] == "compile"] == [("compile", 1)] * 2
    assert Checkpoints(tmp_path / "run").latest == 12 and Checkpoints(tmp_path / "run").best is None


def test_where_nothing_counts_nothing_is_measured(tmp_path, capfd):
    write_splits(tmp_path / "set", train=20, unweighted=5)
    flags = numpy_flags(
        tmp_path / "set", tmp_path / "run", validation_split="unweighted", patience=1
    )
    train(flags, numpy_trainer())
    said = capfd.readouterr().err
    for step in (4, 8, 12):
        assert f"step {step}: all loss weights of unweighted are 0: no evaluation" in said
    assert untimed_lines(tmp_path / "run", "evaluation") == []
    assert Checkpoints(tmp_path / "run").latest == 12
    diary = Diary()
    train(change_flags(flags, resume=True), numpy_trainer(diary))
    assert diary.entries == []


def test_without_rows_to_train_on_there_is_no_run(tmp_path):
    write_splits(tmp_path / "other", validation=5)
    with pytest.raises(UsageError, match="has no split 'train': it has validation"):
        run_numpy(tmp_path / "other", tmp_path / "run")
    write_splits(tmp_path / "empty", train=0, validation=5)
    with pytest.raises(DataError, match="split 'train' has no rows; build the dataset from"):
        run_numpy(tmp_path / "empty", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_prints_what_it_made(shards, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(summary, "draw_curve", plots.draw_curve)
    flags = numpy_flags(shards, tmp_path / "run", stop_after=9, export=str(tmp_path / "hf"))
    train(flags, numpy_trainer())
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    out, err = capfd.readouterr()
    run_line, *lines = out.splitlines()
    rates = r"on average [\d,]+\.\d\d steps/s, [\d,]+ tokens/s, waiting for data \d+\.\d%"
    assert re.fullmatch(rf"9 steps done; this run took \d+ s: {rates}", run_line)
    first, last = (untimed_lines(tmp_path / "run", "train")[place]["loss"] for place in (0, -1))
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


def test_a_directory_that_came_while_a_run_was_at_work_is_not_exported_to(shards, tmp_path):
    export = tmp_path / "hf"

    def listen(name, count):
        if name == "train":
            export.mkdir()
            (export / "config.json").touch()

    diary = Diary(listener=listen)
    with pytest.raises((UsageError, DataError), match=f"--export={export}"):
        run_numpy(shards, tmp_path / "run", diary=diary, steps=1, export=str(export))
    assert [path.name for path in export.iterdir()] == ["config.json"]


def test_evaluations_show_progress_in_a_log(shards, tmp_path, capfd, monkeypatch):
    """The last one too: the validation split has 10 rows, 4 in a batch."""
    monkeypatch.setattr(journal, "LOG_SECONDS", 0.0)
    run_numpy(shards, tmp_path, steps=5)
    lines = re.findall(r"^step \d: evaluating .*left$", capfd.readouterr().err, re.M)
    assert [re.sub(r"\d+ s left", "0 s left", line) for line in lines] == [
        f"step {step}: evaluating validation: batch {number} of 3, 0 s left"
        for step in (4, 5)
        for number in (1, 2)
    ]


def test_speed_of_each_device_and_its_share_of_the_peak(shards, tmp_path, capfd, monkeypatch):
    """On two devices whose peak is known; on CPUs nothing mentions it."""
    run_numpy(shards, tmp_path / "cpu")
    assert not any("mfu" in line for line in read_metrics(str(tmp_path / "cpu/metrics.jsonl")))
    line = capfd.readouterr().err
    assert "MFU" not in line and "a device" not in line
    monkeypatch.setattr(NumpyProgram, "devices", 2)
    monkeypatch.setattr(NumpyProgram, "peak", 1e9)
    run_numpy(shards, tmp_path / "gpus")
    assert re.search(r"[\d,]+ tokens/s \([\d,]+ a device, MFU \d+\.\d%\)", capfd.readouterr().err)
    for line in read_metrics(str(tmp_path / "gpus/metrics.jsonl")):
        if line["kind"] == "train":
            per_device = line["tokens_per_second_per_device"]
            assert per_device == pytest.approx(line["tokens_per_second"] / 2, abs=0.1)
            assert line["mfu"] == pytest.approx(
                per_device * line["flops_per_token"] / 1e9, abs=1e-4
            )
            tokens_per_step = line["tokens_per_second"] * line["seconds_per_step"]
            assert 0 < tokens_per_step <= 4 * 16 * 1.001


def test_length_by_epochs_and_tokens(shards, tmp_path):
    """Tokens by the mean of a row: the run saw them, but for a step and the rows' scatter."""
    run_numpy(shards, tmp_path / "epochs", steps=None, epochs=0.85)
    lines = untimed_lines(tmp_path / "epochs", "train")
    assert len(lines) == 9 and lines[-1]["epoch"] == 0.9
    mean = np.count_nonzero(ShardSet(str(shards)).read("train", np.arange(40))["segment_ids"]) / 40
    run_numpy(shards, tmp_path / "tokens", steps=None, tokens=1000.0)
    lines = untimed_lines(tmp_path / "tokens", "train")
    assert len(lines) == math.ceil(1000 / (4 * mean))
    assert sum(line["tokens"] for line in lines) == pytest.approx(1000, rel=0.1)
    for length in ({"epochs": 1e30}, {"tokens": 1e30}, {"steps": 1 << 40}):
        message = r"the run has .* steps: must be below 2\*\*31; lower --st"
        with pytest.raises(UsageError, match=message):
            run_numpy(shards, tmp_path, **{"steps": None, **length})
    with pytest.raises(UsageError, match=r"^--steps=\d+: must be at most 1e30"):
        run_numpy(shards, tmp_path, steps=1 << 1025)


def test_each_dataset_of_a_mixture_has_a_loss(shards, tmp_path, capfd):
    """It is that of an evaluation of this dataset alone, and the mixture's is their mean."""
    write_clm_set(tmp_path / "web", validation=7)
    both = f"{shards}:0.7,{tmp_path / 'web'}:0.3"
    run_numpy(both, tmp_path / "run")
    last = untimed_lines(tmp_path / "run", "evaluation")[-1]
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
    said = capfd.readouterr().err
    assert f"(set {last['loss/set']:.4f}, web {last['loss/web']:.4f})" in said
    assert f"70.00% of the rows from {shards}: 0.84 passes over its 40 in 12 steps" in said


def test_a_long_compilation_is_said(tmp_path, capfd, monkeypatch):
    write_clm_set(tmp_path / "set")
    monkeypatch.setattr(compilation, "_QUIET_SECONDS", 0.2)

    def wait(name, number):
        if name == "compile":
            time.sleep(1.1)

    train(numpy_flags(tmp_path / "set", tmp_path / "run"), numpy_trainer(Diary(listener=wait)))
    lines = capfd.readouterr().err.splitlines()
    begin = lines.index("compiling the training step and the evaluation ...")
    due = r"ready in 1\.\d s, 1\.\d s of it to compile the training step and the evaluation"
    assert re.fullmatch(due, lines[begin + 1])


def test_a_split_to_evaluate_on_that_is_missing_is_refused(tmp_path):
    """But for the default one, and one without rows."""
    write_splits(tmp_path / "set", train=20, empty=0)
    run_numpy(tmp_path / "set", tmp_path / "run", steps=2, validation_split="empty")
    with pytest.raises(UsageError, match="set has no split 'vaild': it has empty, train"):
        run_numpy(tmp_path / "set", tmp_path / "none", validation_split="vaild")
    assert not (tmp_path / "none").exists()
