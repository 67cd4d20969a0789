"""The flags of near-duplicates, and the rule that they define. Pure.

Imports no compiled loop, so that a command rejects a bad flag at once.
"""

import re
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import tyro

from textmill.schemas.commands.values import spelled, take_values
from textmill.schemas.errors import FieldError

_MOST_HASHES = 1024
_MOST_BANDS = 256  # the key of a bucket has one byte for the number of its band
_JACCARD = (
    "give jaccard:S with a similarity S above 0 and up to 1, with at most four decimals, such as "
    "jaccard:0.8"
)
_SHINGLE = "give word:5 for runs of five words, or char:24 for runs of 24 characters"
_BANDS = (
    "give bands x hashes per band, such as 14x8, 16x7 or 20x13, with at most "
    f"{_MOST_BANDS} bands and {_MOST_HASHES} hashes in total"
)
_SHOWN = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True)
class Jaccard:
    """The minimum similarity of near-duplicates: jaccard:0.8.

    Attributes:
      similarity: above 0 and up to 1, with at most four decimals.
    """

    similarity: float

    def __post_init__(self) -> None:
        """Rejects an impossible similarity."""
        number = self.similarity
        if not isinstance(number, int | float):
            raise FieldError("", number, _JACCARD)
        if not 0 < number <= 1 or round(number, 4) != number:
            raise FieldError("", self, _JACCARD)

    @classmethod
    def parse(cls, text: str) -> "Jaccard":
        """Reads `jaccard:0.8`."""
        match = re.fullmatch(r"jaccard:([01]\.[0-9]{1,4}|1)", text)
        if not match:
            raise FieldError("", text, _JACCARD)
        return cls(float(match[1]))

    def __str__(self) -> str:
        """`jaccard:0.8`."""
        return f"jaccard:{self.similarity:g}"

    @property
    def fraction(self) -> Fraction:
        """The similarity as it is written, exactly: 0.8 -> 4/5."""
        return Fraction(str(self.similarity))


@dataclass(frozen=True)
class Shingle:
    """The unit and size of shingles: `word:5` or `char:24`.

    Attributes:
      unit: "word" or "char".
      size: number of units in a shingle.
    """

    unit: str
    size: int

    def __post_init__(self) -> None:
        """Rejects other units and sizes."""
        if self.unit not in ("word", "char") or self.size not in range(1, 1000):
            raise FieldError("", self, _SHINGLE)

    @classmethod
    def parse(cls, text: str) -> "Shingle":
        """Reads `word:5`."""
        match = re.fullmatch(r"(word|char):([1-9][0-9]{0,2})", text)
        if not match:
            raise FieldError("", text, _SHINGLE)
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        """`word:5`."""
        return f"{self.unit}:{self.size}"


@dataclass(frozen=True)
class Bands:
    """The partition of a signature into bands: `14x8` has 14 bands of 8 hashes.

    Attributes:
      bands: number of bands of a signature.
      rows: number of hashes of a band.
    """

    bands: int
    rows: int

    def __post_init__(self) -> None:
        """Rejects too many bands or hashes."""
        few = self.bands in range(1, _MOST_BANDS + 1) and self.rows in range(1, _MOST_HASHES + 1)
        if not few or self.hashes > _MOST_HASHES:
            raise FieldError("", self, _BANDS)

    @classmethod
    def parse(cls, text: str) -> "Bands":
        """Reads `14x8`."""
        match = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", text)
        if not match:
            raise FieldError("", text, _BANDS)
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        """`14x8`."""
        return f"{self.bands}x{self.rows}"

    @property
    def hashes(self) -> int:
        """Number of hashes of a signature: 112 for 14x8."""
        return self.bands * self.rows


def s_curve(bands: Bands, similarities: np.ndarray) -> np.ndarray:
    """Share of pairs with each similarity that meet in a bucket: 14x8 at 0.8 -> 0.924."""
    return 1 - (1 - np.asarray(similarities, float) ** bands.rows) ** bands.bands


@dataclass(frozen=True)
class NearDuplicateRule:
    """The definition of near-duplicates, and the parameters of the search.

    Attributes:
      threshold: minimum Jaccard similarity.
      shingle: shingles of the compared sets.
      bands: bands of the MinHash signatures.
    """

    threshold: Fraction
    shingle: Shingle
    bands: Bands

    def facts(self) -> dict[str, str]:
        """Lines of the plan: the threshold, and the share of pairs that the search finds."""
        kind = "words" if self.shingle.unit == "word" else "characters"
        shares = s_curve(self.bands, np.array(_SHOWN)) * 100
        recall = (
            f"{similarity:g}: {min(share, 99.9):.3g} %"  # no pair is found for certain
            for similarity, share in zip(_SHOWN, shares, strict=True)
        )
        return {
            "near-duplicates": f"Jaccard similarity of {float(self.threshold):g} or more, of "
            f"shingles of {self.shingle.size} {kind}",
            "pairs found": f"at similarity {', '.join(recall)} ({self.bands.bands} bands of "
            f"{self.bands.rows} hashes)",
        }


@dataclass(frozen=True)
class NearFlags:
    """Flags of near-duplicates."""

    near_duplicates: Annotated[
        Jaccard | None, spelled(Jaccard, "jaccard:SIMILARITY", none="None")
    ] = None
    """Remove documents with at least this similarity to a kept document: jaccard:0.8."""
    shingle: Annotated[Shingle, spelled(Shingle, "word:N|char:N")] = Shingle("word", 5)
    """Shingles whose overlap is the similarity: runs of N words or N characters."""
    bands: Annotated[Bands, spelled(Bands, "14x8|16x7|20x13|26x11|BxR")] = Bands(14, 8)
    """Bands of a MinHash signature x hashes per band; --dry_run prints the share of pairs that
    they find."""

    def __post_init__(self) -> None:
        """Rejects values that cannot work."""
        take_values(self)
        for name in ("shingle", "bands") if self.near_duplicates is None else ():
            value = getattr(self, name)
            if value != getattr(NearFlags, name):
                raise FieldError(name, value, "it needs near_duplicates, such as jaccard:0.8")

    @cached_property
    def rule(self) -> NearDuplicateRule | None:
        """The rule; None if near-duplicates are kept."""
        least = self.near_duplicates
        return NearDuplicateRule(least.fraction, self.shingle, self.bands) if least else None

    def parameters(self) -> dict[str, Any]:
        """Texts of the flags, for fingerprints; {} if near-duplicates are kept."""
        names = (flag.name for flag in fields(self)) if self.near_duplicates else ()
        return {name: str(getattr(self, name)) for name in names}


NearArguments = Annotated[
    NearFlags, tyro.conf.arg(name="", help="Which documents are near-duplicates.")
]
