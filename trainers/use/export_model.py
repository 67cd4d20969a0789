"""Exports a trained model: for transformers, and as files of the framework."""

from __future__ import annotations

from contextlib import closing
from typing import Callable

from textmill.trainers.run.export import export_weights
from textmill.trainers.use.open_model import OpenModel


def export_model(model: OpenModel, directory: str, say: Callable[[str], None]) -> None:
    """Writes the weights as a directory for transformers; needs no framework.

    Raises:
      UsageError: the directory exists already, or the weights are published ones.
      DataError: it cannot be written.
    """
    plan, tokenizer_json = model.of_run()
    _, read = model.weights()
    export_weights(plan, directory, model.task(plan), read, tokenizer_json, say)


def export_program(model: OpenModel, say: Callable[[str], None]) -> None:
    """Writes the files of the framework that the flags request; raises like `export_model`."""
    plan, tokenizer_json = model.of_run()
    with closing(model.load(plan, model.task(plan))) as program:
        say(program.export(plan.schema, tokenizer_json))
