"""Keywords of Python functions <-> flags of commands: the functions have no settings of their own.

    near_duplicates=Jaccard(0.8), keep_fields=["url", "date"], overwrite=True
    --near_duplicates=jaccard:0.8 --keep_fields=url,date --overwrite

A command parses and checks these flags, so that defaults, checks and messages are its own. Its
messages name keywords here.
"""

from __future__ import annotations

import os
from contextvars import copy_context
from dataclasses import Field
from functools import cached_property
from typing import Any, Callable, Iterable, Mapping, TypeVar

from textmill.schemas.commands.entry import (
    INTERRUPTED,
    TERMINATED,
    correctable,
    describe_missing,
    refuse_odd_paths,
)
from textmill.schemas.commands.flag_file import arguments_of, fields_of, kinds_of
from textmill.schemas.commands.values import rule_of
from textmill.schemas.errors import DataError, UsageError, as_keywords, flag, speak_to_caller

T = TypeVar("T")


class Keywords:
    """The keywords of a function, which are the flags of a command.

    Attributes:
      name: of the function and the command: build_corpus, flax_clm.
      kinds: the flags to their kinds, see `kinds_of`.
    """

    def __init__(self, name: str, options: Callable[[], Iterable[type]], extra: str):
        """Imports nothing yet.

        Args:
          name: of the command.
          options: returns the dataclasses of its flags.
          extra: of setup.py, with the packages that the command needs.
        """
        self.name, self.options, self._extra = name, options, extra

    @cached_property
    def kinds(self) -> dict[str, str]:  # noqa: D102  see the class
        return kinds_of(*self.options())

    @cached_property
    def _fields(self) -> dict[str, Field[Any]]:
        return fields_of(*self.options())

    def arguments(self, values: Mapping[str, Any]) -> list[str]:
        """The arguments of the command: {"overwrite": True, "seed": 3} -> --overwrite --seed=3.

        Raises:
          UsageError: a value has no text.
        """
        for name in ("help", "h"):
            if name in values:
                remedy = f"`textmill {self.name.replace('_', '-')} --help=all` lists the keywords"
                raise UsageError(f"unknown keyword {name}: {remedy}")
        texts = {name: self._plain(name, value) for name, value in values.items()}
        arguments = arguments_of(texts, {**self.kinds, "config": "value"}, self.name)
        for argument in arguments:
            refuse_odd_paths(argument)
        return arguments

    def others(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values that are of no flag of the command."""
        return {n: value for n, value in values.items() if n not in (*self.kinds, "config")}

    def call(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns; its errors name keywords and are errors of a user.

        Raises:
          UsageError: a value or a combination of values is wrong.
          DataError: the data or the run failed.
          ModuleNotFoundError: a package is not installed.
          KeyboardInterrupt: Ctrl-C or SIGTERM, after what a run saves is saved.
        """

        def work_for_caller() -> T:
            speak_to_caller()
            return work()

        try:
            return copy_context().run(work_for_caller)  # tyro reports errors to us in it only
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

    def _plain(self, name: str, value: Any) -> Any:
        """A value as in a file of flags: text, number, boolean, or a list or mapping of them."""
        kind, field = self.kinds.get(name), self._fields.get(name)
        if value is None and field is not None:
            return _none(name, field.type)
        if kind == "bool" and not isinstance(value, bool):
            raise UsageError(f"{flag(name, repr(value))}: give True or False")
        if isinstance(value, bool) and kind not in ("bool", None):
            raise UsageError(f"{flag(name, str(value))}: give a value, not True or False")
        return _plain(value)


def _none(name: str, hint: Any) -> str:
    """The text of None for a flag: None, or a word such as auto."""
    rule = rule_of(hint)
    if rule is not None and rule.is_instance(None):
        [text] = rule.str_from_instance(None)
        return text
    kind = hint.__origin__ if hasattr(hint, "__metadata__") else hint  # of Annotated
    if rule is None and type(None) in getattr(kind, "__args__", ()):
        return "None"
    raise UsageError(f"{flag(name, 'None')}: give a value, or leave it out")


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(type(value), "parse"):  # such as Jaccard, which reads this text
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
