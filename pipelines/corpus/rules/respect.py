"""--respect: drops web pages that reserve rights to text and data mining, or refuse AI."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.commands.values import join_list, spelled_list, take_values
from textmill.schemas.errors import FieldError, flag

# Name -> fields of a page in which it is looked up, and the pattern of their values.
_RESERVATIONS = {
    "tdm": (("tdm_reservation",), r"^1$"),
    "noai": (("robots", "x_robots_tag"), r"(^|[,:]\s*)(noai|noimageai)\s*(,|$)"),
}


@dataclass(frozen=True)
class Respect(RuleGroup):
    """Drop web pages that reserve rights to text and data mining, or refuse AI."""

    respect: Annotated[tuple[str, ...] | None, spelled_list(str, "NAME,...", none="None")] = None
    """Drop web pages with a reservation of rights: tdm (tdm-reservation is 1), noai (noai or
    noimageai for robots), or tdm,noai. It judges by --keep_fields=tdm_reservation,robots,
    x_robots_tag."""

    def __post_init__(self) -> None:
        """Rejects unknown names."""
        take_values(self)
        for name in self.respect or (() if self.respect is None else ("",)):
            if name not in _RESERVATIONS:
                raise FieldError(
                    "respect", join_list(self.respect or ()), "give tdm, noai, or tdm,noai"
                )

    def roles(self) -> dict[str, str]:
        """The fields of the named reservations."""
        return {
            field: flag("respect", name)
            for name in self.respect or ()
            for field in _RESERVATIONS[name][0]
        }

    def make_rules(self) -> Iterator[Rule]:
        """A rule for each name, in the order of the names in this file."""
        for name, (fields, pattern) in _RESERVATIONS.items():
            if name in (self.respect or ()):
                yield Rule(
                    (f"respect:{name}",),
                    lambda text, *columns, pattern=pattern: judge(columns, pattern),
                    roles=fields,
                )


def judge(columns: tuple[pa.LargeStringArray, ...], pattern: str) -> RuleResult:
    """Drops documents with a field that has the pattern; the value of the field is measured."""
    found = [
        pc.match_substring_regex(column, pattern=pattern, ignore_case=True).to_numpy(
            zero_copy_only=False
        )
        for column in columns
    ]
    reason = np.any(found, axis=0)
    measured = np.select(found, [np.array(column.to_pylist(), object) for column in columns], "")
    return RuleResult(reason, measured=measured)
