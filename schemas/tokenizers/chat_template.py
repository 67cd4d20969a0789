"""Renders messages to one text by chat templates, in Jinja as `transformers` runs it.

Templates have neither a clock nor random numbers, so the same messages always give the same text.
A template may test whether `strftime_now` is defined, but fails if it calls it.

Templates come from untrusted sources and may loop forever, so a process with limited time and
memory compiles and renders them. Python 3.8 syntax.
"""

from __future__ import annotations

import json
import marshal
from typing import Any, Dict, Mapping, Sequence

from textmill.schemas.errors import DataError, FieldError, UsageError, flag
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded

Message = Dict[str, Any]
Part = Dict[str, Any]  # {"type": "text", "text": ...}
GENERATION_MARKS = "_generation_marks"  # a variable of the template
_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", GENERATION_MARKS}
MOST_BYTES = 1 << 30  # of address space, for the interpreter and the rendering
_CHILD = LimitedProcess(
    "from textmill.schemas.tokenizers.chat_rendering import answer", size=MOST_BYTES
)
DONE, FAILED, COSTLY = "done", "failed", "costly"  # results of a request


class TemplateFailed(Exception):
    """A template rejected a conversation, or failed on it."""


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
          UsageError: it is not a valid template; the message names the line.
          DataError: compiling takes too much time or memory.
        """
        self._text = text
        kind, value, line = _ask(text, None)
        if kind != DONE:
            place = f"{place}, line {line}" if line else place
            raise UsageError(f"{flag('chat_template')}: {place}: {value}; it must be valid Jinja")
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
            GENERATION_MARKS: generation_marks,
        }
        kind, value, _ = _ask(self._text, variables)
        if kind != DONE:
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
        result = COSTLY, str(error), None
    if result[0] == COSTLY:
        raise DataError(
            f"{flag('chat_template')}: rendering one conversation {result[1]}; use a template "
            "without such loops and widths, or reject long conversations by a lower "
            f"{flag('max_document_bytes')}"
        )
    return result


def read_arguments(text: str) -> dict[str, Any]:
    """Parses the JSON of variables of a template.

    Raises:
      FieldError: it is not a JSON object, or has a reserved name.
    """
    try:
        variables = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON: {error}"
        raise FieldError("chat_template_arguments", text, reason) from error
    if not isinstance(variables, dict) or _RESERVED & variables.keys():
        reason = (
            'must be a JSON object of variables, such as {"enable_thinking": false}, without '
            + ", ".join(sorted(_RESERVED))
        )
        raise FieldError("chat_template_arguments", text, reason)
    return variables
