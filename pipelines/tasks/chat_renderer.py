"""Renders conversations from JSON by a chat template, and finds the text that is trained on."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from textmill.pipelines.tasks.chat_template import TemplateArguments
from textmill.pipelines.tasks.chat_turns import (
    BadConversation,
    Conversation,
    TurnEnds,
    find_turn_ends,
)
from textmill.schemas.tokenizers.chat_template import ChatTemplate, Message, Part

_REASONING = "reasoning_content", "thinking", "reasoning"  # names of one field, most common first
Span = tuple[int, int]


@dataclass(frozen=True)
class Renderer:
    """Renders conversations from JSON, and finds the text that is trained on.

    Attributes:
      template: the template that renders them.
      ends: how turns end; None if all text is trained on.
      last: whether only the last turn is trained on.
    """

    template: ChatTemplate
    ends: TurnEnds | None
    last: bool

    def render(self, messages_json: str, tools_json: str) -> tuple[str, list[Span]]:
        """The text of a conversation, and the spans of bytes that are trained on.

        Raises:
          BadConversation: it cannot be used.
        """
        conversation = Conversation(
            self.template, _parse_messages(messages_json, self.template), _parse_tools(tools_json)
        )
        text = conversation.text
        messages = conversation.messages
        own = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        for i in own[-1:] if self.last else own:
            if not _has_answer(messages[i]):
                raise BadConversation("empty_turn", f"messages[{i}] has no text and no tool calls")
        if self.ends is None:
            return text, [(0, len(text.encode()))]
        turns = conversation.turns(self.ends)[-1:] if self.last else conversation.turns(self.ends)
        turns = [
            turn
            for turn in turns
            if turn.start < turn.stop and messages[turn.message].get("weight") != 0
        ]
        if not turns:
            raise BadConversation("nothing_to_train_on", "the assistant has no text to train on")
        bounds = [0, *(place for turn in turns for place in (turn.start, turn.stop))]
        sizes = [len(text[a:b].encode()) for a, b in zip(bounds, bounds[1:], strict=False)]
        offsets = np.cumsum(sizes).tolist()
        return text, list(zip(offsets[::2], offsets[1::2], strict=True))


@lru_cache(maxsize=8)
def compiled_renderer(
    text: str,
    roles: tuple[tuple[str, str], ...],
    arguments: TemplateArguments,
    special: tuple[str, ...],
    train_on: str,
    end_of_turn: str,
) -> Renderer:
    """Compiles a template and finds out how its turns end, once per process."""
    template = ChatTemplate(text, "the template", dict(roles) | arguments.values)
    ends = None if train_on == "all" else find_turn_ends(template, special, end_of_turn)
    return Renderer(template, ends, train_on == "last")


def _parse(text: str, name: str) -> Any:
    """The value of a field, which may be a string of JSON."""
    value = json.loads(text) if text else None
    if not isinstance(value, str) or not value:
        return value
    try:
        value = json.loads(value)
        json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        raise BadConversation("lone_surrogate", f"{name}: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise BadConversation("not_messages", f"{name} is a text but not JSON: {error}") from error


def _parse_tools(text: str) -> list[Any] | None:
    tools = _parse(text, "tools")
    if tools and not isinstance(tools, list):
        raise BadConversation("not_messages", f"tools is a {type(tools).__name__}, not a list")
    return tools or None


def _parse_messages(text: str, template: ChatTemplate) -> list[Message]:
    """Parses messages; contents are texts, or lists of parts if the template takes them.

    Raises:
      BadConversation: they are not messages.
    """
    messages = _parse(text, "messages")
    if not isinstance(messages, list) or not messages:
        raise BadConversation("not_messages", "messages is not a list, or is empty")
    return [_parse_message(message, i, template) for i, message in enumerate(messages)]


def _parse_message(message: Any, i: int, template: ChatTemplate) -> Message:
    """A message as `transformers` passes it on: without nulls, reasoning under both its names."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadConversation("not_messages", f"messages[{i}] is not an object with a role")
    message = {name: value for name, value in message.items() if value is not None}
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
        message.setdefault("thinking", reasoning)
    if "content" not in message and not message.get("tool_calls"):
        detail = f"messages[{i}] has a null or no content, and no tool calls"
        raise BadConversation("no_content", detail)
    content = message.get("content", "")
    if isinstance(content, list):
        parts = [_parse_part(part, i) for part in content]
        joined = "".join(part["text"] for part in parts)
        message["content"] = parts if template.takes_parts(message["role"]) else joined
    elif not isinstance(content, str):
        raise BadConversation("not_messages", f"the content of messages[{i}] is not a text")
    return message


def _has_answer(message: Message) -> bool:
    """Whether an assistant's message would train more than its end of turn; one of weight 0 may."""
    content = message.get("content", "")
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    others = (message.get(name) for name in ("tool_calls", "reasoning_content"))
    return any(text.strip() for text in texts) or any(others) or message.get("weight") == 0


def _parse_part(part: Any, i: int) -> Part:
    """A part of a content: {"type": "text", "text": "a"}, for which "a" is short."""
    part = {"type": "text", "text": part} if isinstance(part, str) else part
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise BadConversation("not_text", f"messages[{i}] has a part of the type {kind!r}")
    return part
