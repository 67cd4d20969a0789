"""Chat templates: how messages become one text, in Jinja as `transformers` runs it.

A template sees no clock and draws no numbers: the same messages are the same text on every day. One
that asks for `strftime_now` where it is defined goes on without; one that insists fails.

Templates come from untrusted sources, and loop as long as they like: they are compiled and rendered
in a process whose time and memory are limited.
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

from pipelines.storage import store
from schemas.errors import DataError, UsageError
from schemas.untrusted.limited_process import LimitedProcess, LimitExceeded

Message = dict[str, Any]
Part = dict[str, Any]  # {"type": "text", "text": ...}
_GENERATION_MARKS = "_generation_marks"  # the variable that holds them
_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", _GENERATION_MARKS}
_MOST_BYTES = 1 << 30  # of address space, for the interpreter and what a template makes
_CHILD = LimitedProcess(f"from {__name__} import answer", size=_MOST_BYTES)
_DONE, _FAILED, _COSTLY = "done", "failed", "costly"  # what comes of a request
# What a template may raise: its own errors, and Python's for what messages do not have.
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
    """A template refused a conversation, or could not go on with it."""


class _Generation(Extension):
    """`{% generation %}`, with which templates mark what the model itself says."""

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
    """A template that is ready to render.

    Attributes:
      marks_generation: whether `{% generation %}` is in it.
    """

    def __init__(self, text: str, place: str, variables: Mapping[str, Any]):
        """Compiles it.

        Args:
          text: Jinja.
          place: names it in errors.
          variables: such as bos_token, and those of --chat_template_arguments.

        Raises:
          UsageError: it is no template; says in which line.
          DataError: to compile it takes too long or too much memory.
        """
        self._text = text
        kind, value, line = _ask(text, None)
        if kind != _DONE:
            place = f"{place}, line {line}" if line else place
            raise UsageError(f"--chat_template: {place}: {value}; it has to be Jinja")
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
        """The text of messages.

        Args:
          messages: of a conversation.
          tools: that the assistant may call.
          prompt: whether to end with what the assistant begins to speak after.
          generation_marks: put around what `{% generation %}` encloses.

        Raises:
          TemplateFailed: says why, in the template's words if it has any.
          DataError: it takes too long or too much memory.
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
        """Whether a content of this role may be a list of parts: one part is as its text."""
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
    """What `answer` says of a template, in the child.

    Raises:
      DataError: it takes too long or too much memory.
    """
    try:
        found = marshal.loads(_CHILD.ask(marshal.dumps((text, variables))))
    except LimitExceeded as error:
        found = _COSTLY, str(error), None
    if found[0] == _COSTLY:
        raise DataError(
            f"--chat_template: to render one conversation {found[1]}; give a template without "
            "such loops and widths"
        )
    return found


def answer(request: bytes) -> bytes:
    """Compiles a template, or renders it: what the child does.

    Args:
      request: marshal of (text, variables), of (text, None) to compile it alone.

    Returns:
      marshal of (_DONE, whether `{% generation %}` is in it or what was rendered, None); or
      (_FAILED, why, in which line if it is known); or (_COSTLY, why, None).
    """
    text, variables = marshal.loads(request)
    try:
        template, marks_generation = _compile(text)
        made = marks_generation if variables is None else template.render(variables)
        return marshal.dumps((_DONE, made, None))
    except MemoryError:
        return marshal.dumps((_COSTLY, f"takes more than {_MOST_BYTES >> 20:,} MiB", None))
    except _FAILURES as error:
        is_said = variables is None and isinstance(error, TemplateError)
        why = str(error) if is_said else f"{type(error).__name__}: {error}"
        return marshal.dumps((_FAILED, why, getattr(error, "lineno", None)))


@functools.lru_cache(maxsize=16)
def _compile(text: str) -> tuple[Template, bool]:
    jinja = _environment()
    calls = jinja.parse(text).find_all(nodes.ExtensionAttribute)
    return jinja.from_string(text), any(call.name == "_put_marks" for call in calls)


def read_arguments(text: str) -> dict[str, Any]:
    """Variables of a template from --chat_template_arguments.

    Raises:
      UsageError: it is no object of JSON, or names what is given anyway.
    """
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--chat_template_arguments={text} is no JSON: {error}") from error
    if not isinstance(found, dict) or _RESERVED & found.keys():
        raise UsageError(
            f"--chat_template_arguments={text}: give an object of variables, such as "
            f'{{"enable_thinking": false}}, none of them {", ".join(sorted(_RESERVED))}'
        )
    return found


def read_chat_template(path: str, instead: str = "") -> str:
    """The template of a file.

    Args:
      path: of the file.
      instead: for an error, what else there is.

    Raises:
      UsageError: there is no such file, or it is no template; says in which line.
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
    """JSON as it is; Jinja's own filter escapes what HTML has a meaning for."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
