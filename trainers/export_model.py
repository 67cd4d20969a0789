"""Entry: exports a trained model for transformers, or as a SavedModel.

    python -m trainers.export_model RUN --output=DIR
    python -m trainers.export_model RUN --export_saved_model=DIR

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.use.model_export import export_model
from textmill.trainers.use.open_model import open_model
from textmill.trainers.use.verbs import EXPORT_MODEL


def main(argv: list[str]) -> None:
    """Exports the model of a command line."""
    with open_model(argv, EXPORT_MODEL) as model:
        export_model(model, ProgressLine().say)


if __name__ == "__main__":
    run_entry(main)
