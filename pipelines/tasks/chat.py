"""Conversations, rendered by a chat template; the assistant's turns have loss weights.

Legend: D documents, E examples (conversations that are not rejected), N tokens, S segments.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer_files import DEFAULT
from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged, cut, ranges
from textmill.pipelines.tasks.chat_renderer import Renderer, Span, compiled_renderer
from textmill.pipelines.tasks.chat_template import TemplateArguments, read_chat_template
from textmill.pipelines.tasks.chat_turns import BadConversation
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

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

_BEGINNING = 40  # characters of a rejected conversation that a message shows


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
        TemplateArguments,
        spelled(TemplateArguments, "ARGUMENTS", of_mapping=TemplateArguments),
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
        take_values(self)

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
    ) -> Renderer:
        """The renderer; the special ids are those of `ids`, in a worker the schema."""
        spelt = tokenizer.token_bytes
        roles = ((f"{role}_token", spelt[i].decode()) for role, i in ids.special_ids.items())
        special = (spelt[i].decode() for i in ids.all_special_ids)
        return compiled_renderer(
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
