"""Span corruption (T5; Raffel et al., 2020): rows for encoder-decoders.

A piece of n tokens has round(n x --noise_density) noise tokens in round(noise tokens / mean length)
spans, at least one of each; its first token is never noise, its last always. The inputs have a
sentinel in place of each span, the targets a sentinel before each span; both end with EOS:

    Thank you for inviting me to your party last week
    Thank you <extra_id_0> me to your party <extra_id_1> </s>
    <extra_id_0> for inviting <extra_id_1> last week </s>

Legend: D documents, E examples, P pieces of them (the segments), N spans of all pieces, B rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.masking import GAMMA, mix, share_of
from textmill.pipelines.rows.ragged import Ragged, cut, join_slices, ranges
from textmill.pipelines.runtime.compiled import entry, inner
from textmill.pipelines.tasks.task import (
    MOST_PROBLEMS,
    Columns,
    Examples,
    RowProblem,
    Segments,
    TextTask,
    need_special,
    problems_where,
)
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.features import MAX_TOKENS, token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

Numbered = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, segments, numbers of sentinels
_STREAM = np.uint64(0xD1342543DE82EF95)  # random numbers independent of those of row keys
_STREAMS = np.array([0x5851F42D4C957F2D, 0x14057B7EF767814F], np.uint64)  # for gaps, for spans


@dataclass(frozen=True)
class Noise:
    """The amount of noise.

    Attributes:
      share: share of the tokens that is noise.
      mean_length: tokens of a span, on average.
    """

    share: float
    mean_length: float

    def counts(self, length_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of noise tokens and of spans of each piece: int64 [P] each.

        A piece of one token has no noise, since there would be no context to predict it from.
        """
        noise_P = np.clip(np.rint(length_P * self.share), 1, np.maximum(length_P - 1, 1))
        spans_P = np.clip(np.rint(noise_P / self.mean_length), 1, np.maximum(length_P - noise_P, 1))
        several_P = length_P > 1
        return (noise_P * several_P).astype(np.int64), (spans_P * several_P).astype(np.int64)

    def row_lengths(self, length_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of the inputs and of the targets of each piece, with sentinels and EOS."""
        noise_P, spans_P = self.counts(length_P)
        return length_P - noise_P + spans_P + 1, noise_P + spans_P + 1

    def longest_piece(self, inputs: int, targets: int = MAX_TOKENS - 1) -> int:
        """Tokens of the longest piece whose inputs and targets fit; 0 if none does.

        Lengths of inputs and targets never decrease with the length of the piece.
        """
        most = int(min(inputs / (1 - self.share), targets / self.share)) + 2
        inputs_P, targets_P = self.row_lengths(np.arange(1, most + 1))
        fits_P = (inputs_P <= inputs) & (targets_P <= targets)
        return int(np.argmin(fits_P)) if not fits_P.all() else most

    def spans(self, offsets: np.ndarray, key_P: np.ndarray) -> "Spans":
        """Draws the spans of pieces.

        Args:
          offsets: int64 [P + 1], where pieces begin and end in a stream of tokens.
          key_P: uint64; a piece's spans depend only on its key and its length.
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
    """The spans of noise in pieces.

    Attributes:
      offsets: int64 [P + 1], where pieces begin and end in the stream.
      piece_N: int64, ascending: the piece of each span.
      start_N: int64, the first token of each span in the stream.
      length_N: int64, the tokens of each span.
    """

    offsets: np.ndarray
    piece_N: np.ndarray
    start_N: np.ndarray
    length_N: np.ndarray

    def pairs(self, ids: np.ndarray, sentinel_ids: np.ndarray, eos: int) -> tuple[Ragged, Ragged]:
        """Inputs and targets of all pieces.

        Args:
          ids: the stream.
          sentinel_ids: ids of the sentinels of a piece's first, second ... span.
          eos: the id that ends inputs and targets.
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


@inner
def _partition(key, items, lengths):
    """Cuts a number of items into `lengths.size` parts, none of them empty.

    All cuts are equally likely: they are drawn by selection sampling (Knuth, The Art of Computer
    Programming 2, 3.4.2, algorithm S).
    """
    cuts, begin = 0, 0
    for place in range(1, items):
        wanted = lengths.size - 1 - cuts
        if not wanted:
            break
        draw = mix(key + np.uint64(place) * GAMMA)
        if share_of(draw) * (items - place) < wanted:
            lengths[cuts] = place - begin
            cuts, begin = cuts + 1, place
    lengths[cuts] = items - begin


@entry()
def partition_all(keys, items, counts, lengths):
    """Fills `lengths`, int64 [N]: for each of P keys, `items` cut at random into `counts` parts."""
    at = 0
    for piece in range(keys.size):
        if counts[piece]:
            _partition(keys[piece], items[piece], lengths[at : at + counts[piece]])
            at += counts[piece]


@dataclass(frozen=True)
class SpanCorruption(TextTask):
    """Rows for encoder-decoders, which restore spans of noise."""

    title: ClassVar[str] = "span corruption"

    packing: Literal["best_fit", "none"] = "best_fit"
    """How pieces are packed into rows. best_fit: many a row, little padding. none: one per row."""
    noise_density: float = 0.15
    """Share of the tokens that is moved to the targets."""
    mean_span_length: float = 3.0
    """Average tokens of a span, which one sentinel replaces."""
    max_target_length: int = 0
    """Token positions of a row's targets. 0: the targets' length for inputs of --max_length."""
    sentinels: str = "<extra_id_{}>"
    """Pattern of the tokenizer's sentinels; {} is their number, from 0 on."""

    def __post_init__(self) -> None:
        """Rejects invalid values."""
        super().__post_init__()
        if not 0 < self.noise_density < 1:
            raise FieldError("noise_density", self.noise_density, "must be between 0 and 1")
        if not 1 <= self.mean_span_length < MAX_TOKENS:
            reason = f"must be from 1 to {MAX_TOKENS - 1}"
            raise FieldError("mean_span_length", self.mean_span_length, reason)
        if not 0 <= self.max_target_length < MAX_TOKENS:
            reason = f"must be from 0 to {MAX_TOKENS - 1}"
            raise FieldError("max_target_length", self.max_target_length, reason)
        if self.sentinels.count("{}") != 1:
            reason = "must have {} in place of the number, such as <extra_id_{}>"
            raise FieldError("sentinels", self.sentinels, reason)

    @property
    def _noise(self) -> Noise:
        return Noise(self.noise_density, self.mean_span_length)

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """Requires eos, a sentinel for every span, and room for a text."""
        need_special(tokenizer, "eos", use="ends inputs and targets")
        targets = self._target_length(max_length)
        if not targets or self._noise.longest_piece(max_length, targets) < 2:
            raise UsageError(
                f"{flag('max_length', max_length)} and "
                f"{flag('max_target_length', self.max_target_length)} leave no room for a text of "
                "two tokens, a sentinel and EOS: use larger values"
            )
        parameters = {
            "noise_density": self.noise_density,
            "mean_span_length": self.mean_span_length,
            "max_target_length": targets,
            "sentinel_ids": self._sentinel_ids(tokenizer, max_length),
        }
        return super().schema_fields(tokenizer, max_length) | {"parameters": parameters}

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Encodes each document; rejects those that contain a sentinel."""
        examples = super().examples(documents, tokenizer, schema, is_trained_D)
        ids = examples.ragged["ids"]
        is_sentinel = np.zeros(schema.vocab_size, bool)
        is_sentinel[schema.parameters["sentinel_ids"]] = True
        rejects = {}
        for place in np.flatnonzero(is_sentinel[ids.values]).tolist():
            document = int(np.searchsorted(ids.offsets, place, side="right")) - 1
            token = tokenizer.decode(ids.values[place : place + 1])
            detail = f"the text contains {token}, which is a sentinel"
            rejects.setdefault(document, ("sentinel_in_text", detail))
        if not rejects:
            return examples
        document_E = np.delete(examples.document_E, list(rejects))
        return replace(
            examples, document_E=document_E, ragged={"ids": ids.take(document_E)}, rejects=rejects
        )

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Cuts documents into pieces whose inputs and targets fit, and draws the spans of each.

        A piece's spans depend on the seed, the document's hash and the piece's number.
        """
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        length, target_length = schema.max_length, schema.parameters["max_target_length"]
        offsets, example_P = cut(offsets, self._noise.longest_piece(length, target_length))
        high, low = examples.digests()
        number_P = np.arange(len(example_P)) - np.searchsorted(example_P, example_P)
        seed = mix(np.array([schema.seed], np.uint64) ^ _STREAM)
        key_P = mix(mix(high[example_P] ^ seed) ^ low[example_P]) + number_P.astype(np.uint64)
        spans = self._noise.spans(offsets, mix(key_P))
        sentinel_ids = np.array(schema.parameters["sentinel_ids"], ids.dtype)
        inputs, targets = spans.pairs(ids, sentinel_ids, schema.special_ids["eos"])
        # A piece reserves the larger of its shares of inputs and targets, so that both fit.
        room_P = -(-targets.lengths * length // target_length)
        return Segments(
            *inputs,
            example_P,
            specials_added=2 * (len(spans.piece_N) + len(example_P)),
            pairs={"target_ids": targets},
            room_S=np.maximum(inputs.lengths, room_P),
        )

    def _target_length(self, max_length: int) -> int:
        """--max_target_length, or as T5 derives it: the targets of the longest piece that fits."""
        if self.max_target_length:
            return self.max_target_length
        longest = self._noise.longest_piece(max_length)
        return int(self._noise.row_lengths(np.array([longest]))[1][0]) if longest > 1 else 0

    def _sentinel_ids(self, tokenizer: "LoadedTokenizer", max_length: int) -> list[int]:
        """The ids of as many sentinels as the longest piece has spans.

        Raises:
          UsageError: the tokenizer has fewer sentinels.
        """
        longest = self._noise.longest_piece(max_length, self._target_length(max_length))
        needed = int(self._noise.counts(np.array([longest]))[1][0])
        ids: list[int] = []
        for number in range(needed):
            token = self.sentinels.replace("{}", str(number))
            token_id = tokenizer.special_id(token)
            if token_id is None:
                last = self.sentinels.replace("{}", str(needed - 1))
                raise UsageError(
                    f"rows of {flag('max_length', max_length)} have up to {needed} spans, but the "
                    f"tokenizer has no sentinel {token}: train one with "
                    f"{self.sentinels.replace('{}', '0')} to {last} in {flag('special_tokens')}, "
                    f"set {flag('sentinels')} to the pattern of its own, or reduce "
                    f"{flag('max_length')}"
                )
            ids.append(token_id)
        return ids

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks that targets and inputs have the same segments and sentinels, and end with EOS."""
        targets_B, inputs_B = (columns[_segments_of(of)].max(axis=1) for of in ("target", "input"))
        yield from problems_where(
            (targets_B != inputs_B)[:, None],
            lambda row, _: (
                f"the targets have segments 1 to {targets_B[row]}, the inputs 1 to {inputs_B[row]}"
            ),
        )
        sentinels = {}
        for name in ("input", "target"):
            ids, segment_ids = columns[f"{name}_ids"], columns[_segments_of(name)]
            yield from _ends(name, ids, segment_ids, schema)
            sentinels[name] = _sentinels(ids, segment_ids, schema)
            yield from _count_up(name, sentinels[name])
        yield from _equal_counts(sentinels["input"], sentinels["target"], columns)


def _segments_of(name: str) -> str:
    return "segment_ids" if name == "input" else "target_segment_ids"


def _ends(
    name: str, ids: np.ndarray, segment_ids: np.ndarray, schema: Schema
) -> Iterator[RowProblem]:
    ends = segment_ids != 0
    ends[:, :-1] &= segment_ids[:, :-1] != segment_ids[:, 1:]
    eos = schema.special_ids["eos"]
    yield from problems_where(
        ends & (ids != eos),
        lambda row, i: f"{name}_ids[{i}] is {ids[row, i]} at the end of a segment, not {eos}",
    )


def _sentinels(ids: np.ndarray, segment_ids: np.ndarray, schema: Schema) -> Numbered:
    number_of = np.full(schema.vocab_size, -1)
    sentinels = schema.parameters["sentinel_ids"]
    number_of[sentinels] = np.arange(len(sentinels))
    numbers = number_of[ids]
    rows, places = np.nonzero((numbers >= 0) & (segment_ids > 0))
    return rows, segment_ids[rows, places], numbers[rows, places]


def _count_up(name: str, sentinels: Numbered) -> Iterator[RowProblem]:
    rows, segments, numbers = sentinels
    expected = np.zeros_like(numbers)
    continues = (rows[1:] == rows[:-1]) & (segments[1:] == segments[:-1])
    expected[1:] = np.where(continues, numbers[:-1] + 1, 0)
    for i in np.flatnonzero(numbers != expected)[:MOST_PROBLEMS].tolist():
        yield RowProblem(
            int(rows[i]),
            f"segment {segments[i]} of {name}_ids has sentinel {numbers[i]}, not {expected[i]}",
        )


def _equal_counts(inputs: Numbered, targets: Numbered, columns: Columns) -> Iterator[RowProblem]:
    most = int(max(columns["segment_ids"].max(), columns["target_segment_ids"].max())) + 1
    counts = [
        np.bincount(rows * most + segments, minlength=len(columns["segment_ids"]) * most)
        for rows, segments, _ in (inputs, targets)
    ]
    for i in np.flatnonzero(counts[0] != counts[1])[:MOST_PROBLEMS].tolist():
        yield RowProblem(
            i // most,
            f"segment {i % most} has {counts[0][i]} sentinels in its inputs and {counts[1][i]} in "
            "its targets",
        )
