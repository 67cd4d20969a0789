"""Entry: continues a text with a trained decoder.

    python -m trainers.generate RUN "Once upon a time" --temperature=0.8

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.trainers.use.open_model import open_model
from textmill.trainers.use.verbs import GENERATE
from textmill.trainers.use.write_texts import print_texts


def main(argv: list[str]) -> None:
    """Continues the text of a command line."""
    with open_model(argv, GENERATE) as model:
        print_texts(model)


if __name__ == "__main__":
    run_entry(main)
