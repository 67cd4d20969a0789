"""Causal language modelling: rows for decoders."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged, cut
from textmill.pipelines.rows.text_bytes import count_words
from textmill.pipelines.tasks.task import (
    Columns,
    Examples,
    Finish,
    RowProblem,
    Segments,
    TextTask,
    need_special,
    problems_where,
)
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer


class EdgedText(TextTask):
    """A text with bos before it or eos after it; each subclass declares the two flags itself."""

    bos: bool
    eos: bool

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires the special tokens that the flags select."""
        for role in ("bos", "eos"):
            if getattr(self, role):
                need_special(tokenizer, role, instead=f"use {flag(role, False)}")
        ids = tokenizer.special_ids
        around = {
            "prefix_ids": [ids["bos"]] if self.bos else [],
            "suffix_ids": [ids["eos"]] if self.eos else [],
        }
        return super().schema_fields(tokenizer, max_length) | {"parameters": around}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Encodes each document and counts its words, for perplexity per word."""
        examples = super().examples(documents, tokenizer, schema, is_trained_D)
        return replace(examples, scalars={"words": count_words(documents.text)})

    def wrapped(self, examples: ExampleBatch, schema: Schema) -> tuple[Ragged, int]:
        """Documents with bos and eos added, and the number of added tokens."""
        prefix, suffix = schema.parameters["prefix_ids"], schema.parameters["suffix_ids"]
        stream = examples.ragged("ids", token_dtype(schema.vocab_size), prefix, suffix)
        return stream, (len(prefix) + len(suffix)) * len(examples)


@dataclass(frozen=True)
class Clm(EdgedText):
    """Rows for decoders, which predict the next token."""

    title: ClassVar[str] = "causal language modelling"
    trainer: ClassVar[str] = "flax_clm"

    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """How documents are packed into rows. best_fit: whole documents, little padding. concat: one
    stream, cut every --max_length tokens. none: one piece per row."""
    bos: bool = False
    """Begin each document with the tokenizer's bos token."""
    eos: bool = True
    """End each document with the tokenizer's eos token."""

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires rows with a token to predict."""
        need_predicted(max_length)
        return super().schema_fields(tokenizer, max_length)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Cuts documents into pieces, the last with eos: [5, 6, 7], L = 3 -> [5 6 7], [</s>]."""
        (stream, offsets), added = self.wrapped(examples, schema)
        example_S = np.arange(len(offsets) - 1)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length)
        return Segments(stream, offsets, example_S, added)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Gives every token loss weight 1, except the first of its segment."""

        def weigh(columns: Columns, keys_B: np.ndarray) -> Columns:
            return columns | {"loss_weights": is_predicted(columns["segment_ids"])}

        return weigh

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks that loss weights are 1 from the second token of each segment on."""
        weights, expected = columns["loss_weights"], is_predicted(columns["segment_ids"])
        yield from problems_where(
            weights != expected,
            lambda row, i: (
                f"loss_weights[{i}] is {weights[row, i]}, not {expected[row, i]}: it is 1 for all "
                "tokens except the first of a segment, and 0 at padding"
            ),
        )


def need_predicted(max_length: int) -> None:
    """Requires rows with a token to predict.

    Raises:
      UsageError: `max_length` is below 2.
    """
    if max_length < 2:
        raise UsageError(
            f"{flag('max_length', max_length)}: must be at least 2, to predict a token"
        )


def is_predicted(segment_ids: np.ndarray) -> np.ndarray:
    """1 for each token except a segment's first: [1, 1, 1, 2, 2, 0] -> [0, 1, 1, 0, 1, 0]."""
    flat = segment_ids.reshape(-1)  # numpy compares flat arrays by vector instructions
    is_later = flat > 0
    is_later[1:] &= flat[1:] == flat[:-1]
    weights = is_later.view(np.uint8).reshape(segment_ids.shape)
    weights[:, 0] = 0
    return weights
