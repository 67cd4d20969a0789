"""Values of build_shards' options: the shares of splits, and their numbers of shards."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

from textmill.schemas.errors import FieldError

N = TypeVar("N", int, float)
MOST_SHARDS = 99_999  # of a split


class _Numbers(Mapping[str, N]):
    """Numbers by name: {"train": 16, "validation": 1}, as text train:16,validation:1.

    Attributes:
      KIND: type of a number.
      EXAMPLE: of the text.
    """

    KIND: ClassVar[Any] = float
    EXAMPLE: ClassVar[str]

    def __init__(self, numbers: Mapping[str, N]):
        self._numbers = dict(numbers)
        for name, number in self._numbers.items():
            kinds = (int, float) if self.KIND is float else int
            if not isinstance(number, kinds) or isinstance(number, bool):
                raise FieldError("", self, f"{number!r} is not a number; give {self.EXAMPLE}")
            if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise FieldError("", self, f"the name {name!r} must look like train_2")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `train:16,validation:1`.

        Raises:
          FieldError: it has a different form, or a number or a name is none.
        """
        numbers: dict[str, N] = {}
        for item in text.split(","):
            name, _, value = item.strip().partition(":")
            if not name or not value:
                reason = f"{item!r} is not NAME:NUMBER; give {cls.EXAMPLE}"
                raise FieldError("", text, reason)
            if name in numbers:
                raise FieldError("", text, f"{name} is given twice")
            try:
                numbers[name] = cls.KIND(value)
            except ValueError as error:
                reason = f"{value!r} is not a number; give {cls.EXAMPLE}"
                raise FieldError("", text, reason) from error
        return cls(numbers)

    def __str__(self) -> str:
        """The text that `parse` reads, in the order that was given."""
        return ",".join(f"{name}:{_digits(number)}" for name, number in self.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._numbers!r})"

    def __getitem__(self, name: str) -> N:
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))


def _digits(number: float) -> str:
    return str(number).removesuffix(".0")


class Splits(_Numbers[float]):
    """Splits and their shares of the documents: {"train": 0.98, "validation": 0.02}."""

    EXAMPLE = "train:0.98,validation:0.02"

    def __init__(self, shares: Mapping[str, float]):
        super().__init__(shares)
        for name, share in self.items():
            if not share > 0:  # nan is not
                raise FieldError("", self, f"the share of {name} must be above 0")
        if not abs(sum(self.values()) - 1) < 1e-9:
            reason = f"the shares add up to {sum(self.values()):g}, not to 1"
            raise FieldError("", self, reason)


class ShardCounts(_Numbers[int]):
    """The number of shards of each split: {"train": 16, "validation": 1}."""

    KIND = int
    EXAMPLE = "train:16,validation:1"

    def __init__(self, counts: Mapping[str, int]):
        super().__init__(counts)
        if not counts or not all(1 <= count <= MOST_SHARDS for count in counts.values()):
            raise FieldError("", self, f"from 1 to {MOST_SHARDS}")


def parse_num_shards(text: str) -> int | ShardCounts:
    """Reads the number of shards of the largest split, or of each split.

    Raises:
      FieldError: it is neither.
    """
    if ":" in text:
        return ShardCounts.parse(text)
    try:
        return int(text)
    except ValueError as error:
        reason = (
            f"{text!r} is not a number; give 16 for the largest split, or {ShardCounts.EXAMPLE}"
        )
        raise FieldError("", text, reason) from error
