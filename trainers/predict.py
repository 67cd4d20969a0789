"""Entry: labels texts with a trained classifier.

    python -m trainers.predict RUN --input=FILE.jsonl --output=labels.tsv

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.trainers.use.label_texts import label_file
from textmill.trainers.use.open_model import open_model
from textmill.trainers.use.verbs import PREDICT


def main(argv: list[str]) -> None:
    """Labels the texts of a file."""
    with open_model(argv, PREDICT) as model:
        label_file(model)


if __name__ == "__main__":
    run_entry(main)
