"""A filter rule: drops documents that are written in capital letters, such as spam.

Goes to pipelines/corpus/rules/capitals.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult, check_numbers
from textmill.pipelines.runtime.imports import pc


@dataclass(frozen=True)
class Capitals(RuleGroup):
    """How much of a document is capital letters."""

    CAUSES = {"max_capitals": "the text may be in capitals throughout, as old telegrams are"}

    max_capitals: float | None = None
    """Largest share of letters that are capitals, from 0 to 1."""

    def __post_init__(self) -> None:
        """Rejects negative numbers."""
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule, if the flag is set."""
        if (limit := self.max_capitals) is not None:
            judge = lambda text: judge_capitals(text, limit)  # noqa: E731
            yield Rule(("capitals:max_capitals",), judge, limits=(limit,))


def judge_capitals(text: pa.LargeStringArray, limit: float) -> RuleResult:
    """["HI you", "42"] -> shares [0.4, 0.0]: both are kept at a limit of 0.5."""
    capitals = pc.count_substring_regex(text, r"\p{Lu}").to_numpy()
    letters = pc.count_substring_regex(text, r"\p{L}").to_numpy()
    share = capitals / np.maximum(letters, 1)
    return RuleResult(share > limit, measured=share)
