"""A conversation on a terminal, or with the lines of a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.run.interruption import Interruption
from textmill.trainers.run.trainer import ChatModel
from textmill.trainers.use.open_model import OpenModel
from textmill.trainers.use.verbs import CHAT, missing_text
from textmill.trainers.use.write_texts import refuse_silent

_PROMPT, _EXIT = "> ", "/exit"
_ENDS = f"Ctrl-D, an empty line or {_EXIT} ends the conversation"


def converse(model: OpenModel) -> None:
    """Answers each line of standard input, with the lines and answers before it in mind.

    On a terminal it prompts for the lines, Ctrl-C stops an answer, and errors of a line do not end
    the conversation.

    Raises:
      UsageError: the model or the flags cannot answer, or there is no line.
      DataError: a file is broken, or a line is not text.
    """
    refuse_silent(model)
    generation = model.use.generation
    if generation.samples > 1:
        raise UsageError(
            f"{flag('samples', generation.samples)}: a conversation has one answer to a message; "
            "leave it out, or give MESSAGE"
        )
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    chat = model.trainer.chat(model.trained, model.flags, generation)
    if is_terminal:
        say(f"Ctrl-C stops an answer; {_ENDS}.", sys.stderr)
    turns: list[str] = []
    number = 0
    for number, message in enumerate(_messages(is_terminal), 1):
        try:
            newest = chat.newest([*turns, message])
            if len(newest) <= len(turns):
                count = number_of((len(turns) + 1 - len(newest)) // 2, "message")
                say(
                    f"note: dropped {count} from the start, with the answers: the model has "
                    f"{model.trained.config.max_positions:,} positions",
                    sys.stderr,
                )
            turns = _answer(chat, newest, is_terminal)
        except (DataError, UsageError) as error:
            if not is_terminal:
                raise type(error)(f"standard input, message {number}: {error}") from error
            say(f"error: {error}", sys.stderr)
    if not (number or is_terminal):
        raise missing_text(CHAT)


def _messages(is_terminal: bool) -> Iterator[str]:
    """Lines of standard input that are not empty; an empty one on a terminal ends them."""
    if is_terminal:
        with suppress(ImportError):  # which some builds of Python lack
            import readline  # noqa: F401  # lets `input` edit lines and recall earlier ones
    while sys.stdin is not None:
        try:
            line = input(_PROMPT if is_terminal else "").strip()
        except EOFError:
            if is_terminal:
                say("")  # the shell's prompt starts a line
            return
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            say(f"\n{_ENDS}.", sys.stderr)
            continue
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input is not {error.encoding}: convert it to that"
            ) from error
        if line == _EXIT or (is_terminal and not line):
            return
        if line:
            yield line


def _answer(chat: ChatModel, turns: list[str], is_terminal: bool) -> list[str]:
    """Prints the answer as it grows; returns the turns to remember, with it.

    A turn without an answer is forgotten.
    """
    shown = ""
    with Interruption() as interruption:
        for text in chat.answer(turns):
            say(text[len(shown) :], end="")
            sys.stdout.flush()
            shown = text
            if interruption.signal is not None:
                break
    say("")
    sys.stdout.flush()
    if interruption.signal != signal.SIGINT or not is_terminal:
        interruption.deliver()
    return [*turns, shown] if shown else turns[:-1]
