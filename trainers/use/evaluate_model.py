"""Evaluates checkpoints on a split of a dataset.

RUN/evaluation/DATASET-SPLIT-1a2b3c4d/500/metrics.json  metrics of step 500, beside plots and
    predictions; 1a2b3c4d begins the dataset's fingerprint
RUN/evaluation/DATASET-SPLIT-1a2b3c4d/metrics.jsonl     a line for each checkpoint
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.shards_value import absolute_shards, shards_name
from textmill.trainers.flags.run_flags import DataFlags
from textmill.trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from textmill.trainers.run.evaluation import evaluate
from textmill.trainers.run.journal import ProgressLine, json_text
from textmill.trainers.run.program import Program
from textmill.trainers.run.run_directory import as_data_errors
from textmill.trainers.run.training_task import Metrics, TrainingTask
from textmill.trainers.use.open_model import OpenModel


class Evaluated(NamedTuple):
    """A checkpoint on a split."""

    checkpoint: str  # "500", or "published"
    metrics: Metrics
    tokens_per_second: float


def evaluate_model(
    model: OpenModel, line: ProgressLine, say: Callable[[str], None]
) -> list[Evaluated]:
    """Evaluates the chosen checkpoints, and writes their metrics; `say` gets a line of each.

    Raises:
      UsageError: the dataset does not fit the model.
      DataError: there is nothing to evaluate, or a file cannot be written.
    """
    trained, flags = model.trained, model.flags
    shards_flag, split = flags.data.shards, flags.data.validation_split
    shards = _open_fitting(model, line)
    task = model.trainer.make_task(flags, shards.schema, shards)
    if trained.schema is not None:
        task.check_same_rows(shards_flag, shards.schema, trained.schema)
    program = model.trainer.make_program(model.plan(shards.schema), task)
    # Many datasets are named "test".
    rows_name = f"{shards_name(shards_flag)}-{split}-{shards.fingerprint[:8]}"
    folder, found = trained.directory / "evaluation" / rows_name, []
    with closing(program):
        for number, (name, read) in enumerate(trained.weights):
            program.load(read(), None)
            if not number:
                line.say(program.description)
                program.compile(trains=False, evaluates=True)
            found.append(_measure(task, program, shards, flags.data, line, name))
            _record(model, task, found[-1], shards, folder, say)
    if trained.schema is not None:
        title = f"{trained.directory} on {split} of {shards_flag}"
        _compare(task, folder, found, title, say)
    return found


def _record(
    model: OpenModel,
    task: TrainingTask,
    evaluated: Evaluated,
    shards: BatchReader,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Reports a checkpoint; writes its metrics to --report and, if it is of a run, to a folder."""
    name, metrics, speed = evaluated
    data, trained = model.flags.data, model.trained
    place = f"{trained.directory}, step {name}" if trained.schema else str(trained.directory)
    title = f"{data.validation_split} of {data.shards}"
    say(f"{place} on {title}: {task.describe(metrics)}; {speed:,.0f} tokens/s")
    where = {"checkpoint": place, "shards": shards.name, "split": data.validation_split}
    _append(model.use.report, {**where, **metrics, "tokens_per_second": round(speed, 1)})
    if trained.schema is not None:
        (folder / name).mkdir(parents=True, exist_ok=True)
        task.write_files(folder / name)
        text = json_text(metrics, indent=2)
        (folder / name / "metrics.json").write_text(text, encoding="utf-8")


def _open_fitting(model: OpenModel, line: ProgressLine) -> BatchReader:
    """The dataset, which the model can read; `line` gets notes on how it differs from the run's."""
    trained, data = model.trained, model.flags.data
    if not data.shards:
        raise UsageError(f"{trained.directory} names no dataset: give one with {flag('shards')}")
    shards, directory = data.open(model.flags.compute.seed), str(trained.directory)
    model.flags.task.check_rows(shards.schema, data.shards)
    trained.config.check_fits(shards.schema, where=f"{directory}: the model", shards=data.shards)
    for note in check_same_tokens(set_file(shards, TOKENIZER), directory, field=""):
        line.say(f"note: {note}")
    if trained.fingerprint not in (None, shards.fingerprint):
        is_path = absolute_shards(data.shards) == trained.settings["shards"]
        how = "was built again after the run" if is_path else "is not the dataset of the run"
        line.say(
            f"note: {data.shards} {how}: its fingerprint is {shards.fingerprint[:8]}, the run's "
            f"{trained.fingerprint[:8]}"
        )
    if not shards.rows(data.validation_split):
        raise shards.no_rows(data.validation_split, field="validation_split")
    return shards


def _measure(
    task: TrainingTask,
    program: Program,
    shards: BatchReader,
    data: DataFlags,
    line: ProgressLine,
    name: str,
) -> Evaluated:
    """Metrics of the validation split with the weights of this name."""
    tokens, began = 0, time.monotonic()

    def count_tokens(pairs: Any) -> Any:
        nonlocal tokens
        for batch, outputs in pairs:
            tokens += int(np.count_nonzero(batch["segment_ids"]))
            yield batch, outputs

    def show(text: str) -> None:
        line.update(f"checkpoint {name}: {text}")

    with closing(evaluate(program, shards, data, show)) as pairs:
        metrics = task.measure(count_tokens(pairs))
    if metrics is None:
        raise DataError(
            f"{shards.name}: all loss_weights of split {data.validation_split!r} are 0, so there "
            f"is nothing to evaluate: give another {flag('validation_split')}"
        )
    return Evaluated(name, metrics, tokens / max(time.monotonic() - began, 1e-9))


def _append(report: str | None, values: dict[str, Any]) -> None:
    if report is not None:
        with as_data_errors(flag("report", report), "Give another file"):
            with open(report, "a", encoding="utf-8") as file:
                file.write(json_text(values))


def _compare(
    task: TrainingTask,
    folder: Path,
    found: list[Evaluated],
    title: str,
    say: Callable[[str], None],
) -> None:
    """Writes metrics.jsonl and what else compares the checkpoints of a run."""
    rows: list[Metrics] = [{"step": int(one.checkpoint), **one.metrics} for one in found]
    (folder / "metrics.jsonl").write_text("".join(map(json_text, rows)), encoding="utf-8")
    for text in task.report(folder, rows, title):
        say(text)
    say(f"Metrics and plots: {folder}")
