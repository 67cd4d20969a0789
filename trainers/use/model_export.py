"""Exports a trained model: for transformers, and as files of the framework."""

from __future__ import annotations

from contextlib import closing
from typing import Callable

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.run.export import export_weights
from textmill.trainers.use.open_model import OpenModel


def export_model(model: OpenModel, say: Callable[[str], None]) -> None:
    """Writes the weights as the directories that the flags request.

    A directory for transformers needs no framework.

    Raises:
      UsageError: a directory exists already, none is requested, or the weights are published ones.
      DataError: it cannot be written.
    """
    directory, exports_program = model.use.output, model.flags.compute.exports_program
    if directory is None and not exports_program:
        raise UsageError(f"nothing to export: give {flag('output', 'DIR')}")
    plan, tokenizer_json = model.of_run()
    task, (step, read) = model.task(plan), model.weights()
    say(f"the weights after step {step}")
    if directory is not None:
        export_weights(plan, directory, task, read, tokenizer_json, say, field="output")
    if exports_program:
        with closing(model.load(plan, task)) as program:
            say(program.export(plan.schema, tokenizer_json))
