"""Causal language modelling: rows for decoders. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import cut
from pipelines.rows.row_problem import RowProblem, problems_where
from pipelines.tasks.edged_text import EdgedText
from pipelines.tasks.task import Columns, Finish, Segments
from schemas.errors import UsageError
from schemas.sidecar import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer


@dataclass(frozen=True)
class Clm(EdgedText):
    """Rows for decoders, which predict each next token."""

    title: ClassVar[str] = "causal language modelling"
    trainer: ClassVar[str] = "flax_clm"

    text_field: str = "text"
    """The field with the text, where inputs have fields."""
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
        return _loss_problems(columns)


def is_predicted(segment_ids: np.ndarray) -> np.ndarray:
    """1 for every token but the first of its segment: [1, 1, 1, 2, 2, 0] -> [0, 1, 1, 0, 1, 0]."""
    is_later = np.zeros(segment_ids.shape, np.uint8)
    is_later[:, 1:] = (segment_ids[:, 1:] == segment_ids[:, :-1]) & (segment_ids[:, 1:] > 0)
    return is_later


def _loss_problems(columns: Columns) -> Iterator[RowProblem]:
    """Every token but the first of its segment counts; padding does not."""
    weights, due = columns["loss_weights"], is_predicted(columns["segment_ids"])
    yield from problems_where(
        weights != due,
        lambda row, i: (
            f"loss_weights[{i}] is {weights[row, i]}, not {due[row, i]}: every token counts but "
            "the first of its segment, and padding does not"
        ),
    )
