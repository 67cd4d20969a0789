"""Text for a terminal, in which control characters from files are escaped. Python 3.8 syntax.

Names of files and splits, tokens, keys and paths may hold control characters. All output goes
through this module (in the pipelines through `pipelines.runners.console`).
"""

from __future__ import annotations

import sys
import threading
import unicodedata
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Callable, Iterator, TextIO

from textmill.entries import is_hidden
from textmill.schemas.errors import either, spell

_JOINERS = "\u200c\u200d"  # without which some scripts and emoji cannot be written


def visible(text: str, keep: str = "") -> str:
    r"""Text without control characters for a terminal or a page: "a\nb\x1b" -> "a↵b\x1b".

    Args:
      text: any; lone surrogates too.
      keep: control characters to keep, such as line ends of the message itself.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _visible(c) for c in text)


def _visible(character: str) -> str:
    if character == "\n":
        return "↵"
    # Cc: terminal controls. Cf, such as U+202E, changes the writing direction; joiners are text.
    # Cs: a lone surrogate, which no encoding writes.
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs")
    if hidden and character not in _JOINERS:
        return character.encode("unicode_escape").decode()
    return character


def say(text: str, file: TextIO | None = None, *, end: str = "\n") -> None:
    """Prints text; flags are spelled, control characters except line ends and tabs are escaped.

    Args:
      text: without the final line end.
      file: standard output by default.
      end: what follows the text.
    """
    print(visible(spell(text), keep="\n\t"), file=file, end=end)


def command_name(module: str) -> str:
    """A command as this user types commands: `python -m trainers.flax_clm`, `textmill flax-clm`.

    It is the second, too, where the user's own `trainers/` hides the first.
    """
    is_short = sys.argv[0].partition(" ")[0] == "textmill"  # see `schemas.commands.textmill`
    if is_short or is_hidden(module.partition(".")[0]):
        return f"textmill {name_of(module)}"
    return f"python -m {module}"


def command_in_message(module: str) -> str:
    """A command in a message: as `command_name`; in Python textmill.build_corpus."""
    package, _, name = module.partition(".")
    function = f"textmill.{name}" if package == "pipelines" else f'textmill.train("{name}")'
    return either(command_name(module), function)


def name_of(module: str) -> str:
    """The name of a command after `textmill`: trainers.flax_clm -> flax-clm."""
    return module.rpartition(".")[2].replace("_", "-")


def number_of(count: int, one: str, many: str = "") -> str:
    """A count with its noun: 1 file, 2 files."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


@contextmanager
def call_if_slow(
    seconds: float, tell: Callable[[], None], *, again: float | None = None
) -> Iterator[None]:
    """Calls a function in its own thread if the block takes longer; waits for its end.

    Args:
      seconds: before the call.
      tell: the function.
      again: seconds between further calls; None for a single call.
    """
    ended = threading.Event()

    def watch() -> None:
        pause: float | None = seconds
        while pause is not None and not ended.wait(pause):
            tell()
            pause = again

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def in_time(seconds: float, work: Callable[[], Any]) -> Any:
    """Returns what a function returns within some seconds; abandons its thread after them.

    Raises:
      TimeoutError: the function took longer.
      Exception: raised by the function.
    """
    answer: Any = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except Exception as error:
            answer.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer.done():
        raise TimeoutError(f"no answer in {seconds:g} s")
    return answer.result()
