"""Causal language modelling: rows for decoders. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from pipelines.corpus.words import count_words
from pipelines.readers.documents import Documents
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import Ragged, cut, wrap
from pipelines.tasks.task import (
    Columns,
    Examples,
    Finish,
    RowProblem,
    Segments,
    TextTask,
    need_special,
    problems_where,
)
from schemas.errors import UsageError
from schemas.features import token_dtype
from schemas.metadata import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer


class EdgedText(TextTask):
    """A text with bos before it or eos after it: flags of each such task, in its own order."""

    bos: bool
    eos: bool

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """The specials that are asked for must be there."""
        for role in ("bos", "eos"):
            if getattr(self, role):
                need_special(tokenizer, role, instead=f"give --no_{role}")
        ids = tokenizer.special_ids
        around = {
            "prefix_ids": [ids["bos"]] if self.bos else [],
            "suffix_ids": [ids["eos"]] if self.eos else [],
        }
        return super().contract(tokenizer, max_length) | {"parameters": around}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Each document's ids, and its words: perplexity per word is of these."""
        made = super().examples(documents, tokenizer, schema, is_trained_D)
        return replace(made, scalars={"words": count_words(documents.text)})

    def wrapped(self, examples: ExampleBatch, schema: Schema) -> tuple[Ragged, int]:
        """Each document with what begins and ends it, and how many tokens that adds."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        prefix, suffix = schema.parameters["prefix_ids"], schema.parameters["suffix_ids"]
        stream = wrap(ids, offsets, prefix, suffix)
        return stream, len(stream.values) - len(ids)


@dataclass(frozen=True)
class Clm(EdgedText):
    """Rows for decoders, which predict each next token."""

    title: ClassVar[str] = "causal language modelling"
    trainer: ClassVar[str] = "flax_clm"

    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """best_fit: documents whole, rows full. concat: one stream, cut. none: a piece a row."""
    bos: bool = False
    """Begin each document with the tokenizer's bos token."""
    eos: bool = True
    """End each document with its eos token."""

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Rows must have a token to predict."""
        if max_length < 2:
            raise UsageError(f"--max_length={max_length}: a row of one token predicts none")
        return super().contract(tokenizer, max_length)

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """[5, 6, 7] in rows of 3 -> [5 6 7], [</s>]: only the last piece has the document's end."""
        (stream, offsets), added = self.wrapped(examples, schema)
        example_S = np.arange(len(offsets) - 1)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length)
        return Segments(stream, offsets, example_S, added)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Weighs every token but the first of its segment, before which there is nothing."""

        def weigh(columns: Columns, keys_B: np.ndarray) -> Columns:
            return columns | {"loss_weights": is_predicted(columns["segment_ids"])}

        return weigh

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Losses count from the second token of each segment on."""
        weights, due = columns["loss_weights"], is_predicted(columns["segment_ids"])
        yield from problems_where(
            weights != due,
            lambda row, i: (
                f"loss_weights[{i}] is {weights[row, i]}, not {due[row, i]}: every token counts "
                "but the first of its segment, and padding does not"
            ),
        )


def is_predicted(segment_ids: np.ndarray) -> np.ndarray:
    """1 for every token but the first of its segment: [1, 1, 1, 2, 2, 0] -> [0, 1, 1, 0, 1, 0]."""
    is_later = np.zeros(segment_ids.shape, np.uint8)
    is_later[:, 1:] = (segment_ids[:, 1:] == segment_ids[:, :-1]) & (segment_ids[:, 1:] > 0)
    return is_later
