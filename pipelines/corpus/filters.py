"""The flags of all rules: which documents are kept, and in what normal form."""

import functools
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import tyro

from textmill.pipelines.corpus.rules.c4 import C4
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.corpus.rules.language import Language
from textmill.pipelines.corpus.rules.limits import FineWeb, Gopher
from textmill.pipelines.corpus.rules.pii import Pii
from textmill.pipelines.corpus.rules.quality_model import QualityModel
from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, papers_numbers
from textmill.pipelines.corpus.rules.sizes import Sizes
from textmill.pipelines.corpus.rules.url_blocklist import UrlBlocklist
from textmill.pipelines.readers.forget import REASON
from textmill.pipelines.user_filter import FilterFlag, check_name, filter_parameters
from textmill.schemas.commands.values import join_list, spelled_list, take_values
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.drops import DROPS, Funnel, Observed, Removed

Normalize = Literal["none", "nfc", "nfkc"]
_F = TypeVar("_F", bound=RuleGroup)
Row = Annotated[_F, tyro.conf.OmitArgPrefixes]  # a group of flags in the help
_FEWEST = 20  # documents; with fewer, no share is worth a warning


@dataclass(frozen=True)
class Filters:
    """Which documents are kept; one field for each rule group, in the order in which they run."""

    normalize: Normalize = "none"
    """Convert text to this Unicode normal form, and CRLF and CR to newlines, before any other
    step."""
    quality: Annotated[tuple[str, ...] | None, spelled_list(str, "NAME,...", none="None")] = None
    """Filter English text by the rules and numbers of papers: gopher, c4, fineweb, or several
    separated by commas. Flags of single rules override them."""
    keep_rejects: bool = False
    """Write filtered documents with their text to rejects/filtered.jsonl."""

    url_blocklist: Row[UrlBlocklist] = UrlBlocklist()
    sizes: Row[Sizes] = Sizes()
    language: Row[Language] = Language()
    gopher: Row[Gopher] = Gopher()
    c4: Row[C4] = C4()
    fineweb: Row[FineWeb] = FineWeb()
    decontamination: Row[Decontamination] = Decontamination()
    pii: Row[Pii] = Pii()
    quality_model: Row[QualityModel] = QualityModel()

    filter: FilterFlag = ""

    def __post_init__(self) -> None:
        """Rejects unknown names."""
        take_values(self)
        names = self.quality or ()
        for name in names if names or self.quality is None else ("",):
            if name not in papers():
                raise FieldError(
                    "quality",
                    join_list(names),
                    f"{name!r} is unknown; give one or more of {', '.join(papers())}, separated "
                    "by commas",
                )
        check_name(self.filter)

    def groups(self) -> Iterator[tuple[str, RuleGroup]]:
        """Names and flags of rule groups, with the numbers of the papers that --quality names."""
        for row in fields(self):
            group = getattr(self, row.name)
            if isinstance(group, RuleGroup):
                yield row.name, group.of_paper() if row.name in (self.quality or ()) else group

    def added(self) -> tuple[str, ...]:
        """Names of the columns of numbers, float32, that rules add to the documents."""
        return tuple(name for _, group in self.groups() for name in group.added())

    def check_roles(self, roles: Iterable[str]) -> None:
        """Checks that documents have the fields that rules need besides the text.

        Args:
          roles: names of the fields that are read.

        Raises:
          UsageError: a field is missing; names the flag that needs it.
        """
        known = {*roles}
        for _, group in self.groups():
            for role, needing in group.roles().items():
                if role not in known:
                    raise UsageError(
                        f"{needing} needs each document's {role}: {flag('keep_fields', role)}"
                    )

    def parameters(self) -> dict[str, Any]:
        """Values that decide which documents are kept, by flag name, for fingerprints.

        They include the numbers that --quality implies; `filter_sha256`, which changes when the
        user's function is edited; and the version of Unicode, which decides the normal form of new
        characters.

        Raises:
          UsageError: the user's function, or something that a rule needs, is not available.
        """
        values: dict[str, Any] = {"normalize": self.normalize}
        if self.normalize != "none":
            values |= {"unicode": unicodedata.unidata_version, "line_ends": "lf"}
        for _, group in self.groups():
            values |= group.parameters()
        return values | filter_parameters(self.filter)


@functools.cache
def papers() -> tuple[str, ...]:
    """The rule groups that implement a paper."""
    return tuple(row for row, group in Filters().groups() if papers_numbers(type(group)))


@functools.lru_cache(8)
def rules_of(filters: Filters) -> tuple[Rule, ...]:
    """The rules that the flags turn on, with their models and lists loaded: once a process.

    Raises:
      UsageError: something that a rule needs is not available on this machine.
    """
    return tuple(rule for _, group in filters.groups() for rule in group.make_rules())


def in_order(reasons: Iterable[str]) -> list[str]:
    """Sorts reasons: of readers, of rules in their order, of the user's function, of duplicates."""
    rows = [(row, group.REASONS) for row, group in Filters().groups()]
    of_rules = {name for _, names in rows for name in names}
    after = [name for name in DROPS if name not in of_rules]

    def place(reason: str) -> tuple[int, int, str]:
        if reason in after:
            return len(rows) + 1, after.index(reason), reason
        for number, (row, names) in enumerate(rows):
            if reason in names or reason.startswith(f"{row}:"):
                return number, names.index(reason) if reason in names else 0, reason
        return len(rows) if reason.startswith("filter:") else -1, 0, reason

    return sorted(reasons, key=place)


def warn_of(funnel: Funnel, observed: Observed) -> list[str]:
    """Warnings about rules that remove more than half of what reaches them, with likely causes.

    Half of the documents or of the text. A rule of a paper is compared with what reaches the
    paper's rules, since a document counts under the first of them that it fails.

    ["gopher:min_words drops 912 of the 1,000 documents that reach gopher's rules: ..."]

    Args:
      funnel: documents that went into the rules, and those removed, by reason.
      observed: further counts of rules, with `edited_bytes` of those that edit.
    """
    warnings = []
    gone = funnel.removed.get(REASON, Removed())
    documents = funnel.documents - gone.documents
    text_bytes = funnel.text_bytes - gone.text_bytes
    for row, group in Filters().groups():
        removed = {
            reason: one
            for reason, one in funnel.removed.items()
            if reason in group.REASONS or reason.startswith(f"{row}:")
        }
        edited = observed.get("edited_bytes", {})
        taken = sum(one.text_bytes for one in removed.values())
        taken += sum(edited.get(name, 0) for name in (row, *group.REASONS))
        dropped, reach = [], Removed(documents, text_bytes)
        for reason in in_order(removed):
            one, of_paper = removed[reason], reason not in group.REASONS
            if reach.documents >= _FEWEST and (what := _most(one, reach, "" not in group.CAUSES)):
                place = f"reach {row}'s rules" if of_paper else "reach it"
                cause = _cause(group, reason.removeprefix(f"{row}:"))
                dropped.append(f"{reason} drops {what} that {place}{cause}")
            if not of_paper:  # rules of their own, one after another
                left = reach.documents - one.documents, reach.text_bytes - one.text_bytes
                reach = Removed(*left)
        warnings += dropped
        if not dropped and "" in group.CAUSES and taken * 2 > text_bytes and documents >= _FEWEST:
            share = f"{taken / text_bytes:.0%}"
            most = max(removed, key=lambda reason: removed[reason].text_bytes, default="")
            if not most or removed[most].text_bytes * 2 <= taken:
                most = ""  # no reason alone: lines that were cut, or several
            warnings.append(
                f"{row} removes {share} of the text that reaches it"
                + (f", most of it by {most}" if most else "")
                + _cause(group, most.removeprefix(f"{row}:"))
            )
        documents -= sum(one.documents for one in removed.values())
        text_bytes -= taken
    return warnings


def _most(one: Removed, reach: Removed, by_text: bool) -> str:
    """`51 of the 100 documents`, if a rule removed more than half of what reached it; else ""."""
    if one.documents * 2 > reach.documents:
        return f"{one.documents:,} of the {reach.documents:,} documents"
    if by_text and one.text_bytes * 2 > reach.text_bytes:
        return f"{one.text_bytes / reach.text_bytes:.0%} of the text of the documents"
    return ""


def _cause(group: RuleGroup, reason: str) -> str:
    return f": {group.CAUSES[reason]}" if reason in group.CAUSES else ""
