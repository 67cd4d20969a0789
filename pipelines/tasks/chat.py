"""Chat: conversations through a chat template, trained on where the assistant speaks. Pure.

Legend: D documents, E examples (conversations that are not refused), N tokens, S segments.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from pipelines.encoding.tokenizer_files import DEFAULT
from pipelines.readers.documents import Documents, Role
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import Ragged, cut, ranges
from pipelines.tasks.chat_template import (
    ChatTemplate,
    Message,
    Part,
    read_arguments,
    read_chat_template,
)
from pipelines.tasks.chat_turns import Conversation, Refused, TurnEnds, find_turn_ends
from pipelines.tasks.clm import is_predicted
from pipelines.tasks.task import (
    Columns,
    Examples,
    Finish,
    RowProblem,
    Segments,
    Task,
    problems_where,
)
from pipelines.tasks.token_places import token_ends, token_span
from schemas.errors import UsageError
from schemas.features import token_dtype
from schemas.metadata import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer

_BEGINNING = 40  # characters of a conversation that is refused
_REASONING = "reasoning_content", "thinking", "reasoning"  # a field's names, the usual one first
Span = tuple[int, int]


@dataclass(frozen=True)
class Chat(Task):
    """Rows for decoders that answer: conversations, and where the assistant speaks."""

    title: ClassVar[str] = "conversations"
    trainer: ClassVar[str] = "flax_clm"
    chooses_tokens: ClassVar[bool] = True

    messages_field: str = "messages"
    """The field with the messages, a list of objects with role and content."""
    tools_field: str = "tools"
    """The field with the tools that the assistant may call, if documents have one."""
    chat_template: str = ""
    """The name of one of the tokenizer's chat templates, or a file with one (Jinja); default if not
    given."""
    chat_template_arguments: str = ""
    """Variables for the template, as JSON: {"enable_thinking": false}."""
    train_on: Literal["assistant", "last", "all"] = "assistant"
    """assistant: all that the assistant says, with its ends of turn. last: its last message. all:
    every token."""
    end_of_turn: str = ""
    """The text that ends what the assistant says; by default the first special token after it."""
    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """best_fit: conversations whole, rows full. concat: one stream, cut. none: a piece a row."""

    def roles(self) -> tuple[Role, ...]:
        """Messages, and perhaps tools."""
        return (
            Role("messages", "json", self.messages_field),
            Role("tools", "json", self.tools_field, optional=True),
        )

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """The template serves, and its end of turn is known."""
        if max_length < 2:
            raise UsageError(f"--max_length={max_length}: a row of one token predicts none")
        template, arguments = self._template_text(tokenizer), self.chat_template_arguments
        self._renderer(tokenizer, tokenizer, template)
        parameters = {
            "chat_template": template,  # as it is written: whoever uses the model can talk to it
            **({"chat_template_arguments": arguments} if arguments else {}),
            "train_on": self.train_on,
            "end_of_turn": self.end_of_turn,
            "prefix_ids": [],
            "suffix_ids": [],
        }
        return super().contract(tokenizer, max_length) | {"parameters": parameters}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Each conversation's ids, and which of them count."""
        renderer = self._renderer(tokenizer, schema, schema.parameters["chat_template"])
        texts, spans, document_E, rejects = [], [], [], {}
        columns = (documents.columns[name].to_pylist() for name in ("messages", "tools"))
        for number, (messages, tools) in enumerate(zip(*columns, strict=True)):
            try:
                text, spans_of_text = renderer.render(messages, tools)
            except Refused as refused:
                reason, detail = refused.args
                rejects[number] = reason, f"{messages[:_BEGINNING]!r}: {detail}"
                continue
            texts.append(text)
            spans.append(spans_of_text)
            document_E.append(number)
        rendered = pa.array(texts, pa.large_string())
        ids, guarded = tokenizer.encode(rendered)
        ragged = {
            "ids": ids.astype(token_dtype(schema.vocab_size)),
            "weights": Ragged(_weigh(rendered, ids, spans, tokenizer), ids.offsets),
        }
        return Examples(np.array(document_E, np.int64), ragged, {}, rejects, guarded)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Conversations whole, or in pieces where they are longer than a row."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        example_S = np.arange(len(offsets) - 1)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length)
        beside = {"loss_weights": examples.ragged("weights", "uint8").values}
        return Segments(ids, offsets, example_S, beside=beside)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Takes the weight of the first token of each segment, before which there is nothing."""

        def weigh(columns: Columns, keys_B: np.ndarray) -> Columns:
            weights = columns["loss_weights"] & is_predicted(columns["segment_ids"])
            return columns | {"loss_weights": weights}

        return weigh

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Losses count from the second token of each segment on, and of all where all count."""
        counts_all = schema.parameters["train_on"] == "all"
        weights, may = columns["loss_weights"], is_predicted(columns["segment_ids"])
        yield from problems_where(
            weights != may if counts_all else weights > may,
            lambda row, i: (
                f"loss_weights[{i}] is {weights[row, i]}, "
                + (
                    "not 1, where all tokens are trained on"
                    if may[row, i] and not weights[row, i]
                    else "not 0 or 1, and 0 in padding and where a segment begins"
                )
            ),
        )

    def _renderer(
        self, tokenizer: "LoadedTokenizer", ids: "LoadedTokenizer | Schema", template: str
    ) -> "_Renderer":
        """What renders; `ids` says which tokens are special, in a worker the schema."""
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
        have = f"; the tokenizer has {', '.join(sorted(templates))}" if templates else ""
        if self.chat_template:
            return read_chat_template(self.chat_template, have)
        raise UsageError(
            "the tokenizer has no chat template (chat_template in tokenizer_config.json, or "
            "chat_template.jinja beside tokenizer.json)"
            + (f" of the name {DEFAULT}{have}: name one" if have else ": give a file")
            + " with --chat_template"
        )


@dataclass(frozen=True)
class _Renderer:
    """JSON of conversations -> their text, and what of it is trained on.

    Attributes:
      template: that they go through.
      ends: how turns end; None where all text counts.
      last: whether only the last turn counts.
    """

    template: ChatTemplate
    ends: TurnEnds | None
    last: bool

    def render(self, messages: str, tools: str) -> tuple[str, list[Span]]:
        """A conversation's text, and bytes of it that count.

        Raises:
          Refused: says why.
        """
        conversation = Conversation(
            self.template, _parse_messages(messages, self.template), _parse_tools(tools)
        )
        text = conversation.text
        if self.ends is None:
            return text, [(0, len(text.encode()))]
        turns = conversation.turns(self.ends)[-1:] if self.last else conversation.turns(self.ends)
        turns = [
            turn
            for turn in turns
            if turn.start < turn.stop and conversation.messages[turn.message].get("weight") != 0
        ]
        if not turns:
            raise Refused("nothing_to_train_on", "the assistant says nothing that counts")
        bounds = [0, *(place for turn in turns for place in (turn.start, turn.stop))]
        sizes = [len(text[a:b].encode()) for a, b in zip(bounds, bounds[1:], strict=False)]
        places = np.cumsum(sizes).tolist()
        return text, list(zip(places[::2], places[1::2], strict=True))


@lru_cache(maxsize=8)
def _compiled(
    text: str,
    roles: tuple[tuple[str, str], ...],
    arguments: str,
    special: tuple[str, ...],
    train_on: str,
    end_of_turn: str,
) -> _Renderer:
    """Compiles a template and learns how its turns end, once a process."""
    template = ChatTemplate(text, "the template", dict(roles) | read_arguments(arguments))
    ends = None if train_on == "all" else find_turn_ends(template, special, end_of_turn)
    return _Renderer(template, ends, train_on == "last")


def _parse(text: str, name: str) -> Any:
    """A field's value, which may be JSON written as a text."""
    value = json.loads(text) if text else None
    try:
        return json.loads(value) if isinstance(value, str) and value else value
    except (ValueError, RecursionError) as error:
        raise Refused("not_messages", f"{name} is a text that is no JSON: {error}") from error


def _parse_tools(text: str) -> list[Any] | None:
    tools = _parse(text, "tools")
    if tools and not isinstance(tools, list):
        raise Refused("not_messages", f"tools is a {type(tools).__name__}, not a list")
    return tools or None


def _parse_messages(text: str, template: ChatTemplate) -> list[Message]:
    """Messages whose contents, where there are any, are texts, or parts if a template takes them.

    Raises:
      Refused: they are none.
    """
    messages = _parse(text, "messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("not_messages", "it is no list of messages, or an empty one")
    return [_parse_message(message, i, template) for i, message in enumerate(messages)]


def _parse_message(message: Any, i: int, template: ChatTemplate) -> Message:
    """A message as `transformers` hands it on: without nulls, reasoning by each of its names."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("not_messages", f"messages[{i}] is no object with a role")
    message = {name: value for name, value in message.items() if value is not None}
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
        message.setdefault("thinking", reasoning)
    content = message.get("content", "")
    if isinstance(content, list):
        parts = [_parse_part(part, i) for part in content]
        joined = "".join(part["text"] for part in parts)
        message["content"] = parts if template.takes_parts(message["role"]) else joined
    elif not isinstance(content, str):
        raise Refused("not_messages", f"the content of messages[{i}] is no text")
    return message


def _parse_part(part: Any, i: int) -> Part:
    """{"type": "text", "text": "a"}, or "a" -> {"type": "text", "text": "a"}."""
    part = {"type": "text", "text": part} if isinstance(part, str) else part
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise Refused("not_text", f"messages[{i}] has a part of the type {kind!r}")
    return part


def _weigh(
    texts: pa.LargeStringArray, ids: Ragged, spans: list[list[Span]], tokenizer: "LoadedTokenizer"
) -> np.ndarray:
    """uint8 [N]: 1 for each token that has a character in a span of its text."""
    example, bounds = np.repeat(np.arange(len(spans)), [*map(len, spans)]), []
    for of_text in spans:
        bounds += of_text
    start, stop = np.array(bounds, np.int64).reshape(-1, 2).T
    ends_N = token_ends(tokenizer, texts, ids)
    first, after = token_span(ends_N, ids.offsets, example, start, stop)
    weights_N = np.zeros(len(ids.values), np.uint8)
    weights_N[ranges(ids.offsets[:-1][example] + first, after - first)] = 1
    return weights_N
