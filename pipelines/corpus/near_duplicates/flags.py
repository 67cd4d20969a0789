"""Which documents are near-duplicates: the flags, and the rule that they give. Pure.

No compiled loop is loaded here, so that a command rejects a flag at once.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from schemas.errors import UsageError

_MOST_HASHES = 1024
_MOST_BANDS = 256  # a bucket's key holds the number of its band in a byte
_SHOWN = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


class Shingle(NamedTuple):
    """What a shingle is: `word:5` or `char:24`.

    Attributes:
      unit: "word" or "char".
      size: how many of them.
    """

    unit: str
    size: int

    @classmethod
    def parse(cls, flag: str) -> "Shingle":
        """Reads `word:5`.

        Raises:
          UsageError: it is not a shingle.
        """
        found = re.fullmatch(r"(word|char):([1-9][0-9]{0,2})", flag)
        if not found:
            raise UsageError(
                f"--shingle={flag} is not a shingle: give word:5 for runs of five words, or "
                "char:24 for runs of 24 characters"
            )
        return cls(found[1], int(found[2]))


class Bands(NamedTuple):
    """How a signature is cut: `14x8` has 14 bands of 8 hashes.

    Attributes:
      bands: of a signature.
      rows: hashes of a band.
    """

    bands: int
    rows: int

    @classmethod
    def parse(cls, flag: str) -> "Bands":
        """Reads `14x8`.

        Raises:
          UsageError: it does not cut a signature.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", flag)
        bands = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not found or bands.bands > _MOST_BANDS or bands.hashes > _MOST_HASHES:
            raise UsageError(
                f"--bands={flag} does not cut a signature: give bands x hashes of each, such as "
                f"14x8, 16x7 or 20x13, of at most {_MOST_BANDS} bands and {_MOST_HASHES} hashes"
            )
        return bands

    @property
    def hashes(self) -> int:
        """Of a signature: 112."""
        return self.bands * self.rows


def s_curve(bands: Bands, similarities: np.ndarray) -> np.ndarray:
    """The share of pairs of each similarity that meet in a bucket: 14x8 at 0.8 -> 0.924."""
    return 1 - (1 - np.asarray(similarities, float) ** bands.rows) ** bands.bands


def parse_threshold(flag: str) -> Fraction:
    """Reads `jaccard:0.8`: the similarity from which two documents are near-duplicates.

    Raises:
      UsageError: it is not a threshold.
    """
    found = re.fullmatch(r"jaccard:(0\.[0-9]{1,4}|1|1\.0)", flag)
    threshold = Fraction(found[1]) if found else Fraction(0)
    if not threshold:
        raise UsageError(
            f"--near_duplicates={flag} is not a threshold: give jaccard: and a similarity above 0 "
            "and up to 1, of at most four decimals, such as jaccard:0.8"
        )
    return threshold


@dataclass(frozen=True)
class Rule:
    """When two documents are near-duplicates, and how such pairs are looked for.

    Attributes:
      threshold: the similarity from which they are.
      shingle: what the compared sets hold.
      bands: how signatures are cut.
    """

    threshold: Fraction
    shingle: Shingle
    bands: Bands

    def facts(self) -> dict[str, str]:
        """What is near, and which share of pairs is found, for people to read."""
        kind = "words" if self.shingle.unit == "word" else "characters"
        shares = s_curve(self.bands, np.array(_SHOWN)) * 100
        found = (
            f"{similarity:g}: {min(share, 99.9):.3g} %"  # no pair is found for certain
            for similarity, share in zip(_SHOWN, shares, strict=True)
        )
        return {
            "near-duplicates": f"Jaccard similarity of {float(self.threshold):g} or more, of runs "
            f"of {self.shingle.size} {kind}",
            "pairs found": f"by {self.bands.bands} bands of {self.bands.rows} hashes; of "
            f"similarity {', '.join(found)}",
        }


@dataclass(frozen=True)
class NearFlags:
    """Flags of near-duplicates."""

    near_duplicates: Annotated[str | None, tyro.conf.arg(metavar="jaccard:SIMILARITY")] = None
    """Remove documents that are this similar to one that stays: jaccard:0.8."""
    shingle: Annotated[str, tyro.conf.arg(metavar="word:N|char:N")] = "word:5"
    """What similarity counts: runs of words or of characters."""
    bands: Annotated[str, tyro.conf.arg(metavar="14x8|16x7|20x13|26x11|BxR")] = "14x8"
    """Bands of a MinHash signature x hashes of each; --dry_run prints which share of pairs they
    find."""

    def __post_init__(self) -> None:
        """Rejects values that cannot work."""
        for name in ("shingle", "bands"):
            given = getattr(self, name)
            if given != getattr(NearFlags, name) and self.near_duplicates is None:
                raise UsageError(f"--{name}={given}: add --near_duplicates=jaccard:0.8")
        self.rule()

    def rule(self) -> Rule | None:
        """The rule; None if near-duplicates stay."""
        if self.near_duplicates is None:
            return None
        return Rule(
            parse_threshold(self.near_duplicates),
            Shingle.parse(self.shingle),
            Bands.parse(self.bands),
        )

    def parameters(self) -> dict[str, Any]:
        """What decides which documents are removed, by flag; empty if near-duplicates stay."""
        return dict(vars(self)) if self.near_duplicates else {}


NearArguments = Annotated[
    NearFlags, tyro.conf.arg(name="", help="Which documents are near-duplicates.")
]
