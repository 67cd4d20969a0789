"""The flags that say which documents are near-duplicates."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import tyro

from pipelines.corpus.near_duplicates.rule import Bands, Shingle, parse_threshold, s_curve
from schemas.errors import UsageError

MEASURE = "jaccard:"
DEFAULT = "jaccard:0.8"
_SHOWN = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True)
class Rule:
    """When two documents are near-duplicates, and how such pairs are looked for.

    Attributes:
      threshold: of the similarity, from which on they are.
      shingle: what the compared sets hold.
      bands: how signatures are cut.
    """

    threshold: Fraction
    shingle: Shingle
    bands: Bands

    def facts(self) -> dict[str, str]:
        """What is near, and which share of pairs is found, for people to read."""
        kind = "words" if self.shingle.unit == "word" else "characters"
        return {
            "near": f"from a similarity of {float(self.threshold):g} on, of runs of "
            f"{self.shingle.size} {kind}",
            "pairs found": f"by {self.bands.bands} bands of {self.bands.rows} hashes; of "
            f"similarity {self.curve()}",
        }

    def curve(self) -> str:
        """The share of pairs that are found, by similarity: `0.5 5 %, 0.8 92 %`."""
        shares = s_curve(self.bands, np.array(_SHOWN)) * 100
        return ", ".join(
            f"{similarity:g} {min(share, 99.9):.3g} %"  # no pair is found for certain
            for similarity, share in zip(_SHOWN, shares, strict=True)
        )


@dataclass(frozen=True)
class NearFlags:
    """Flags of near-duplicates."""

    near_duplicates: Annotated[str | None, tyro.conf.arg(metavar="jaccard:SIMILARITY|DIR")] = None
    """Drop documents that are similar to one that stays: jaccard:0.8, or the directory of what
    find_duplicates found."""
    shingle: Annotated[str | None, tyro.conf.arg(metavar="word:N|char:N")] = None
    """What similarity counts: runs of words or of characters; word:5 if not given."""
    bands: Annotated[str | None, tyro.conf.arg(metavar="14x8|16x7|20x13|26x11|BxR")] = None
    """How pairs are looked for: bands of so many hashes; 14x8 if not given. --dry_run shows which
    share of pairs is found."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        for name in ("shingle", "bands"):
            if getattr(self, name) is not None and self.directory:
                raise UsageError(
                    f"--{name}={getattr(self, name)}: {self.directory} was found with flags of its "
                    "own; leave it out"
                )
            if getattr(self, name) is not None and not self.near_duplicates:
                raise UsageError(
                    f"--{name}={getattr(self, name)} is of --near_duplicates: give that too, "
                    f"{DEFAULT}"
                )
        if self.near_duplicates == "":
            raise UsageError(f"--near_duplicates is empty: give {DEFAULT}, or a directory")
        self.rule()

    @property
    def directory(self) -> str:
        """Where a finished result lies; "" where none is given."""
        given = self.near_duplicates or ""
        return "" if given.startswith(MEASURE) else given

    def rule(self) -> Rule | None:
        """What is to be found; None where nothing is, or a finished result is taken."""
        given = self.near_duplicates
        if not given or self.directory:
            return None
        return Rule(
            parse_threshold(given),
            Shingle.parse(self.shingle or "word:5"),
            Bands.parse(self.bands or "14x8"),
        )

    def parameters(self) -> dict[str, Any]:
        """What decides, by flag name; nothing where near-duplicates are kept or known already."""
        rule = self.rule()
        if rule is None:
            return {}
        return {
            "near_duplicates": self.near_duplicates,
            "shingle": f"{rule.shingle.unit}:{rule.shingle.size}",
            "bands": f"{rule.bands.bands}x{rule.bands.rows}",
        }


NearArguments = Annotated[
    NearFlags, tyro.conf.arg(name="", help="Which documents are near-duplicates.")
]
