"""Renders README.md and training_content.md from Markdown templates."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2
import yaml

from textmill.pipelines.description.counts import Count, Metadata, removed, sizes
from textmill.pipelines.description.provenance import Provenance
from textmill.schemas.commands.terminal import visible
from textmill.schemas.format.corpus_metadata import DOCUMENTS, FORMATS

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#&~$])")
_BLANK = re.compile(r"\n{3,}")
_BOUNDS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")  # of the Hub
_RANGES = {  # of the EU's template, in tokens
    10**9: "less than 1 billion tokens",
    10**13: "1 billion to 10 trillion tokens",
}
_LARGEST = "more than 10 trillion tokens"


def render_card(described: Metadata, origins: Sequence[Provenance]) -> bytes:
    """The dataset card."""
    return _render("card.md.jinja", described, origins, front_matter=_front_matter(described))


def render_training_content(described: Metadata, origins: Sequence[Provenance]) -> bytes:
    """The draft of the summary of training content."""
    tokens = described.count("stats.json", "total", "tokens")
    size = next((name for most, name in _RANGES.items() if tokens.number < most), _LARGEST)
    has_tokens = described.noun == "dataset"
    return _render(
        "training_content.md.jinja", described, origins, range=size if has_tokens else ""
    )


def _render(
    template: str, described: Metadata, origins: Sequence[Provenance], **values: Any
) -> bytes:
    page = (
        _environment()
        .get_template(template)
        .render(
            described=described,
            schema=described.schema,
            origins=origins,
            sizes=sizes(described),
            removed=removed(described),
            **values,
        )
    )
    return (_BLANK.sub("\n\n", page).strip() + "\n").encode()


def _front_matter(described: Metadata) -> str:
    """The YAML of the card, which the Hub and `datasets` read."""
    schema = described.schema
    values: dict[str, Any] = {
        "pretty_name": described.name,
        "license": "unknown",
        "size_categories": [_size_category(sizes(described)["documents"])],
        "tags": ["textmill", "croissant"],
    }
    if languages := Provenance(described).kept_languages:
        values["language"] = languages
    if described.noun == "corpus":
        path = f"{DOCUMENTS}-*.{FORMATS[schema['file_format']]}"
        files = [{"split": "train", "path": path}]
        values["configs"] = [{"config_name": "default", "data_files": files}]
    else:
        values["viewer"] = False
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _size_category(documents: Count) -> str:
    bounds = [1000 * 10**power for power in range(len(_BOUNDS))]
    at = sum(documents.number >= bound for bound in bounds)
    if not at:
        return f"n<{_BOUNDS[0]}"
    return f"{_BOUNDS[at - 1]}<n<{_BOUNDS[at]}" if at < len(_BOUNDS) else f"n>{_BOUNDS[-1]}"


def _number(count: Count) -> str:
    return f"{count.number:,}"


def _cell(text: str) -> str:
    """A text of the data as Markdown that shows it, in one line."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def _code(text: str) -> str:
    """A text of the data as code, in one line."""
    return f"`{visible(' '.join(text.split())).replace('`', chr(39)).replace('|', '¦')}`"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("textmill.pipelines.description", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown: `cell` and `code` escape
    )
    environment.filters |= {"cell": _cell, "code": _code, "number": _number}
    return environment
