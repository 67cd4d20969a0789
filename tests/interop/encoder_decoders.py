"""Which of a model's three attentions leaks, for rows of span_corruption: T5 and its like.

No trainer has such a model; `verify_attention` does the work, once for each attention.

Legend: B rows, L inputs and T targets a row, D width of the encoder's states, C logits a target.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from textmill.schemas.format.features import positions_from_segments
from textmill.trainers.data.adapters import one_segment_per_row
from textmill.trainers.data.batches import Batch
from textmill.trainers.metrics.attention import (
    AttentionReport,
    AttentionRows,
    change_segments,
    report_on,
)

TARGET = "target_"  # begins the names of what the decoder reads


class _Inputs(AttentionRows):
    """Inputs change, and the encoder's states of them are compared."""

    def __init__(self, outputs_of: Callable[[Batch], Any], batch: Batch, seed: int):
        positions = positions_from_segments(np.asarray(batch["target_segment_ids"]))
        super().__init__(outputs_of, {**batch, "target_position_ids": positions}, seed)

    def alone(self, wanted: list[tuple[int, int]]) -> Batch:
        columns = self.batch.items()
        targets = {n.removeprefix(TARGET): c for n, c in columns if n.startswith(TARGET)}
        inputs = {n: c for n, c in columns if not n.startswith(TARGET)}
        alone = {TARGET + n: c for n, c in one_segment_per_row(targets, wanted).items()}
        return {**one_segment_per_row(inputs, wanted), **alone}


class _Across(_Inputs):
    """Inputs change, and the decoder's logits are compared."""

    logit_segments = "target_segment_ids"


class _Targets(_Across):
    """Targets change, and the decoder's logits are compared."""

    changed, changed_segments = "target_ids", "target_segment_ids"


@dataclass(frozen=True)
class EncoderDecoderReport:
    """Leaks by the attention that lets it through.

    Attributes:
      encoder: the encoder's states while inputs change.
      decoder: the logits while targets change, and of each segment alone.
      cross: the logits of a segment while inputs of others change that its own states do not see.
    """

    encoder: AttentionReport
    decoder: AttentionReport
    cross: AttentionReport

    @property
    def ok(self) -> bool:
        """Whether nothing moved that should not."""
        return self.encoder.ok and self.decoder.ok and self.cross.ok


def verify_encoder_decoder(
    outputs_of: Callable[[Batch], tuple[Any, Any]],
    batch: Batch,
    *,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> EncoderDecoderReport:
    """Tests what an encoder, a causal decoder and the attention between them let through.

    Args:
      outputs_of: the model without dropout. Gets rows with `input_ids`, `target_ids` (which it
        shifts by itself, within segments), their segments (`segment_ids`, `target_segment_ids`) and
        positions (`position_ids`, `target_position_ids`); gives the encoder's last states
        [B, L, D] and the decoder's logits [B, T, C].
      batch: rows of span_corruption as they are read.
      tolerance: how far states and logits may move; see `verify_attention`.
      seed: of the tokens that replace others.

    Raises:
      UsageError: as `verify_attention`.
    """
    encoder = report_on(
        _Inputs(lambda rows: outputs_of(rows)[0], batch, seed), tolerance, causal=False
    )
    logits_of = lambda rows: outputs_of(rows)[1]  # noqa: E731
    decoder = report_on(_Targets(logits_of, batch, seed), tolerance, causal=True)
    through_encoder = {(leak.changed, leak.moved) for leak in encoder.leaks}
    movements = tuple(
        movement
        for movement in change_segments(_Across(logits_of, batch, seed), decoder.limit)
        if (movement.changed, movement.moved) not in through_encoder
    )
    return EncoderDecoderReport(encoder, decoder, replace(decoder, movements=movements))
