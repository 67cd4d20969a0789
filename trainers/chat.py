"""Entry: answers messages with a model that was trained on conversations.

    python -m trainers.chat RUN "What is 3 plus 4?"
    python -m trainers.chat RUN                       # a conversation

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.trainers.use.conversation import converse
from textmill.trainers.use.open_model import open_model
from textmill.trainers.use.verbs import CHAT
from textmill.trainers.use.write_texts import print_texts


def main(argv: list[str]) -> None:
    """Answers the message of a command line, or those of standard input."""
    with open_model(argv, CHAT) as model:
        if model.use.message is None:
            converse(model)
        else:
            print_texts(model)


if __name__ == "__main__":
    run_entry(main)
