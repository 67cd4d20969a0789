"""Compiles and renders chat templates with Jinja, in a child process.

`schemas.tokenizers.chat_template` starts it. Python 3.8 syntax.
"""

from __future__ import annotations

import functools
import json
import marshal
from typing import Any

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from textmill.schemas.tokenizers.chat_template import (
    COSTLY,
    DONE,
    FAILED,
    GENERATION_MARKS,
    MOST_BYTES,
)

# Errors that a template may raise: its own, and Python's for fields that messages lack.
_FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Generation(Extension):
    """`{% generation %}`, with which templates mark the text that a model generates."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_put_marks")
        return nodes.CallBlock(call, [], [], inside, lineno=line)

    @pass_context
    def _put_marks(self, context: Context, caller: Macro) -> str:
        begin, end = context.get(GENERATION_MARKS, ("", ""))
        return f"{begin}{caller()}{end}"


def answer(request: bytes) -> bytes:
    """Compiles a template, and renders it; runs in the child process.

    Args:
      request: marshal of (text, variables), or of (text, None) to only compile it.

    Returns:
      marshal of (DONE, rendering, None), or without variables (DONE, whether it uses
      `{% generation %}`, None); of (FAILED, reason, line or None); or of (COSTLY, reason, None).
    """
    text, variables = marshal.loads(request)
    try:
        template, value = _compile(text)
        if variables is not None:
            value = template.render(variables)
            value.encode()  # a lone surrogate of the template or its arguments is a failure
        return marshal.dumps((DONE, value, None))
    except MemoryError:
        return marshal.dumps((COSTLY, f"takes more than {MOST_BYTES >> 20:,} MiB", None))
    except _FAILURES as error:
        is_plain = variables is None and isinstance(error, TemplateError)
        reason = str(error) if is_plain else f"{type(error).__name__}: {error}"
        return marshal.dumps((FAILED, reason, getattr(error, "lineno", None)))


@functools.lru_cache(maxsize=16)
def _compile(text: str) -> tuple[Template, bool]:
    jinja = _environment()
    calls = jinja.parse(text).find_all(nodes.ExtensionAttribute)
    return jinja.from_string(text), any(call.name == "_put_marks" for call in calls)


def _environment() -> ImmutableSandboxedEnvironment:
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    jinja.filters["tojson"] = _to_json
    jinja.globals["raise_exception"] = _raise_exception
    del jinja.filters["random"], jinja.globals["lipsum"]
    return jinja


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; Jinja's own filter escapes characters for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
