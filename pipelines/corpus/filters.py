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
from textmill.pipelines.corpus.rules.respect import Respect
from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, papers_numbers
from textmill.pipelines.corpus.rules.sizes import Sizes
from textmill.pipelines.corpus.rules.url_blocklist import UrlBlocklist
from textmill.pipelines.user_filter import FilterFlag, check_name, filter_parameters
from textmill.schemas.commands.values import join_list, spelled_list, take_values
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.drops import DROPS

Normalize = Literal["none", "nfc", "nfkc"]
_F = TypeVar("_F", bound=RuleGroup)
Row = Annotated[_F, tyro.conf.OmitArgPrefixes]  # a group of flags in the help


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
    respect: Row[Respect] = Respect()
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
                is_named = row.name in (self.quality or ())
                yield row.name, group.with_paper_defaults() if is_named else group

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


def sort_reasons(reasons: Iterable[str]) -> list[str]:
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
