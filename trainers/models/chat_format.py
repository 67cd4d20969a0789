"""The chat template of a model, and what ends a turn of the assistant. Python 3.8 syntax."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from textmill.schemas.errors import UsageError, either
from textmill.schemas.format.metadata import Schema
from textmill.schemas.tokenizers.chat_template import ChatTemplate, TemplateFailed, read_arguments
from textmill.schemas.tokenizers.tokenizer_json import (
    TOKENIZER_CONFIG,
    read_tokenizer_json,
    token_ids,
)
from textmill.schemas.typed_json import load_json, read_bounded
from textmill.trainers.models.set_tokenizer import TOKENIZER

TEMPLATE_FILE = "chat_template.jinja"  # takes precedence over tokenizer_config.json
_MESSAGE, _ANSWER = "bravo", "alpha"


@dataclass(frozen=True)
class ChatFormat:
    """A chat template with its variables."""

    template: str
    variables: Mapping[str, Any]  # bos_token and others, and --chat_template_arguments
    end_of_turn: str = ""  # a text; "" for the first special token after an answer

    def prompt(self, *turns: str) -> str:
        """The text before an answer; a UsageError if the template fails.

        Args:
          turns: messages of the user and answers in turn; the first and the last are the user's.
        """
        messages = [
            {"role": ("user", "assistant")[number % 2], "content": turn}
            for number, turn in enumerate(turns)
        ]
        try:
            return self._compiled().render(messages, prompt=True)
        except TemplateFailed as error:
            raise UsageError(
                f"{either('MESSAGE', 'message')}: the template fails: {error}"
            ) from error

    def end_ids(self, tokenizer: Any, special_ids: tuple[int, ...]) -> tuple[int, ...]:
        """The id that ends an answer; () if several tokens do, or the template fails."""
        text = self.end_of_turn
        if text:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            return tuple(ids) if len(ids) == 1 else ()
        messages = [
            {"role": "user", "content": _MESSAGE},
            {"role": "assistant", "content": _ANSWER},
        ]
        try:
            after = self._compiled().render(messages).rpartition(_ANSWER)[2]
        except TemplateFailed:
            return ()
        ids = tokenizer.encode(after, add_special_tokens=False).ids
        return tuple(number for number in ids if number in special_ids)[:1]

    def _compiled(self) -> ChatTemplate:
        return ChatTemplate(self.template, "the chat template", self.variables)


def format_of_schema(schema: Schema, tokenizer_json: bytes) -> ChatFormat:
    """The format of a dataset of --task=chat with this tokenizer."""
    parameters, tokens = (
        schema.parameters,
        token_ids(read_tokenizer_json(tokenizer_json, TOKENIZER)),
    )
    token_of = {number: token for token, number in tokens.items()}
    roles = {f"{role}_token": token_of[number] for role, number in schema.special_ids.items()}
    return ChatFormat(
        str(parameters["chat_template"]),
        {**roles, **_arguments(schema)},
        str(parameters.get("end_of_turn", "")),
    )


def _arguments(schema: Schema) -> dict[str, Any]:
    return read_arguments(str(schema.parameters.get("chat_template_arguments", "")))


def exported_template(schema: Schema) -> str:
    """A dataset's template, which sets --chat_template_arguments that are not defined.

    {"enable_thinking": false} -> "{% if enable_thinking is not defined %}{% set ..." before it.
    """
    # Python's literals are Jinja's.
    defaults = [
        f"{{%- if {name} is not defined %}}{{%- set {name} = {value!r} %}}{{%- endif %}}"
        for name, value in _arguments(schema).items()
    ]
    return "".join(defaults) + str(schema.parameters["chat_template"])


def format_of_directory(directory: Path) -> ChatFormat | None:
    """The format of published weights, from their tokenizer_config.json; None if it has none."""
    path = directory / TOKENIZER_CONFIG
    settings = load_json(str(path)) if path.is_file() else None
    settings = settings if isinstance(settings, dict) else {}
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, with names
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if (directory / TEMPLATE_FILE).is_file():
        template = read_bounded(str(directory / TEMPLATE_FILE)).decode("utf-8", "replace")
    if not isinstance(template, str):
        return None
    variables: dict[str, str] = {}
    for name, token in settings.items():
        content = token.get("content") if isinstance(token, dict) else token  # an AddedToken
        if name.endswith("_token") and isinstance(content, str):
            variables[name] = content
    return ChatFormat(template, variables)
