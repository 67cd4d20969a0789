"""Conversations, rendered by a chat template; the assistant's turns have loss weights.

Legend: D documents, E examples (conversations that are not rejected), N tokens, S segments.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer_files import DEFAULT
from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged, cut, ranges
from textmill.pipelines.tasks.chat_template import TemplateArguments, read_chat_template
from textmill.pipelines.tasks.chat_turns import (
    BadConversation,
    Conversation,
    TurnEnds,
    find_turn_ends,
)
from textmill.pipelines.tasks.clm import is_predicted, need_predicted
from textmill.pipelines.tasks.task import (
    Columns,
    Examples,
    Finish,
    RowProblem,
    Segments,
    Task,
    problems_where,
)
from textmill.pipelines.tasks.token_spans import token_ends, token_span
from textmill.schemas.commands.values import spelled, take_values
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema
from textmill.schemas.tokenizers.chat_template import ChatTemplate, Message, Part

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

_BEGINNING = 40  # characters of a rejected conversation that a message shows
_REASONING = "reasoning_content", "thinking", "reasoning"  # names of one field, most common first
Span = tuple[int, int]


@dataclass(frozen=True)
class Chat(Task):
    """Rows for decoders that chat, trained on the assistant's turns."""

    title: ClassVar[str] = "conversations"
    trainer: ClassVar[str] = "flax_clm"
    chooses_tokens: ClassVar[bool] = True

    messages_field: str = "messages"
    """The field with the messages, a list of objects with role and content."""
    tools_field: str = "tools"
    """The field with the tools that the assistant may call, if documents have one."""
    chat_template: str = ""
    """Name of one of the tokenizer's chat templates, or a file with one (Jinja). Default: the
    template named default."""
    chat_template_arguments: Annotated[
        TemplateArguments, spelled(TemplateArguments, "ARGUMENTS")
    ] = TemplateArguments()
    """Variables for the template, as JSON: {"enable_thinking": false}."""
    train_on: Literal["assistant", "last", "all"] = "assistant"
    """Tokens with loss weights. assistant: the assistant's messages with their ends of turn. last:
    only its last message. all: every token."""
    end_of_turn: str = ""
    """Text that ends an assistant's turn. Default: the first special token after its content."""
    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """How conversations are packed into rows. best_fit: whole conversations, little padding.
    concat: one stream, cut every --max_length tokens. none: one piece per row."""

    def __post_init__(self) -> None:
        """Refuses variables that are not JSON, and values of other types."""
        take_values(self, chat_template_arguments=TemplateArguments)

    def roles(self) -> tuple[Role, ...]:
        """Messages, and optional tools."""
        return (
            Role("messages", "json", self.messages_field),
            Role("tools", "json", self.tools_field, optional=True),
        )

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires a template that can be used, and whose end of turn is known."""
        need_predicted(max_length)
        template, arguments = self._template_text(tokenizer), self.chat_template_arguments.text
        self._renderer(tokenizer, tokenizer, template)
        parameters = {
            "chat_template": template,  # its text, so that users of the model have the same one
            **({"chat_template_arguments": arguments} if arguments else {}),
            "train_on": self.train_on,
            "end_of_turn": self.end_of_turn,
            "prefix_ids": [],
            "suffix_ids": [],
        }
        return super().schema_fields(tokenizer, max_length) | {"parameters": parameters}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Encodes each conversation, and finds the tokens with loss weights."""
        renderer = self._renderer(tokenizer, schema, schema.parameters["chat_template"])
        texts, spans, document_E, rejects = [], [], [], {}
        columns = (documents.columns[name].to_pylist() for name in ("messages", "tools"))
        for number, (messages, tools) in enumerate(zip(*columns, strict=True)):
            try:
                text, spans_of_text = renderer.render(messages, tools)
            except BadConversation as error:
                reason, detail = error.args
                rejects[number] = reason, f"{messages[:_BEGINNING]!r}: {detail}"
                continue
            except DataError as error:  # a template without bounds
                place = documents.reject(number, "", "").place
                raise DataError(f"{place}: {error.marked}") from error
            texts.append(text)
            spans.append(spans_of_text)
            document_E.append(number)
        rendered = pa.array(texts, pa.large_string())
        ids = tokenizer.encode(rendered)
        ragged = {
            "ids": ids.astype(token_dtype(schema.vocab_size)),
            "weights": Ragged(_weigh(rendered, ids, spans, tokenizer), ids.offsets),
        }
        return Examples(np.array(document_E, np.int64), ragged, {}, rejects)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Cuts conversations that are longer than a row into pieces."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        example_S = np.arange(len(offsets) - 1)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length)
        beside = {"loss_weights": examples.ragged("weights", "uint8").values}
        return Segments(ids, offsets, example_S, beside=beside)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Sets the loss weight of each segment's first token to 0: it cannot be predicted."""

        def weigh(columns: Columns, keys_B: np.ndarray) -> Columns:
            weights = columns["loss_weights"] & is_predicted(columns["segment_ids"])
            return columns | {"loss_weights": weights}

        return weigh

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks that loss weights are 0 at first tokens and padding, and for `all` 1 elsewhere."""
        counts_all = schema.parameters["train_on"] == "all"
        weights, may = columns["loss_weights"], is_predicted(columns["segment_ids"])
        yield from problems_where(
            weights != may if counts_all else weights > may,
            lambda row, i: (
                f"loss_weights[{i}] is {weights[row, i]}, "
                + (
                    "not 1, although train_on is all"
                    if may[row, i] and not weights[row, i]
                    else "not 0 or 1, and 0 at padding and where a segment begins"
                )
            ),
        )

    def _renderer(
        self, tokenizer: "LoadedTokenizer", ids: "LoadedTokenizer | Schema", template: str
    ) -> "_Renderer":
        """The renderer; the special ids are those of `ids`, in a worker the schema."""
        spelt = tokenizer.token_bytes
        roles = ((f"{role}_token", spelt[i].decode()) for role, i in ids.special_ids.items())
        special = (spelt[i].decode() for i in ids.all_special_ids)
        return _compiled(
            template,
            tuple(sorted(roles)),
            self.chat_template_arguments,
            tuple(special),
            self.train_on,
            self.end_of_turn,
        )

    def _template_text(self, tokenizer: "LoadedTokenizer") -> str:
        templates = tokenizer.chat_templates
        name = self.chat_template or DEFAULT
        if name in templates:
            return templates[name]
        names = ", ".join(sorted(templates))
        if self.chat_template:
            return read_chat_template(self.chat_template, names and f"; the tokenizer has {names}")
        raise UsageError(
            f"the tokenizer has the chat templates {names}, but none named {DEFAULT}: choose one "
            f"with {flag('chat_template')}"
            if templates
            else "the tokenizer has no chat template (chat_template in tokenizer_config.json, or "
            f"chat_template.jinja): pass a file with {flag('chat_template')}"
        )


@dataclass(frozen=True)
class _Renderer:
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
def _compiled(
    text: str,
    roles: tuple[tuple[str, str], ...],
    arguments: TemplateArguments,
    special: tuple[str, ...],
    train_on: str,
    end_of_turn: str,
) -> _Renderer:
    """Compiles a template and finds out how its turns end, once per process."""
    template = ChatTemplate(text, "the template", dict(roles) | arguments.values)
    ends = None if train_on == "all" else find_turn_ends(template, special, end_of_turn)
    return _Renderer(template, ends, train_on == "last")


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


def _weigh(
    texts: pa.LargeStringArray, ids: Ragged, spans: list[list[Span]], tokenizer: "LoadedTokenizer"
) -> np.ndarray:
    """Loss weights, uint8 [N]: 1 for each token with a byte in a span of its text."""
    example, bounds = np.repeat(np.arange(len(spans)), [*map(len, spans)]), []
    for of_text in spans:
        bounds += of_text
    start, stop = np.array(bounds, np.int64).reshape(-1, 2).T
    ends_N = token_ends(tokenizer, texts, ids)
    first, after = token_span(ends_N, ids.offsets, example, start, stop)
    weights_N = np.zeros(len(ids.values), np.uint8)
    weights_N[ranges(ids.offsets[:-1][example] + first, after - first)] = 1
    return weights_N
