"""Every count of a report has a plain name and a meaning."""

import ast
import re

import pytest

from tests.tools.places import ROOT
from textmill.pipelines.corpus.field_counts import SECTIONS as FIELD_SECTIONS
from textmill.pipelines.corpus.filters import Filters, papers, rules_of
from textmill.pipelines.corpus.near_duplicates import steps
from textmill.pipelines.corpus.rules.respect import Respect
from textmill.pipelines.corpus.rules.sizes import Sizes
from textmill.pipelines.inspection.report.count_names import (
    COUNTS,
    REASONS,
    SECTIONS,
    CountName,
    name_of_count,
    name_of_reason,
    name_of_section,
)
from textmill.schemas.errors import as_flags
from textmill.schemas.format.drops import DROPS


def _reasons_of_rules() -> set[str]:
    filters = Filters(quality=papers(), respect=Respect(("tdm", "noai")))
    lists = {f"url_blocklist:{kind}" for kind in ("domain", "address", "word")}
    others = {"language:other", "language:unsure", "quality_model:low", "pii:empty"}
    own = {reason for rule in rules_of(filters) for reason in rule.reasons}
    return own | lists | others | {*Sizes.REASONS} | {*DROPS}


def _reasons_of_pages() -> set[str]:
    """The reasons in the tables of rejected documents."""
    tables = "".join((ROOT / "docs" / page).read_text() for page in ("inputs.md", "chat.md"))
    found = re.findall(r"\| reason \| cause.*\n\|---\|---\|\n((?:\|.*\n)+)", tables)
    cells = [line.split("|")[1] for table in found for line in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_reason_has_a_plain_name_and_a_meaning():
    pages = _reasons_of_pages()
    assert len(pages) > 30 and {"http_status", "not_utf8", "empty_turn"} <= pages
    reasons = _reasons_of_rules() | pages
    names = {reason: name_of_reason(reason) for reason in reasons}
    assert [reason for reason, name in names.items() if not name.meaning] == []
    assert [name.title for name in names.values() if re.search(r"[_:]", name.title)] == []
    assert {*REASONS} <= reasons, "no entry of a reason that is gone"


def test_rules_name_their_flags():
    ngrams = CountName(*map(as_flags, name_of_reason("gopher:max_top_2_grams")))
    assert ngrams == (
        "one run of 2 words",
        "maximum share of characters in the most frequent run of 2 words: --gopher_max_top_ngrams",
    )
    assert as_flags(name_of_reason("fineweb:max_newlines").meaning) == (
        "maximum number of newlines per word: --fineweb_max_newlines"
    )
    assert name_of_reason("filter:advert").title == "advert"
    assert name_of_reason("5 others") == ("5 others", "")


def test_every_section_and_count_has_a_plain_name_and_a_meaning():
    docstring = ast.get_docstring(ast.parse(f"def f():\n    '''{steps.observe.__doc__}'''").body[0])  # pyright: ignore
    near = set(re.findall(r"(?<=[.:] )(\w+):|\n\s+(\w+):", (docstring or "").split("Args:")[1]))
    near = {name for pair in near for name in pair if name} - {"numbers"}
    assert near == {name for section, name in COUNTS if section == "near_duplicates"}
    assert {*FIELD_SECTIONS} <= {*SECTIONS}
    named = [*COUNTS.values(), *SECTIONS.values()]
    assert all(title and meaning and "_" not in title for title, meaning in named)
    assert {section for section, _ in COUNTS} <= {*SECTIONS}


@pytest.mark.parametrize(
    "section, name, title",
    [
        ("near_duplicates", "refuted", "pairs below the threshold"),
        ("edited", "c4", "C4's line rules"),
        ("edited", "duplicate_paragraphs", "repeated text"),
        ("language", "nb", "nb"),
        ("documents_with_field", "tdm_reservation", "tdm_reservation"),
    ],
)
def test_names_of_counts(section, name, title):
    assert name_of_count(section, name).title == title


def test_a_section_without_an_entry_is_spaced():
    assert name_of_section("my_own_count") == ("my own count", "")
