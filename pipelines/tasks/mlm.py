"""Masked language modelling (Devlin et al., 2019): rows for encoders. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.masking import Masking
from pipelines.rows.ragged import cut, wrap
from pipelines.tasks.task import Columns, Finish, Segments, TextTask, need_room, need_special
from schemas.errors import UsageError
from schemas.features import max_masked_slots, token_dtype
from schemas.metadata import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer

_MOST_COPIES = 1000  # of a shard of 100,000 rows they take 5 GB while they are put in order


@dataclass(frozen=True)
class Mlm(TextTask):
    """Rows for encoders, which predict masked tokens."""

    title: ClassVar[str] = "masked language modelling"
    trainer: ClassVar[str] = "flax_mlm"
    wraps_segments: ClassVar[bool] = True

    packing: Literal["best_fit", "concat", "none"] = "best_fit"
    """best_fit: documents whole, rows full. concat: one stream, cut. none: a piece a row."""
    static_masking: bool = True
    """Write masks into the rows. Without, trainers mask as they go."""
    mask_rate: float = 0.15
    """Share of a row's ordinary tokens that is masked."""
    mask_unit: Literal["token", "word", "span"] = "token"
    """What is masked or left as a whole. span: one to ten words, 3.8 on average, as SpanBERT."""
    mask_copies: int = 1
    """Differently masked copies of every row, at most 1000."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        if not 0 < self.mask_rate < 1:
            raise UsageError(
                f"--mask_rate={self.mask_rate}: a share between 0 and 1; for rows without masks "
                "give --no_static_masking"
            )
        if not 1 <= self.mask_copies <= _MOST_COPIES:
            raise UsageError(
                f"--mask_copies={self.mask_copies}: from 1 to {_MOST_COPIES:,} (RoBERTa took 10); "
                "with --no_static_masking trainers mask every row anew, as often as they read it"
            )
        if self.mask_copies > 1 and not self.static_masking:
            raise UsageError("--mask_copies makes equal rows without static masking: drop one")

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Static masks need a mask token, and rows a place for text between the specials."""
        if self.static_masking:
            need_special(
                tokenizer, "mask", use="--task=mlm needs", instead="give --no_static_masking"
            )
        prefix, suffix = list(tokenizer.prefix_ids), list(tokenizer.suffix_ids)
        need_room(max_length, len(prefix) + len(suffix))
        return {
            "packing": self.packing,
            "static_masking": self.static_masking,
            "mask_rate": self.mask_rate,
            "mask_unit": self.mask_unit if self.static_masking else "token",
            "mask_copies": self.mask_copies,
            "max_masked": max_masked_slots(max_length, self.mask_rate) * self.static_masking,
            "parameters": {"prefix_ids": prefix, "suffix_ids": suffix},
        }

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """[5, 6, 7] in rows of 4 -> [<s> 5 6 </s>], [<s> 7 </s>]."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        example_S = np.arange(len(offsets) - 1)
        prefix, suffix = schema.parameters["prefix_ids"], schema.parameters["suffix_ids"]
        added = len(prefix) + len(suffix)
        if schema.packing != "concat":
            offsets, example_S = cut(offsets, schema.max_length - added)
        stream, offsets = wrap(ids, offsets, prefix, suffix)
        return Segments(stream, offsets, example_S, len(example_S) * added)

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Makes what writes masks into the rows, if masks are static."""
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
