"""Renders report.html: one self-contained page about a dataset or a corpus.

The page depends on the published content alone, so that the same data has the same page on every
runner. A section that fails becomes a notice on the page and a warning in the log: a figure must
not cost hours of work.
"""

import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2

from textmill.pipelines.inspection.report import content as set_content
from textmill.pipelines.inspection.report import sections
from textmill.pipelines.inspection.report.content import SetContent, compact
from textmill.schemas.commands.terminal import visible
from textmill.schemas.errors import as_flags

REPORT = "report.html"

Sections = tuple[tuple[str, str, Callable[[Any], Any]], ...]
_SECTIONS: Sections = (
    ("", "overview", sections.overview),
    ("Documents and tokens", "went", sections.trace_flows),
    ("First rows", "examples", sections.examples),
    ("Lengths", "lengths", sections.lengths),
    ("Packing", "packing", sections.packing),
    ("Masks, as measured", "masks", sections.masks),
    ("Classes", "classes", sections.classes),
    ("Tokens", "tokens", sections.tokens),
    ("Rejected and filtered documents", "rejects", sections.rejects),
    ("How to reproduce it", "made", sections.describe_making),
)
_log = logging.getLogger(__name__)


def report_html(content: SetContent) -> bytes:
    """Renders the page of a dataset, as UTF-8."""
    return render_page(_SECTIONS, content, content.schema.task)


def render_page(sections: Sections, content: Any, kind: str) -> bytes:
    """Renders all sections of a page, and the page around them, as UTF-8.

    Args:
      sections: title, macro of sections.html.jinja, and the function that computes its numbers
        (None: the page has no such section).
      content: argument of these functions; its `schema` has a fingerprint and a version.
      kind: the task, or "corpus".
    """
    macros = load_macros()
    written = []
    for heading, macro, make in sections:
        try:
            data = make(content)
            body = getattr(macros, macro)(data) if data is not None else None
        except Exception as error:
            _log.warning("report.html lacks its section %r", heading, exc_info=True)
            body = macros.failed(f"{type(error).__name__}: {error}")
        if body:
            written.append((heading, body))
    page = _environment().get_template("page.html.jinja")
    return page.render(sections=written, schema=content.schema, kind=kind).encode()


def load_macros() -> Any:
    """The macros of sections.html.jinja, each an attribute."""
    return _environment().get_template("sections.html.jinja").module


def report_file(make: Callable[[], bytes]) -> dict[str, bytes]:
    """The file's name and content; a warning if it cannot be rendered: rows are not at stake."""
    try:
        return {REPORT: make()}
    except Exception:
        _log.warning("there is no report.html, since it could not be made", exc_info=True)
        return {}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("textmill.pipelines.inspection.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_bytecode_cache(),
        trim_blocks=True,
        lstrip_blocks=True,
        # Input may hold control characters; jinja escapes markup only.
        finalize=lambda value: visible(as_flags(value)) if type(value) is str else value,
    )
    environment.filters.update(
        compact=compact, number=set_content.number, percent=set_content.percent
    )
    return environment


def _bytecode_cache() -> jinja2.BytecodeCache | None:
    """Caches compiled templates beside compiled Python, if writable: compiling takes 0.1 s."""
    folder = os.path.join(os.path.dirname(__file__), "__pycache__")
    return jinja2.FileSystemBytecodeCache(folder) if os.access(folder, os.W_OK) else None
