"""Masked language modelling (Devlin et al., 2019): rows for encoders."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.masking import Masking
from textmill.pipelines.rows.ragged import cut, wrap
from textmill.pipelines.tasks.task import (
    Columns,
    Finish,
    Segments,
    TextTask,
    need_room,
    need_special,
)
from textmill.schemas.errors import FieldError, flag
from textmill.schemas.format.features import max_masked_slots, token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

_MOST_COPIES = 1000  # sorting as many of a shard of 100,000 rows takes 5 GB of memory


@dataclass(frozen=True)
class Mlm(TextTask):
    """Rows for encoders, which predict masked tokens."""

    title: ClassVar[str] = "masked language modelling"
    trainer: ClassVar[str] = "flax_mlm"
    wraps_segments: ClassVar[bool] = True

    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """How documents are packed into rows. best_fit: whole documents, little padding. concat: one
    stream, cut every --max_length tokens. none: one piece per row."""
    static_masking: bool = True
    """Write masks into the rows; otherwise the trainer masks rows as it reads them."""
    mask_rate: float = 0.15
    """Share of a row's ordinary tokens that is masked."""
    mask_unit: Literal["token", "word", "span"] = "token"
    """Unit that is masked as a whole. span: one to ten words, 3.8 on average, as in SpanBERT."""
    mask_copies: int = 1
    """Differently masked copies of each row of the training split, at most 1000."""

    def __post_init__(self) -> None:
        """Rejects invalid values."""
        super().__post_init__()
        if not 0 < self.mask_rate < 1:
            raise FieldError(
                "mask_rate",
                self.mask_rate,
                "must be between 0 and 1; turn static_masking off for rows without masks",
            )
        if not 1 <= self.mask_copies <= _MOST_COPIES:
            raise FieldError(
                "mask_copies",
                self.mask_copies,
                f"must be from 1 to {_MOST_COPIES:,} (RoBERTa used 10); without static_masking the "
                "trainer masks a row differently each time it reads it",
            )
        if self.mask_unit != "token" and not self.static_masking:
            raise FieldError(
                "mask_unit",
                self.mask_unit,
                "it has no effect without static_masking, since the trainer masks single tokens: "
                "use only one",
            )
        if self.mask_copies > 1 and not self.static_masking:
            reason = "without static_masking the copies would be equal rows: use only one"
            raise FieldError("mask_copies", self.mask_copies, reason)

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires a mask token for static masks, and room for text between special tokens."""
        if self.static_masking:
            need_special(
                tokenizer,
                "mask",
                use=f"{flag('task', 'mlm')} needs",
                instead=f"use {flag('static_masking', False)}",
            )
        prefix, suffix = list(tokenizer.prefix_ids), list(tokenizer.suffix_ids)
        need_room(max_length, len(prefix) + len(suffix))
        return {
            "packing": self.packing,
            "static_masking": self.static_masking,
            "mask_rate": self.mask_rate,
            "mask_unit": self.mask_unit,
            "mask_copies": self.mask_copies,
            "max_masked": max_masked_slots(max_length, self.mask_rate) * self.static_masking,
            "parameters": {"prefix_ids": prefix, "suffix_ids": suffix},
        }

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Cuts documents into pieces: [5, 6, 7], L = 4 -> [<s> 5 6 </s>], [<s> 7 </s>]."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        example_S = np.arange(len(offsets) - 1)
        prefix, suffix = schema.parameters["prefix_ids"], schema.parameters["suffix_ids"]
        added = len(prefix) + len(suffix)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length - added)
        stream, offsets = wrap(ids, offsets, prefix, suffix)
        return Segments(stream, offsets, example_S, len(example_S) * added)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Masks rows, if masks are static."""
        if not schema.static_masking:
            return super().finish(schema, tokenizer)
        is_special = np.zeros(schema.vocab_size, bool)
        is_special[list(schema.all_special_ids)] = True
        masking = Masking(
            rate=schema.mask_rate,
            slots=schema.max_masked,
            mask_id=schema.special_ids["mask"],
            is_special=is_special,
            is_word_start=None if schema.mask_unit == "token" else tokenizer.is_word_start,
            unit=schema.mask_unit,
        )

        def mask(columns: Columns, keys_B: np.ndarray) -> Columns:
            return columns | masking.apply(columns["input_ids"], columns["segment_ids"], keys_B)

        return mask
