"""Segments of packed rows as other trainers want them: masks, lengths, or a row each. Pure.

    flat = variable_length(batch["segment_ids"])
    ids = flat.take(batch["input_ids"])                 # [T], without padding
    flash_attn_varlen_func(q, k, v, flat.cu_seqlens, flat.cu_seqlens, flat.max_seqlen, ...)

Legend: B rows, L tokens a row, T tokens of all segments, S segments of all rows.
"""

from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from schemas.features import positions_from_segments
from trainers.data.batches import Batch


class VariableLength(NamedTuple):
    """Segments one after another, as flash-attention's `varlen` functions take them.

    Of [[1, 1, 2, 0], [1, 1, 1, 1]]: places [0, 1, 2, 4, 5, 6, 7], cu_seqlens [0, 2, 3, 7],
    max_seqlen 4, position_ids [0, 1, 0, 0, 1, 2, 3].

    Attributes:
      places: int64 [T]; where each token lies in the batch, counted through its rows.
      cu_seqlens: int32 [S + 1]; where each segment starts among the T, and where the last ends.
      max_seqlen: tokens of the longest segment.
      position_ids: int32 [T]; they restart at 0 in each segment.
    """

    places: np.ndarray
    cu_seqlens: np.ndarray
    max_seqlen: int
    position_ids: np.ndarray

    def take(self, column_BxL: np.ndarray) -> np.ndarray:
        """The T values of a column such as input_ids, labels or loss_weights."""
        return column_BxL.reshape(-1, *column_BxL.shape[2:])[self.places]


def variable_length(segment_ids_BxL: np.ndarray) -> VariableLength:
    """Tells each segment's place; padding, segment 0, is left out."""
    rows, columns = np.nonzero(segment_ids_BxL)
    length = segment_ids_BxL.shape[1]
    positions = positions_from_segments(segment_ids_BxL)[rows, columns]
    bounds = np.append(np.flatnonzero(positions == 0), len(positions)).astype(np.int32)
    longest = int(np.diff(bounds).max()) if len(positions) else 0
    return VariableLength(rows * length + columns, bounds, longest, positions)


def attention_mask(segment_ids_BxL: np.ndarray, *, causal: bool) -> np.ndarray:
    """Whether the token at i attends to the one at j: bool [B, 1, L, L], the same for all heads.

    Padding is as a segment of its own, so that no softmax is over nothing.
    """
    same = segment_ids_BxL[:, None, :, None] == segment_ids_BxL[:, None, None, :]
    return np.tril(same) if causal else same


def segments_of(segment_ids_BxL: np.ndarray) -> List[Tuple[int, int]]:
    """Row and number of every segment: [[1, 1, 2], [1, 0, 0]] -> (0, 1), (0, 2), (1, 1)."""
    return [
        (row, int(segment))
        for row, segments in enumerate(segment_ids_BxL)
        for segment in np.unique(segments[segments > 0])
    ]


def one_segment_a_row(batch: Batch, segments: Optional[List[Tuple[int, int]]] = None) -> Batch:
    """Rows that hold one segment each, from the first place on, and padding of zeros.

    Args:
      batch: packed rows. An array [B, L] is a value a token, others are of a row; static masks,
        which name places of the packed row, are not for this.
      segments: row and number of each segment, as `segments_of` gives them all; None takes all.
    """
    segments = segments_of(batch["segment_ids"]) if segments is None else segments
    rows_S = np.array([row for row, _ in segments], np.int64)
    length = batch["segment_ids"].shape[1]
    here = batch["segment_ids"][rows_S] == np.array([n for _, n in segments]).reshape(-1, 1)
    order = np.argsort(~here, axis=1, kind="stable")  # the segment's places first
    inside = np.arange(length) < here.sum(axis=1, keepdims=True)
    alone: Batch = {}
    for name, column in batch.items():
        rows = column[rows_S]
        if rows.shape[1:] == (length,):
            rows = np.where(inside, np.take_along_axis(rows, order, axis=1), 0).astype(rows.dtype)
        alone[name] = rows
    alone["segment_ids"] = inside.astype(batch["segment_ids"].dtype)
    return alone
