"""What is compared, how pairs are looked for, and which are near: as flags say it. Pure.

It loads no compiled loop, so that a command refuses a flag at once.
"""

import re
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from schemas.errors import UsageError

_MOST_HASHES = 1024
_MOST_BANDS = 256  # a key says its band in a byte


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
          UsageError: it is none.
        """
        found = re.fullmatch(r"(word|char):([1-9][0-9]{0,2})", flag)
        if not found:
            raise UsageError(
                f"--shingle={flag} is no shingle: give word:5 for runs of five words, or char:24 "
                "for runs of 24 characters, where words have no spaces between them"
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
          UsageError: it is none.
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
    """Reads `jaccard:0.8`: from which similarity on two documents are near-duplicates.

    Raises:
      UsageError: it is none.
    """
    found = re.fullmatch(r"jaccard:(0\.[0-9]{1,4}|1|1\.0)", flag)
    threshold = Fraction(found[1]) if found else Fraction(0)
    if not threshold:
        raise UsageError(
            f"--near_duplicates={flag} is no threshold: give jaccard: and a similarity above 0 and "
            "up to 1, of at most four decimals, such as jaccard:0.8"
        )
    return threshold
