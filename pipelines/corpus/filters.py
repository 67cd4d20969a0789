"""The table of rules, as flags: which documents are kept, and in what normal form."""

import functools
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_args

import tyro

from pipelines.corpus.rules.c4 import C4
from pipelines.corpus.rules.decontamination import Decontamination
from pipelines.corpus.rules.fineweb import FineWeb
from pipelines.corpus.rules.gopher import Gopher
from pipelines.corpus.rules.language import Language
from pipelines.corpus.rules.pii import Pii
from pipelines.corpus.rules.rule import Family, Rule, papers_numbers
from pipelines.corpus.rules.sizes import Sizes
from pipelines.corpus.rules.url_blocklist import UrlBlocklist
from pipelines.user_filter import FilterFlag, check_name, filter_parameters
from schemas.drops import DROPS, Funnel, Observed
from schemas.errors import UsageError

Normalize = Literal["none", "nfc", "nfkc"]
_F = TypeVar("_F", bound=Family)
Row = Annotated[_F, tyro.conf.OmitArgPrefixes]  # a group of flags in the help
_FEWEST = 20  # documents for which a rule's share is worth a warning


@dataclass(frozen=True)
class Filters:
    """Which documents are kept; a row a family of rules, in the order in which they run."""

    normalize: Normalize = "none"
    """Unicode normal form that texts are brought into, before anything else; lines then end with
    a newline, where they ended with CRLF or CR too."""
    quality: str | None = None
    """Rules of papers for English text, with their numbers: gopher, c4, fineweb, or several with
    commas between. A flag of a single rule wins."""
    keep_rejects: bool = False
    """Keep the text of dropped documents, in rejects/filtered.jsonl."""

    url_blocklist: Row[UrlBlocklist] = UrlBlocklist()
    sizes: Row[Sizes] = Sizes()
    language: Row[Language] = Language()
    gopher: Row[Gopher] = Gopher()
    c4: Row[C4] = C4()
    fineweb: Row[FineWeb] = FineWeb()
    decontamination: Row[Decontamination] = Decontamination()
    pii: Row[Pii] = Pii()

    filter: FilterFlag = ""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        if self.normalize not in get_args(Normalize):
            raise UsageError(
                f"--normalize={self.normalize}: one of {', '.join(get_args(Normalize))}"
            )
        for name in self._presets:
            if name not in papers():
                raise UsageError(
                    f"--quality={self.quality}: {name!r} is none of {', '.join(papers())}; several "
                    "have commas between"
                )
        check_name(self.filter)

    @property
    def _presets(self) -> tuple[str, ...]:
        """The papers that --quality names."""
        return () if self.quality is None else tuple(self.quality.split(","))

    def families(self) -> Iterator[tuple[str, Family]]:
        """Names and flags of the rows, with the numbers of papers that --quality names."""
        for row in fields(self):
            family = getattr(self, row.name)
            if isinstance(family, Family):
                yield row.name, family.of_paper() if row.name in self._presets else family

    def check_roles(self, roles: Iterable[str]) -> None:
        """Refuses flags that need more of a document than its text, if it has not these roles.

        Raises:
          UsageError: names the flag.
        """
        known = {*roles}
        for _, family in self.families():
            for role, flag in family.roles().items():
                if role not in known:
                    raise UsageError(f"{flag} needs each document's {role}: --keep_fields={role}")

    def parameters(self) -> dict[str, Any]:
        """What decides, by flag name, for the fingerprint of what is made.

        With the numbers of each rule of --quality. With `filter_sha256`: an edited filter is
        another one. With `unicode`, whose version decides the normal form of characters new to it.

        Raises:
          UsageError: the function cannot be imported, or what a rule needs is missing here.
        """
        values: dict[str, Any] = {"normalize": self.normalize}
        if self.normalize != "none":
            values |= {"unicode": unicodedata.unidata_version, "line_ends": "lf"}
        for _, family in self.families():
            values |= family.parameters()
        return values | filter_parameters(self.filter)


@functools.cache
def papers() -> tuple[str, ...]:
    """The families whose flags have numbers of a paper."""
    return tuple(row for row, family in Filters().families() if papers_numbers(type(family)))


@functools.lru_cache(8)
def rules_of(filters: Filters) -> tuple[Rule, ...]:
    """The rules that flags ask for, with what they need loaded: once a process.

    Raises:
      UsageError: what a rule needs is missing here.
    """
    return tuple(rule for _, family in filters.families() for rule in family.make_rules())


def in_order(reasons: Iterable[str]) -> list[str]:
    """Reasons for which documents are left out, in the order of the table.

    Those of readers come first; then those of rules, the user's function, and at last those for
    which documents are left out after the shuffle (duplicates).
    """
    rows = [(row, family.REASONS) for row, family in Filters().families()]
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
    """What to print of rules that take more than half of what they see, each with its likely cause.

    ["gopher:min_words drops 912 of the 1,000 documents that it sees: ..."]

    Args:
      funnel: of the documents that were given to the rules, with what was removed by reason.
      observed: what rules counted, with `edited_bytes` of those that edit.
    """
    warnings = []
    documents, text_bytes = funnel.documents, funnel.text_bytes
    for row, family in Filters().families():
        removed = {
            reason: one
            for reason, one in funnel.removed.items()
            if reason in family.REASONS or reason.startswith(f"{row}:")
        }
        edited = observed.get("edited_bytes", {})
        taken = sum(one.text_bytes for one in removed.values())
        taken += sum(edited.get(name, 0) for name in (row, *family.REASONS))
        found = [
            f"{reason} drops {one.documents:,} of the {documents:,} documents that it sees"
            + _cause(family, reason.removeprefix(f"{row}:"))
            for reason, one in sorted(removed.items())
            if one.documents * 2 > documents >= _FEWEST
        ]
        if not found and "" in family.CAUSES and taken * 2 > text_bytes and documents >= _FEWEST:
            found = [
                f"{row} takes {taken / text_bytes:.0%} of the text that it sees"
                + _cause(family, "")
            ]
        warnings += found
        documents -= sum(one.documents for one in removed.values())
        text_bytes -= taken
    return warnings


def _cause(family: Family, reason: str) -> str:
    return f": {family.CAUSES[reason]}" if reason in family.CAUSES else ""
