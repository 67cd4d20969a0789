"""The result of a builder, which found or made it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from textmill.schemas.errors import Caution

T = TypeVar("T")
# Prints what it is given, as `print` does: lines of progress, tables of rich.
Say = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Result(Generic[T]):
    """A finished corpus, dataset or tokenizer.

    Attributes:
      thing: what the output directory holds.
      seconds: that the run took; None if the output was there already.
      documents: what a document of the inputs was, for the summary.
      warnings: what a user should check, a line each.
      inputs: the values of --input, for the next command.
    """

    thing: T
    seconds: float | None
    documents: str
    warnings: tuple[Caution, ...]
    inputs: tuple[str, ...] = ()
