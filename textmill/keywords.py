"""Keywords of Python functions are flags of commands: the functions have no settings of their own.

    near_duplicates=Jaccard(0.8), keep_fields=["url", "date"], overwrite=True
    --near_duplicates=jaccard:0.8 --keep_fields=url,date --overwrite

The options of a command take and check these values, so that defaults, checks and messages are its
own. Messages name keywords here.
"""

from __future__ import annotations

import os
from contextvars import copy_context
from typing import Any, Callable, Iterable, Mapping, TypeVar

from textmill.schemas.commands.entry import (
    INTERRUPTED,
    TERMINATED,
    correctable,
    describe_missing,
)
from textmill.schemas.commands.options import Given
from textmill.schemas.errors import DataError, UsageError, as_keywords, speak_to_caller

T = TypeVar("T")


class Keywords:
    """The keywords of a function, which are the flags of a command.

    Attributes:
      name: of the function and the command: build_corpus, flax_clm.
      options: returns the dataclasses of the flags.
    """

    def __init__(self, name: str, options: Callable[[], Iterable[type]], extra: str):
        """Imports nothing yet.

        Args:
          name: of the command.
          options: returns the dataclasses of its flags.
          extra: of setup.py, with the packages that the command needs.
        """
        self.name, self.options, self._extra = name, options, extra

    def given(self, values: Mapping[str, Any]) -> tuple[list[str], dict[str, Given]]:
        """The arguments of the command, which name a file of flags at most, and the values.

        Raises:
          UsageError: a keyword is none.
        """
        for name in ("help", "h"):
            if name in values:
                remedy = f"`textmill {self.name.replace('_', '-')} --help=all` lists the keywords"
                raise UsageError(f"unknown keyword {name}: {remedy}")
        file = [f"--config={os.fspath(values['config'])}"] if "config" in values else []
        return file, {name: Given(value) for name, value in values.items() if name != "config"}

    def call(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns; its errors name keywords and are errors of a user.

        Raises:
          UsageError: a value or a combination of values is wrong.
          DataError: the data or the run failed.
          ModuleNotFoundError: a package is not installed.
          KeyboardInterrupt: Ctrl-C or SIGTERM, once the run has saved its state.
        """

        def work_for_caller() -> T:
            speak_to_caller()
            return work()

        try:
            return copy_context().run(work_for_caller)  # tyro reports errors to us only in it
        except SystemExit as stop:
            if stop.code not in (INTERRUPTED, TERMINATED):
                raise
            raise KeyboardInterrupt("resume=True continues from the newest checkpoint") from stop
        except KeyboardInterrupt as stop:
            stop.args = tuple(as_keywords(str(text)) for text in stop.args)
            raise
        except Exception as error:
            if line := describe_missing(error, f"textmill ({self.name})", self._extra):
                name = getattr(error, "name", None)
                raise ModuleNotFoundError(line, name=name) from None
            known = correctable(error)
            if known is None:
                raise
            kind = UsageError if isinstance(known, UsageError) else DataError
            # Its message is complete, as in a command; the traceback of its cause (`__context__`)
            # would be a hundred lines in a notebook.
            raise kind(known.in_python()) from None
