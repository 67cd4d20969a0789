"""The result of a check, and work whose failure is one."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, TypeVar

from textmill.schemas.errors import TextmillError, one_line

T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """The result of a check, with a detail and a remedy for the user."""

    name: str
    state: Literal["ok", "failed", "not checked"]
    detail: str
    remedy: str = ""


class CannotCheck(Exception):
    """A check lacks something on this machine, which is not a fault of the command."""


def attempt(
    name: str, work: Callable[[], T], remedy: str = ""
) -> Generator[Check, None, tuple[T] | None]:
    """Returns the result of work, in a tuple; yields a check only if it fails.

    Args:
      name: of the check.
      work: what a check needs.
      remedy: what the user can do, if the error does not name it.
    """
    try:
        return (work(),)
    except CannotCheck as error:
        yield Check(name, "not checked", str(error))
    except TextmillError as error:
        yield Check(name, "failed", str(error), remedy)
    except OSError as error:
        yield Check(name, "failed", one_line(error), "check the path and its permissions")
    return None
