"""Values of rules' flags that map numbers or names to shares: 2:0.2,3:0.18, or nb,en:0.65."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from textmill.schemas.errors import FieldError


@dataclass(frozen=True)
class _Shares(Mapping[Any, float]):
    """A mapping that is never changed.

    Attributes:
      shares: key -> share from 0 to 1.
    """

    shares: Mapping[Any, float]

    def __getitem__(self, key: Any) -> float:
        """The share of a key."""
        return self.shares[key]

    def __iter__(self) -> Iterator[Any]:
        """The keys."""
        return iter(self.shares)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self.shares)

    def __hash__(self) -> int:
        """Equal for equal shares."""
        return hash(tuple(self.shares.items()))


@dataclass(frozen=True)
class NgramLimits(_Shares):
    """The maximum share of characters for each number of words: 2:0.2,3:0.18."""

    def __post_init__(self) -> None:
        """Rejects other numbers of words and shares."""
        for n, share in self.shares.items():
            if n not in range(2, 100) or not 0 <= share <= 1:
                raise FieldError("", self, _is_not(f"{n}:{share}"))
        object.__setattr__(self, "shares", dict(sorted(self.shares.items())))

    @classmethod
    def parse(cls, text: str) -> "NgramLimits":
        """Reads `2:0.2,3:0.18`."""
        limits: dict[int, float] = {}
        for part in text.split(",") if text else ():
            n, _, share = part.partition(":")
            try:
                limits[int(n)] = float(share)
            except ValueError as error:
                raise FieldError("", text, _is_not(part)) from error
        return cls(limits)

    def __str__(self) -> str:
        """`2:0.2,3:0.18`."""
        return ",".join(f"{n}:{share:.12g}" for n, share in self.shares.items())

    __hash__ = _Shares.__hash__


def _is_not(part: str) -> str:
    return f"{part!r} is not WORDS:SHARE; give 2 to 99 words and a share from 0 to 1, such as 2:0.2"


@dataclass(frozen=True)
class Languages(_Shares):
    """Languages, and the minimum probability of each: nb,en:0.65; 0 for any probability."""

    def __post_init__(self) -> None:
        """Rejects other probabilities, and empty names."""
        for name, least in self.shares.items():
            if not name or not 0 <= least <= 1:
                raise FieldError("", self, _is_no_language(f"{name}:{least}"))
        if not self.shares:
            raise FieldError("", "", _is_no_language(""))

    @classmethod
    def parse(cls, text: str) -> "Languages":
        """Reads `nb,en:0.65`: Languages({"nb": 0.0, "en": 0.65})."""
        minimums: dict[str, float] = {}
        for item in text.split(","):
            name, colon, share = item.strip().partition(":")
            try:
                least = float(share) if colon else 0.0
            except ValueError:
                least = float("nan")
            if not name or not 0 <= least <= 1:
                raise FieldError("", text, _is_no_language(item))
            if name in minimums:
                raise FieldError("", text, f"{name} is given twice")
            minimums[name] = least
        return cls(minimums)

    def __str__(self) -> str:
        """`nb,en:0.65`."""
        return ",".join(f"{n}:{p:.12g}" if p else n for n, p in self.shares.items())

    __hash__ = _Shares.__hash__


def _is_no_language(item: str) -> str:
    return (
        f"{item!r} is not CODE or CODE:PROBABILITY; give languages separated by commas, each with "
        "its own minimum probability from 0 to 1 after a colon if it has one, such as nb,nn,en:0.65"
    )
