"""Segments of packed rows for other trainers: as masks, as lengths, or as a row each. Pure.

    flat = variable_length(batch["segment_ids"])
    ids = flat.take(batch["input_ids"])                 # [T], without padding
    flash_attn_varlen_func(q, k, v, flat.cu_seqlens, flat.cu_seqlens, flat.max_seqlen, ...)

Legend: B rows, L tokens a row, T tokens of all segments, S segments of all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from textmill.schemas.format.features import positions_from_segments
from textmill.trainers.data.batches import Batch


class VariableLength(NamedTuple):
    """Concatenated segments, as flash-attention's `varlen` functions take them.

    [[1, 1, 2, 0], [1, 1, 1, 1]] gives indices [0, 1, 2, 4, 5, 6, 7], cu_seqlens [0, 2, 3, 7],
    max_seqlen 4, position_ids [0, 1, 0, 0, 1, 2, 3].

    Attributes:
      indices: int64 [T]; of each token in the flattened batch.
      cu_seqlens: int32 [S + 1]; start of each segment among the T tokens, and T.
      max_seqlen: tokens of the longest segment.
      position_ids: int32 [T]; they restart at 0 in each segment.
    """

    indices: np.ndarray
    cu_seqlens: np.ndarray
    max_seqlen: int
    position_ids: np.ndarray

    def take(self, column_BxL: np.ndarray) -> np.ndarray:
        """The T values of a column such as input_ids, labels or loss_weights."""
        return column_BxL.reshape(-1, *column_BxL.shape[2:])[self.indices]


def variable_length(segment_ids_BxL: np.ndarray) -> VariableLength:
    """Lengths and positions of all segments without padding, which is segment 0."""
    rows, columns = np.nonzero(segment_ids_BxL)
    length = segment_ids_BxL.shape[1]
    positions = positions_from_segments(segment_ids_BxL)[rows, columns]
    bounds = np.append(np.flatnonzero(positions == 0), len(positions)).astype(np.int32)
    longest = int(np.diff(bounds).max()) if len(positions) else 0
    return VariableLength(rows * length + columns, bounds, longest, positions)


def attention_mask(segment_ids_BxL: np.ndarray, *, causal: bool) -> np.ndarray:
    """Whether token i attends to token j: bool [B, 1, L, L], the same for all heads.

    Padding attends to padding, so that every softmax has an input.
    """
    same = segment_ids_BxL[:, None, :, None] == segment_ids_BxL[:, None, None, :]
    return np.tril(same) if causal else same


def segments_of(segment_ids_BxL: np.ndarray) -> list[tuple[int, int]]:
    """Row and number of every segment: [[1, 1, 2], [1, 0, 0]] -> (0, 1), (0, 2), (1, 1)."""
    return [
        (row, int(segment))
        for row, segments in enumerate(segment_ids_BxL)
        for segment in np.unique(segments[segments > 0])
    ]


def one_segment_per_row(batch: Batch, segments: list[tuple[int, int]] | None = None) -> Batch:
    """Rows of one segment each, which starts at position 0 and is padded with zeros.

    Args:
      batch: packed rows without static masks, whose positions would be wrong. Arrays [B, L] have a
        value for each token, others one for each row.
      segments: row and number of each segment, as `segments_of` returns them; None takes all.
    """
    segments = segments_of(batch["segment_ids"]) if segments is None else segments
    rows_S = np.array([row for row, _ in segments], np.int64)
    length = batch["segment_ids"].shape[1]
    here = batch["segment_ids"][rows_S] == np.array([n for _, n in segments]).reshape(-1, 1)
    order = np.argsort(~here, axis=1, kind="stable")  # the segment's tokens first
    inside = np.arange(length) < here.sum(axis=1, keepdims=True)
    alone: Batch = {}
    for name, column in batch.items():
        rows = column[rows_S]
        if rows.shape[1:] == (length,):
            rows = np.where(inside, np.take_along_axis(rows, order, axis=1), 0).astype(rows.dtype)
        alone[name] = rows
    alone["segment_ids"] = inside.astype(batch["segment_ids"].dtype)
    return alone
