"""Errors that users can correct, and the flags that messages name.

A message names a flag by `flag`, which marks it: commands show --seed=3, functions of `textmill`
seed=3. Errors keep the marks; `str` of an error and all that prints spell them.
"""

from __future__ import annotations

import errno
import re
from contextvars import ContextVar
from types import MappingProxyType
from typing import Mapping

# Unicode reserves these for a program's own use: no text should hold them.
_OPEN, _OR, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_WORDS = f"([^{_OPEN}{_OR}{_CLOSE}]*)"
_MARKED = re.compile(_OPEN + _WORDS + _OR + _WORDS + _CLOSE)
_NO_MARKS = dict.fromkeys(map(ord, _OPEN + _OR + _CLOSE), "\ufffd")
_NOTHING = object()
_AS_THEY_ARE: Mapping[str, str] = MappingProxyType({})
_BY_BEAM = "_tagged_with_step"  # Beam sets it when it raises an error in a worker again
_TO_CALLER: ContextVar[bool] = ContextVar("to_caller", default=False)


def flag(name: str, value: object = _NOTHING) -> str:
    """Names a flag in a message; the text has marks until `spell` removes them.

        flag("seed")        --seed      in Python seed
        flag("seed", 3)     --seed=3              seed=3
        flag("bos", False)  --no_bos              bos=False

    Args:
      name: of the field of the options, or of one of Beam's flags.
      value: any whose `str` is its text on the command line; True or False of a switch.
    """
    if value is _NOTHING:
        return either(f"--{name}", name)
    if isinstance(value, bool):
        return either(f"--{name}" if value else f"--no_{name}", f"{name}={value}")
    return either(f"--{name}={value}", f"{name}={value}")


def either(command: str, python: str) -> str:
    """Words of a message that differ for users of a command and callers of a function.

    The text has marks until `spell` removes them.
    """
    parts = (words.translate(_NO_MARKS) for words in (command, python))
    return _OPEN + _OR.join(parts) + _CLOSE


def speak_to_caller() -> None:
    """From now on, `spell` shows keywords in this context; call it in a function of `textmill`."""
    _TO_CALLER.set(True)


def as_typed(words: str) -> str:
    """An argument of a command line in a message: --max-length=3, or max_length=3."""
    name, equals, value = words.partition("=")
    return either(words, name.lstrip("-").replace("-", "_") + equals + value)


def spell(message: str) -> str:
    """A message for the user of this command, or for the caller of this function."""
    return as_keywords(message) if _TO_CALLER.get() else as_flags(message)


def as_flags(message: str) -> str:
    """A message for the user of a command, and for files: flags are --seed=3."""
    return _MARKED.sub(r"\1", message) if _OPEN in message else message


def as_keywords(message: str, names: Mapping[str, str] = _AS_THEY_ARE) -> str:
    """A message for the caller of a function: flags are seed=3.

    Args:
      message: of an error, with marks.
      names: other names of some flags, such as the keys of a file that their values come from.
    """

    def keyword(found: re.Match[str]) -> str:
        name, equals, value = found[2].partition("=")
        return names.get(name, name) + equals + value

    return _MARKED.sub(keyword, message) if _OPEN in message else message


class Caution(str):
    """A warning: what happened, where, and what to do; docs/troubleshooting.md lists all.

    Its flags are marked.
    """

    __slots__ = ()

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"warning: {self}"


class TextmillError(Exception):
    """The message is one paragraph with the value, its location, the cause and the remedy."""

    exit_code = 1

    @property
    def marked(self) -> str:
        """The message, whose flags are marked."""
        return super().__str__()

    def __str__(self) -> str:
        """The message for a user.

        Beam sends no more than the text of an error from a worker to the command: it is marked.
        """
        return self.marked if getattr(self, _BY_BEAM, False) else spell(self.marked)

    def in_python(self) -> str:
        """The message for the caller of a function."""
        return as_keywords(self.marked)


class DataError(TextmillError):
    """The data or the run failed: exit code 1."""


class LeftRunningError(DataError):
    """The run failed while some of its threads still work; the process ends without them."""


class UsageError(TextmillError):
    """The command was wrong: exit code 2."""

    exit_code = 2


class OfField(TextmillError):
    """An error about the value of a field of a command's options.

    Attributes:
      field: name of the field; "" for a value that no field holds yet.
      value: the value, whose `str` is its text on the command line, or a tuple of them.
      reason: the cause, or what to give.
    """

    def __init__(self, field: str, value: object, reason: str):
        super().__init__(field, value, reason)
        self.field, self.value, self.reason = field, value, reason

    @property
    def marked(self) -> str:
        """--field=value: reason, or field=value: reason in Python."""
        value = ",".join(map(str, self.value)) if type(self.value) is tuple else str(self.value)
        return f"{flag(self.field, value) if self.field else value}: {self.reason}"

    def of(self, field: str) -> OfField:
        """The same error about the value of a field."""
        return type(self)(field, self.value, self.reason)


class FieldError(OfField, UsageError, ValueError):
    """A field of a command's options cannot have this value.

    A ValueError, so that tyro adds the name of the field where the value alone is parsed.
    """


class FieldDataError(OfField, DataError):
    """A file that a field of a command's options names does not exist, or cannot be read."""


_ACCESS = "ask its owner for permission (chmod -R a+rX), or run as its owner"
# Errors of the system that a user can correct.
REMEDIES = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "the disk is read-only: use another directory",
    errno.ENOSPC: "free some space, or use another directory",
    errno.EDQUOT: "free some space, or use another directory",
    errno.EIO: "the disk, or the network to it, fails: copy the file elsewhere",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def one_line(error: BaseException) -> str:
    """The message of an exception in one line."""
    message = error.marked if isinstance(error, TextmillError) else str(error)
    return " ".join(message.split()) or type(error).__name__


def describe_refusal(path: str, error: OSError) -> DataError:
    """The error for a file that the system cannot open, read or write.

    Args:
      path: the file.
      error: the error of the system.
    """
    remedy = REMEDIES.get(error.errno or 0, "check this path")
    return DataError(f"{path}: {error.strerror or error}; {remedy}")
