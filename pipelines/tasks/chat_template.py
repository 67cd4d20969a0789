"""Reads chat templates from files, and the variables that users give them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.tokenizers.chat_template import ChatTemplate, read_arguments


@dataclass(frozen=True)
class TemplateArguments:
    """Variables for a chat template, made of their JSON or of a mapping.

    Attributes:
      text: their JSON, which the schema of a dataset records as it was given; "" without any.
      values: the variables.
    """

    text: str = ""
    values: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parses the text."""
        if isinstance(self.text, Mapping):
            try:
                text = json.dumps(dict(self.text), ensure_ascii=False)
            except (TypeError, ValueError) as error:
                raise FieldError("", self.text, f"it is not JSON: {error}") from error
            object.__setattr__(self, "text", text)
        object.__setattr__(self, "values", read_arguments(self.text))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Makes the variables of a text."""
        return cls(text)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return self.text


def read_chat_template(path: str, instead: str = "") -> str:
    """Reads a template from a file and checks it.

    Args:
      path: the path or URL of the file.
      instead: alternatives that an error lists.

    Raises:
      UsageError: the file cannot be read, or is not a valid template; the message names the line.
    """
    try:
        text = store.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{flag('chat_template', path)} cannot be read: {error}{instead}"
        ) from error
    ChatTemplate(text, path, {})
    return text
