"""Entry: measures a trained model on a split of a dataset.

    python -m trainers.evaluate RUN --validation_split=test
    python -m trainers.evaluate RUN --checkpoint=all
    python -m trainers.evaluate PUBLISHED --shards=DIR --report=scores.jsonl

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import say
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.use.evaluate_model import evaluate_model
from textmill.trainers.use.open_model import open_model
from textmill.trainers.use.verbs import EVALUATE


def main(argv: list[str]) -> None:
    """Evaluates the model of a command line."""
    with open_model(argv, EVALUATE) as model:
        evaluate_model(model, ProgressLine(), say)


if __name__ == "__main__":
    run_entry(main)
