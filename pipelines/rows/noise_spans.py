"""T5's spans of noise (Raffel et al., 2020), and what they make of text. Pure.

A piece of n tokens has round(n x density) noise tokens in round(noise / mean length) spans, at
least one of each; it begins with a token that stays and ends with noise. The inputs have a sentinel
in place of each span, the targets a sentinel before each span, and both end with EOS:

    Thank you for inviting me to your party last week
    Thank you <extra_id_0> me to your party <extra_id_1> </s>
    <extra_id_0> for inviting <extra_id_1> last week </s>

Legend: P pieces, N spans of all pieces.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.rows.draw_loops import partition_all
from pipelines.rows.masking import mix
from pipelines.rows.ragged import Ragged, join_slices, ranges

_STREAMS = np.array([0x5851F42D4C957F2D, 0x14057B7EF767814F], np.uint64)  # of gaps, of spans


@dataclass(frozen=True)
class Noise:
    """How much of a text is noise.

    Attributes:
      density: share of the tokens that is noise.
      mean_length: tokens of a span, on average.
    """

    density: float
    mean_length: float

    def counts(self, length_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Noise tokens, and spans of them, of pieces: int64 [P] each.

        A lone token stays: there would be nothing to guess it from.
        """
        noise_P = np.clip(np.rint(length_P * self.density), 1, np.maximum(length_P - 1, 1))
        spans_P = np.clip(np.rint(noise_P / self.mean_length), 1, np.maximum(length_P - noise_P, 1))
        several_P = length_P > 1
        return (noise_P * several_P).astype(np.int64), (spans_P * several_P).astype(np.int64)

    def row_lengths(self, length_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of inputs and of targets, with sentinels and EOS."""
        noise_P, spans_P = self.counts(length_P)
        return length_P - noise_P + spans_P + 1, noise_P + spans_P + 1

    def longest_piece(self, inputs: int, targets: int | None = None) -> int:
        """Tokens of the longest piece whose inputs and targets fit; 0 if none does.

        No shorter one has longer inputs or targets.
        """
        most = int(inputs / (1 - self.density)) + 2
        inputs_P, targets_P = self.row_lengths(np.arange(1, most + 1))
        fits_P = inputs_P <= inputs
        if targets is not None:
            fits_P &= targets_P <= targets
        return int(np.argmin(fits_P)) if not fits_P.all() else most

    def spans(self, offsets: np.ndarray, key_P: np.ndarray) -> "Spans":
        """Places spans in pieces.

        Args:
          offsets: int64 [P + 1], of the pieces in a stream of tokens.
          key_P: uint64: a piece's spans depend on its key and its length alone.
        """
        length_P = np.diff(offsets)
        noise_P, spans_P = self.counts(length_P)
        gap_N, length_N = np.zeros((2, int(spans_P.sum())), np.int64)
        partition_all(mix(key_P ^ _STREAMS[0]), length_P - noise_P, spans_P, gap_N)
        partition_all(mix(key_P ^ _STREAMS[1]), noise_P, spans_P, length_N)
        piece_N = np.repeat(np.arange(len(length_P)), spans_P)
        # Gaps and spans tile each piece that has any.
        tiled_P = length_P * (spans_P > 0)
        before_P = offsets[:-1] - (np.cumsum(tiled_P) - tiled_P)
        stop_N = np.cumsum(gap_N + length_N) + before_P[piece_N]
        return Spans(offsets, piece_N, stop_N - length_N, length_N)


@dataclass(frozen=True)
class Spans:
    """Where the noise of pieces is.

    Attributes:
      offsets: int64 [P + 1], of the pieces.
      piece_N: int64, ascending: the piece that each span is of.
      start_N: int64, its first token in the stream.
      length_N: int64, its tokens.
    """

    offsets: np.ndarray
    piece_N: np.ndarray
    start_N: np.ndarray
    length_N: np.ndarray

    def pairs(self, ids: np.ndarray, sentinel_ids: np.ndarray, eos: int) -> tuple[Ragged, Ragged]:
        """Inputs and targets of all pieces.

        Args:
          ids: the stream.
          sentinel_ids: for the first, second ... span of a piece.
          eos: what ends both.
        """
        pieces = len(self.offsets) - 1
        spans_P = np.bincount(self.piece_N, minlength=pieces)
        if spans_P.max(initial=0) > len(sentinel_ids):
            raise ValueError(f"{spans_P.max()} spans in a piece, {len(sentinel_ids)} sentinels")
        # Parts: each span with the text before it, and the text after a piece's last span.
        part_N = np.arange(len(self.piece_N)) + self.piece_N
        end_P = np.cumsum(spans_P + 1) - 1
        text, noise, special = np.zeros((3, end_P[-1] + 1 if pieces else 0, 2), np.int64)
        noise[part_N] = np.stack((self.start_N, self.length_N), axis=1)
        after = self.offsets[np.repeat(np.arange(1, pieces + 1), spans_P + 1)]
        after[part_N] = self.start_N + self.length_N
        text[:, 0] = np.append(self.offsets[:1], after[:-1])[: len(text)]
        after[part_N] = self.start_N
        text[:, 1] = after - text[:, 0]
        special[:, 1] = 1
        special[part_N, 0] = len(ids) + ranges(np.zeros_like(spans_P), spans_P)
        special[end_P, 0] = len(ids) + len(sentinel_ids)
        pool = np.concatenate((ids, sentinel_ids, np.array([eos], ids.dtype)))
        ends = np.append(0, end_P + 1)
        sides = ((text, special), (special, noise))
        joined = (join_slices(pool, *np.stack(side, axis=2).transpose(1, 0, 2)) for side in sides)
        inputs, targets = (Ragged(values, offsets[ends]) for values, offsets in joined)
        return inputs, targets
