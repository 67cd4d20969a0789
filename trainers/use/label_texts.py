"""Labels texts with a trained classifier."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import Iterable, Iterator

from textmill.schemas.commands.terminal import say, visible
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.training_task import Prediction, TextsToLabel
from textmill.trainers.tasks.classification import ClassificationTask
from textmill.trainers.use.open_model import OpenModel


def label_file(model: OpenModel) -> None:
    """Labels the texts of a file; raises like `label_texts` and `write_predictions`."""
    if model.use.input is None:
        raise UsageError(f"give a file of texts with {flag('input', 'FILE')}")
    _of_classifier(model)
    ProgressLine().say(f"the weights after step {model.weights()[0]}")
    write_predictions(label_texts(model, model.use.input), model.use.output)


def label_texts(model: OpenModel, texts: TextsToLabel) -> Iterator[Prediction]:
    """The label of each text, one batch after another.

    Raises:
      UsageError: the model is not a classifier, or the texts do not fit it.
      DataError: the file of texts cannot be read.
    """
    plan, tokenizer_json = _of_classifier(model)
    task = model.task(plan)
    assert isinstance(task, ClassificationTask)
    with closing(model.load(plan, task)) as program:
        program.compile(trains=False, evaluates=True)
        yield from task.predict(program, plan.schema, tokenizer_json, texts)


def _of_classifier(model: OpenModel) -> tuple[TrainingPlan, bytes]:
    """Returns the plan and tokenizer of the run; raises a UsageError unless it is a classifier."""
    plan, tokenizer_json = model.of_run()
    if plan.schema.task != "classification":
        raise UsageError(
            f"{model.trained.directory}: models of trainers.{model.flags.entry} label no texts; "
            "give one of trainers.tf_classifier or trainers.poptorch_classifier"
        )
    return plan, tokenizer_json


def write_predictions(predictions: Iterable[Prediction], path: str | None) -> None:
    """Writes a line "label, tab, probability" for each text.

    The write is atomic; without a path the lines go to standard output.

    Raises:
      DataError: the file cannot be written.
    """
    # A tab in a name would make a column.
    lines = (f"{visible(each.label)}\t{each.probability:.6f}" for each in predictions)
    if path is None:
        for line in lines:
            say(line)
        return
    partial = path + ".partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(partial, path)
    except OSError as error:
        raise DataError(f"{flag('output', path)} cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            os.remove(partial)
