"""Renders reports: report.html, one self-contained page, and its head for a notebook.

A page depends on the published content alone, so that the same data has the same page on every
runner. A section that fails becomes a notice on the page and a warning in the log: a figure must
not cost hours of work.
"""

import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jinja2

from textmill.pipelines.inspection.report.numbers import compact, number, percent
from textmill.pipelines.inspection.report.parts import Section, Shown
from textmill.schemas.commands.terminal import visible
from textmill.schemas.errors import as_flags

REPORT = "report.html"
_log = logging.getLogger(__name__)


def render_page(sections: Sequence[Section], content: Any, kind: str) -> bytes:
    """Renders all sections of a page, and the page around them, as UTF-8.

    Args:
      sections: those that the page may have, in order.
      content: argument of the sections; its `schema` has a fingerprint and a version.
      kind: the task, or "corpus".
    """
    written = []
    for title, make in sections:
        try:
            parts = [render_part(part) for part in make(content)]
        except Exception as error:
            _log.warning(
                "report.html lacks its section %r; please report the error below",
                title,
                exc_info=True,
            )
            parts = [_macros().failed(f"{type(error).__name__}: {error}")]
        if parts:
            written.append((title, parts))
    page = _environment().get_template("page.html.jinja")
    return page.render(sections=written, schema=content.schema, kind=kind).encode()


def render_head(shown: Sequence[Shown]) -> str:
    """The head of a report and its picture, with their own styles, for a notebook."""
    return _environment().get_template("head.html.jinja").render(shown=shown)


def render_part(part: Shown | tuple[Shown, ...]) -> str:
    """A part as HTML that is safe to insert, by the macro of its class."""
    return getattr(_macros(), type(part).__name__.lower())(part)


def report_file(make: Callable[[], bytes]) -> dict[str, bytes]:
    """The file's name and content; a warning if it cannot be rendered: rows are not at stake."""
    try:
        return {REPORT: make()}
    except Exception:
        _log.warning(
            "there is no report.html, since it could not be made; please report the error below",
            exc_info=True,
        )
        return {}


def _macros() -> Any:
    """The macros of parts.html.jinja, each an attribute."""
    return _environment().get_template("parts.html.jinja").module


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("textmill.pipelines.inspection.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_bytecode_cache(),
        trim_blocks=True,
        lstrip_blocks=True,
        # Input may hold control characters; jinja escapes only markup.
        finalize=lambda value: visible(as_flags(value)) if type(value) is str else value,
    )
    environment.tests["bar"] = lambda cell: isinstance(cell, list)
    environment.filters.update(compact=compact, number=number, percent=percent, part=render_part)
    return environment


def _bytecode_cache() -> jinja2.BytecodeCache | None:
    """Caches compiled templates beside compiled Python, if writable: compiling takes 0.1 s."""
    folder = os.path.join(os.path.dirname(__file__), "__pycache__")
    return jinja2.FileSystemBytecodeCache(folder) if os.access(folder, os.W_OK) else None
