"""The flags of near-duplicates, and the rule that they define. Pure.

Imports no compiled loop, so that a command rejects a bad flag at once.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from textmill.schemas.errors import UsageError

_MOST_HASHES = 1024
_MOST_BANDS = 256  # the key of a bucket has one byte for the number of its band
_SHOWN = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


class Shingle(NamedTuple):
    """The unit and size of shingles: `word:5` or `char:24`.

    Attributes:
      unit: "word" or "char".
      size: number of units in a shingle.
    """

    unit: str
    size: int

    @classmethod
    def parse(cls, flag: str) -> "Shingle":
        """Reads `word:5`.

        Raises:
          UsageError: it is not a shingle.
        """
        match = re.fullmatch(r"(word|char):([1-9][0-9]{0,2})", flag)
        if not match:
            raise UsageError(
                f"--shingle={flag} is not a shingle: give word:5 for runs of five words, or "
                "char:24 for runs of 24 characters"
            )
        return cls(match[1], int(match[2]))


class Bands(NamedTuple):
    """The partition of a signature into bands: `14x8` has 14 bands of 8 hashes.

    Attributes:
      bands: number of bands of a signature.
      rows: number of hashes of a band.
    """

    bands: int
    rows: int

    @classmethod
    def parse(cls, flag: str) -> "Bands":
        """Reads `14x8`.

        Raises:
          UsageError: it has another form, or too many bands or hashes.
        """
        match = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", flag)
        bands = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not match or bands.bands > _MOST_BANDS or bands.hashes > _MOST_HASHES:
            raise UsageError(
                f"--bands={flag}: give bands x hashes per band, such as 14x8, 16x7 or 20x13, with "
                f"at most {_MOST_BANDS} bands and {_MOST_HASHES} hashes in total"
            )
        return bands

    @property
    def hashes(self) -> int:
        """Number of hashes of a signature: 112 for 14x8."""
        return self.bands * self.rows


def s_curve(bands: Bands, similarities: np.ndarray) -> np.ndarray:
    """Share of pairs with each similarity that meet in a bucket: 14x8 at 0.8 -> 0.924."""
    return 1 - (1 - np.asarray(similarities, float) ** bands.rows) ** bands.bands


def parse_threshold(flag: str) -> Fraction:
    """Reads `jaccard:0.8`, the minimum similarity of near-duplicates.

    Raises:
      UsageError: it is not a threshold.
    """
    match = re.fullmatch(r"jaccard:(0\.[0-9]{1,4}|1|1\.0)", flag)
    threshold = Fraction(match[1]) if match else Fraction(0)
    if not threshold:
        raise UsageError(
            f"--near_duplicates={flag} is not a threshold: give jaccard:S with a similarity S "
            "above 0 and up to 1, with at most four decimals, such as jaccard:0.8"
        )
    return threshold


@dataclass(frozen=True)
class Rule:
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

    near_duplicates: Annotated[str | None, tyro.conf.arg(metavar="jaccard:SIMILARITY")] = None
    """Remove documents with at least this similarity to a kept document: jaccard:0.8."""
    shingle: Annotated[str, tyro.conf.arg(metavar="word:N|char:N")] = "word:5"
    """Shingles whose overlap is the similarity: runs of N words or N characters."""
    bands: Annotated[str, tyro.conf.arg(metavar="14x8|16x7|20x13|26x11|BxR")] = "14x8"
    """Bands of a MinHash signature x hashes per band; --dry_run prints the share of pairs that
    they find."""

    def __post_init__(self) -> None:
        """Rejects values that cannot work."""
        for name in ("shingle", "bands"):
            value = getattr(self, name)
            if value != getattr(NearFlags, name) and self.near_duplicates is None:
                raise UsageError(
                    f"--{name}={value} needs --near_duplicates, such as "
                    "--near_duplicates=jaccard:0.8"
                )
        self.rule()

    def rule(self) -> Rule | None:
        """The rule; None if near-duplicates are kept."""
        if self.near_duplicates is None:
            return None
        return Rule(
            parse_threshold(self.near_duplicates),
            Shingle.parse(self.shingle),
            Bands.parse(self.bands),
        )

    def parameters(self) -> dict[str, Any]:
        """Values of the flags, for fingerprints; {} if near-duplicates are kept."""
        return dict(vars(self)) if self.near_duplicates else {}


NearArguments = Annotated[
    NearFlags, tyro.conf.arg(name="", help="Which documents are near-duplicates.")
]
