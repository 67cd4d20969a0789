"""Renders messages to one text by chat templates, in Jinja as `transformers` runs it.

Templates have neither a clock nor random numbers, so the same messages always give the same text.
A template may test whether `strftime_now` is defined, but fails if it calls it.

Templates come from untrusted sources and may loop forever, so a process with limited time and
memory compiles and renders them.
"""

import functools
import json
import marshal
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipelines import store
from schemas.errors import DataError, UsageError
from schemas.limited_process import LimitedProcess, LimitExceeded

Message = dict[str, Any]
Part = dict[str, Any]  # {"type": "text", "text": ...}
_GENERATION_MARKS = "_generation_marks"  # a variable of the template
_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", _GENERATION_MARKS}
_MOST_BYTES = 1 << 30  # of address space, for the interpreter and the rendering
_CHILD = LimitedProcess(f"from {__name__} import answer", size=_MOST_BYTES)
_DONE, _FAILED, _COSTLY = "done", "failed", "costly"  # results of a request
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


class TemplateFailed(Exception):
    """A template rejected a conversation, or failed on it."""


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
        begin, end = context.get(_GENERATION_MARKS, ("", ""))
        return f"{begin}{caller()}{end}"


class ChatTemplate:
    """A compiled template.

    Attributes:
      marks_generation: whether it uses `{% generation %}`.
    """

    def __init__(self, text: str, place: str, variables: Mapping[str, Any]):
        """Compiles a template.

        Args:
          text: the template, in Jinja.
          place: the name of the template in errors.
          variables: variables such as bos_token, and those of --chat_template_arguments.

        Raises:
          UsageError: it is no valid template; the message has the line.
          DataError: compiling takes too much time or memory.
        """
        self._text = text
        kind, value, line = _ask(text, None)
        if kind != _DONE:
            place = f"{place}, line {line}" if line else place
            raise UsageError(f"--chat_template: {place}: {value}; it must be valid Jinja")
        self.marks_generation = value
        self._variables = variables
        self._takes_parts: dict[str, bool] = {}

    def render(
        self,
        messages: Sequence[Message],
        tools: list[Any] | None = None,
        *,
        prompt: bool = False,
        generation_marks: tuple[str, str] = ("", ""),
    ) -> str:
        """Renders messages.

        Args:
          messages: the messages of a conversation.
          tools: the tools that the assistant may call.
          prompt: whether to end with the prompt for the assistant's next message.
          generation_marks: put around the text that `{% generation %}` encloses.

        Raises:
          TemplateFailed: the template failed; the message is its own if it has one.
          DataError: rendering takes too much time or memory.
        """
        variables = {
            **self._variables,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": prompt,
            _GENERATION_MARKS: generation_marks,
        }
        kind, value, _ = _ask(self._text, variables)
        if kind != _DONE:
            raise TemplateFailed(value)
        return value

    def takes_parts(self, role: str) -> bool:
        """Whether the template renders a content of one part like its text, for this role."""
        if role not in self._takes_parts:
            self._takes_parts[role] = self._try_parts(role)
        return self._takes_parts[role]

    def _try_parts(self, role: str) -> bool:
        usual = [{"role": "user", "content": "alpha"}, {"role": "assistant", "content": "bravo"}]
        own = [{"role": role, "content": "charlie"}]
        for messages in (usual, own + usual, usual + own):
            of_parts = [
                {**m, "content": [{"type": "text", "text": m["content"]}]}
                if m["role"] == role
                else m
                for m in messages
            ]
            if of_parts != messages:
                try:
                    return self.render(messages) == self.render(of_parts)
                except TemplateFailed:
                    continue
        return False


def _ask(text: str, variables: dict[str, Any] | None) -> tuple[str, Any, int | None]:
    """Runs `answer` in the child process.

    Raises:
      DataError: it takes too much time or memory.
    """
    try:
        result = marshal.loads(_CHILD.ask(marshal.dumps((text, variables))))
    except LimitExceeded as error:
        result = _COSTLY, str(error), None
    if result[0] == _COSTLY:
        raise DataError(
            f"--chat_template: rendering one conversation {result[1]}; use a template without "
            "such loops and widths, or reject long conversations by a lower --max_document_bytes"
        )
    return result


def answer(request: bytes) -> bytes:
    """Compiles a template, and renders it; runs in the child process.

    Args:
      request: marshal of (text, variables), or of (text, None) to compile only.

    Returns:
      marshal of (_DONE, rendering, None), or without variables (_DONE, whether it uses
      `{% generation %}`, None); of (_FAILED, reason, line or None); or of (_COSTLY, reason, None).
    """
    text, variables = marshal.loads(request)
    try:
        template, value = _compile(text)
        if variables is not None:
            value = template.render(variables)
            value.encode()  # a lone surrogate of the template or its arguments is a failure
        return marshal.dumps((_DONE, value, None))
    except MemoryError:
        return marshal.dumps((_COSTLY, f"takes more than {_MOST_BYTES >> 20:,} MiB", None))
    except _FAILURES as error:
        is_plain = variables is None and isinstance(error, TemplateError)
        reason = str(error) if is_plain else f"{type(error).__name__}: {error}"
        return marshal.dumps((_FAILED, reason, getattr(error, "lineno", None)))


@functools.lru_cache(maxsize=16)
def _compile(text: str) -> tuple[Template, bool]:
    jinja = _environment()
    calls = jinja.parse(text).find_all(nodes.ExtensionAttribute)
    return jinja.from_string(text), any(call.name == "_put_marks" for call in calls)


def read_arguments(text: str) -> dict[str, Any]:
    """Parses --chat_template_arguments, variables of a template.

    Raises:
      UsageError: it is no JSON object, or has a reserved name.
    """
    try:
        variables = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--chat_template_arguments={text} is not JSON: {error}") from error
    if not isinstance(variables, dict) or _RESERVED & variables.keys():
        raise UsageError(
            f"--chat_template_arguments={text}: must be a JSON object of variables, such as "
            f'{{"enable_thinking": false}}, without {", ".join(sorted(_RESERVED))}'
        )
    return variables


def read_chat_template(path: str, instead: str = "") -> str:
    """Reads a template from a file and checks it.

    Args:
      path: the path or URL of the file.
      instead: alternatives that an error lists.

    Raises:
      UsageError: the file cannot be read, or is no valid template; the message has the line.
    """
    try:
        text = store.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--chat_template={path} cannot be read: {error}{instead}") from error
    ChatTemplate(text, path, {})
    return text


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
