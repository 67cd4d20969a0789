"""A task: fill-in-the-middle (Bavarian et al., 2022, arXiv:2207.14255), for decoders.

Goes to pipelines/tasks/fill_in_middle.py. A piece "A B C D E F" becomes "<pre> A B <suf> E F <mid>
C D </s>": the model reads both ends and writes the middle.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import cut, join_slices
from textmill.pipelines.tasks.task import Segments, TextTask
from textmill.schemas.errors import UsageError
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema


@dataclass(frozen=True)
class FillInMiddle(TextTask):
    """Rows for decoders that fill a gap."""

    title: ClassVar[str] = "fill-in-the-middle"
    trainer: ClassVar[str] = "flax_clm"

    gap: float = 0.33
    """Share of a piece that the model fills in."""

    def schema_fields(self, tokenizer: LoadedTokenizer, max_length: int) -> dict[str, Any]:
        """Records the ids of the four special tokens, which readers need, too."""
        ids = [tokenizer.special_id(token) for token in ("<pre>", "<suf>", "<mid>", "</s>")]
        if None in ids:
            raise UsageError("the tokenizer needs <pre>, <suf>, <mid> and </s>: --special_tokens")
        made = super().schema_fields(tokenizer, max_length)
        return made | {"parameters": made["parameters"] | {"gap_ids": ids}}

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Pieces of at most max_length - 4 tokens, with the gap in the middle."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        offsets, example_S = cut(offsets, schema.max_length - 4)
        start, length = offsets[:-1], np.diff(offsets)
        gap = (length * schema.parameters["gap"]).astype(int)
        before = (length - gap) // 2
        pool = np.append(ids, np.array(schema.parameters["gap_ids"], ids.dtype))
        pre, suf, mid, eos = np.full((4, len(start)), len(ids)) + np.arange(4)[:, None]
        one, after = np.ones_like(start), start + before + gap
        stream, offsets = join_slices(
            pool,
            np.stack([pre, start, suf, after, mid, start + before, eos], axis=1),
            np.stack([one, before, one, length - gap - before, one, gap, one], axis=1),
        )
        weights = np.ones(len(stream), np.uint8)
        weights[offsets[:-1]] = 0  # nothing predicts the first token of a segment
        added = 4 * len(start)
        return Segments(stream, offsets, example_S, added, beside={"loss_weights": weights})
