"""The steps of build_shards without Beam: documents -> examples, examples -> a shard. Pure.

`route_examples` tokenizes and hashes documents, and sorts their examples by route. `RowMaker` makes
the rows of one shard of its examples, whose order changes no byte.

Legend: D documents, E examples, S segments, R packed rows, B rows of a chunk, L tokens of a row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import Documents, Reject, count_reasons
from textmill.pipelines.rows.evaluation import EvaluationLine, example_ids, example_name
from textmill.pipelines.rows.example_batch import (
    COPIES,
    MARK,
    ExampleBatch,
    KeptExamples,
    without_repeats,
)
from textmill.pipelines.rows.masking import GAMMA, mix
from textmill.pipelines.rows.packing import Packing, RowLayout, pack
from textmill.pipelines.rows.ragged import Ragged, join_slices, ranges
from textmill.pipelines.rows.routing import Routes, joint_digests
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.tasks.task import Columns, Examples, Finish, Segments, Task
from textmill.schemas.format.drops import mark_of, total_counts
from textmill.schemas.format.features import is_training, segment_name, token_dtype
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.row_documents import encode_row_documents
from textmill.schemas.format.statistics import ShardStatistics, by_length


@dataclass(frozen=True)
class RoutedExamples:
    """The examples of some documents, and those that gave none."""

    batches: list[tuple[int, ExampleBatch]]  # (route, batch); a route may occur more than once
    rejects: tuple[Reject, ...] = ()  # documents that the task rejected
    dropped: Mapping[str, int] = field(default_factory=dict)  # documents without an example


def route_examples(
    documents: Documents, task: Task, tokenizer: LoadedTokenizer, schema: Schema, split: str
) -> RoutedExamples:
    """Makes examples of documents and sorts them by route.

    Documents go to `split`; if it is "", a hash of each chooses its split.
    """
    count = len(documents.text)
    if not count:
        return RoutedExamples([])
    routes = Routes.of_schema(schema)
    digests = joint_digests([documents.columns[name] for name in task.identity()])
    routing = digests
    if task.routed_by() != task.identity():
        routing = joint_digests([documents.columns[name] for name in task.routed_by()])
    route_D = routes.of_split(routing, split) if split else routes.of(routing)
    made = task.examples(documents, tokenizer, schema, _is_trained(routes)[route_D])
    whole = _example_batch(_text_bytes(documents.columns, task), made, digests)
    has_ids_E = np.diff(made.ragged["ids"][1]) > 0
    route_E = np.where(has_ids_E, route_D[made.document_E], -1)
    gone = np.ones(count, bool)
    gone[made.document_E[has_ids_E]] = False
    gone[list(made.rejects)] = False
    if "evaluation" in made.ragged:
        whole = _clear(whole, "evaluation", _is_trained(routes)[route_E])
    whole, kept = without_repeats(whole)
    batches = _by_route(whole, route_E[kept])
    if split and not is_training(split):
        held_out = _held_out(digests, made)
        for other in filter(is_training, routes.splits):
            batches += _by_route(held_out, routes.of_split(routing, other))
    rejects = tuple(
        documents.reject(number, reason, detail)
        for number, (reason, detail) in sorted(made.rejects.items())
    )
    dropped = total_counts({"no_tokens": int(gone.sum())}, count_reasons(rejects))
    return RoutedExamples(batches, rejects, dropped)


def _is_trained(routes: Routes) -> np.ndarray:
    """Whether each route belongs to a training split: bool [routes]."""
    return np.array([is_training(name) for name in routes.split_names()])


def _text_bytes(columns: pa.RecordBatch, task: Task) -> np.ndarray:
    """UTF-8 bytes of each document's text roles: int64 [n].

    Ids do not count, since they may differ between equal documents.
    """
    total = np.zeros(len(columns), np.int64)
    for role in task.roles():
        if role.values.is_text or role.values.is_json:
            total += pc.binary_length(columns[role.name]).to_numpy()
    return total


def _example_batch(text_bytes: np.ndarray, made: Examples, digests: np.ndarray) -> ExampleBatch:
    scalars = dict(made.scalars)
    is_first = scalars["part"] == 0 if "part" in scalars else True
    scalars[MARK] = np.zeros(len(made.document_E), np.uint8)
    return ExampleBatch.of(
        digests[made.document_E],
        np.where(is_first, text_bytes[made.document_E], 0),
        made.ragged,
        scalars,
    )


def _by_route(whole: ExampleBatch, route_E: np.ndarray) -> list[tuple[int, ExampleBatch]]:
    """Slices of the examples by route, in its order; a route below 0 drops the example."""
    order = np.argsort(route_E, kind="stable")
    order = order[np.count_nonzero(route_E < 0) :]
    present, starts = np.unique(route_E[order], return_index=True)
    stops = np.append(starts, len(order))[1:]
    taken = whole.take(order)
    return [
        (int(route), taken.slice(int(start), int(stop)))
        for route, start, stop in zip(present, starts, stops, strict=True)
    ]


def _clear(whole: ExampleBatch, name: str, where_E: np.ndarray) -> ExampleBatch:
    """Empties a ragged column in some examples."""
    batch = whole.batch
    none = pa.scalar(b"", pa.large_binary())
    column = pc.if_else(pa.array(where_E), none, batch[name])
    return ExampleBatch(batch.set_column(batch.schema.get_field_index(name), name, column))


def _held_out(digests: np.ndarray, made: Examples) -> ExampleBatch:
    """Batches with each document's hash alone, in the columns of the examples."""
    zeros = np.zeros(len(digests), np.int64)
    ragged = {
        name: Ragged(values[:0], np.zeros(len(digests) + 1, np.int64))
        for name, (values, _) in made.ragged.items()
    }
    scalars = {name: zeros.astype(values.dtype) for name, values in made.scalars.items()}
    scalars[MARK] = np.full(len(digests), mark_of("held_out"), np.uint8)
    scalars[COPIES] = zeros.astype(np.uint32)
    return ExampleBatch.of(digests, zeros, ragged, scalars)


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of examples; `finish` is the task's own function."""

    schema: Schema
    task: Task
    finish: Finish

    def make(self, kept: KeptExamples, split: str) -> "Shard":
        """Packs all examples of one shard of a split."""
        segments = self.task.segments(kept.examples, self.schema)
        method = self.task.packing_of(split, self.schema)
        whole = self.schema.holds_documents
        longest = len(segments.stream) if whole else self.schema.max_length
        packing = pack(segments.offsets, longest, method, segments.room_S)
        copies = self.schema.copies_of(split)
        counts = self._count(kept.examples, segments, packing, copies)
        keys_R = self._keys(kept, segments, packing)
        ids_E = example_ids(kept.high_E)
        if is_training(split):
            ids_E = np.zeros_like(ids_E)
        counts = replace(counts, dropped=kept.dropped)
        return Shard(self, kept, segments, packing, keys_R, ids_E, copies, counts)

    def _count(
        self, examples: ExampleBatch, segments: Segments, packing: Packing, copies: int
    ) -> ShardStatistics:
        specials, truncated, repeated = (
            examples.scalar(name) for name in ("specials", "truncated", "repeated")
        )
        tokens_E = examples.tokens(token_dtype(self.schema.vocab_size))
        document_E = np.cumsum(examples.scalar("part") == 0) - 1
        lengths = np.bincount(document_E, tokens_E).astype(np.int64)
        in_pairs = sum(len(values) for values, _ in segments.pairs.values())
        classes = self.schema.parameters.get("classes", ())
        labels = np.bincount(examples.scalar("label"), minlength=len(classes)).tolist()
        return ShardStatistics(
            documents=len(lengths),
            text_bytes=int(examples.scalar("text_bytes").sum()),
            words=int(examples.scalar("words").sum()),
            tokens=int(tokens_E.sum()),
            specials_added=int(specials.sum()) + segments.specials_added,
            tokens_truncated=int(truncated.sum()),
            tokens_repeated=int(repeated.sum()),
            rows=packing.rows * copies,
            tokens_in_rows=(len(segments.stream) + in_pairs) * copies,
            segments=len(packing.row_S) * copies,
            **by_length(lengths),
            labels=dict(zip(classes, labels, strict=True)) if classes else {},
        )

    def _keys(self, kept: KeptExamples, segments: Segments, packing: Packing) -> np.ndarray:
        """A hash of the seed and of each row's first token's position in its example: uint64 [R].

        After deduplication no two rows begin at the same position of the same example.
        """
        high, low, part = kept.high_E, kept.low_E, kept.examples.scalar("part")
        first_of_example = np.searchsorted(segments.example_S, np.arange(len(high)))
        starts = segments.offsets[:-1][first_of_example]
        first_R = packing.bounds[:-1]
        begins_R = packing.start_S[first_R]
        example_R = segments.example_S[packing.segment_S[first_R]]
        position_R = (begins_R - starts[example_R]).astype(np.uint64)
        position_R |= part[example_R].astype(np.uint64) << np.uint64(32)
        seed = mix(np.array([self.schema.seed], np.uint64) * GAMMA)
        return mix(mix(high[example_R] ^ seed) ^ low[example_R] ^ mix(position_R))


@dataclass
class Shard:
    """The rows of one shard, a chunk at a time.

    Attributes:
      maker: the functions and settings that make the rows.
      kept: the examples.
      segments: their tokens, cut into segments.
      packing: which segments each row holds.
      keys_R: uint64 [R]; rows are written in the order of these hashes.
      example_ids_E: uint32 [E, 2], for the feature `example_id`; zeros in a training split.
      copies: number of masked copies of each row.
      counts: of documents, tokens and rows; weights are counted as `chunks` makes them.
    """

    maker: RowMaker
    kept: KeptExamples
    segments: Segments
    packing: Packing
    keys_R: np.ndarray
    example_ids_E: np.ndarray
    copies: int
    counts: ShardStatistics
    _weighed: dict[str, int] | None = None

    @property
    def statistics(self) -> ShardStatistics:
        """The shard's counts; those of weights are known after the last chunk."""
        if self._weighed is None and self.maker.schema.static_masking:
            raise RuntimeError("masks are not counted before the last of `chunks`")
        return replace(self.counts, **(self._weighed or {}))

    def streams(self) -> list[np.ndarray]:
        """The token ids of all rows, unmasked, without padding, one copy of each row."""
        return [self.segments.stream, *(values for values, _ in self.segments.pairs.values())]

    def row_documents(self) -> bytes:
        """The documents of each row's segments, see `schemas.format.row_documents`."""
        kept, packing, example_S = self.kept, self.packing, self.segments.example_S
        other_E = np.ones(len(kept.high_E), bool)
        other_E[1:] = (kept.high_E[1:] != kept.high_E[:-1]) | (kept.low_E[1:] != kept.low_E[:-1])
        document_E, first_E = np.cumsum(other_E) - 1, np.flatnonzero(other_E)
        begins_D = self.segments.offsets[np.searchsorted(example_S, first_E)]
        halves_D = np.stack([kept.high_E[first_E], kept.low_E[first_E]], axis=1)
        lengths = np.diff(packing.bounds)[self._order_R]
        at = ranges(packing.bounds[:-1][self._order_R], lengths)
        document_S = document_E[example_S[packing.segment_S[at]]]
        list_R = None
        if self.copies > 1:  # a row's list is the number of its first copy
            number_R = np.empty_like(self._order_R)
            number_R[self._order_R] = np.arange(len(number_R))
            list_R = number_R[self._order_of_copies[1] % len(number_R)]
        return encode_row_documents(
            halves_D.astype(">u8").view(np.uint8),
            np.append(0, np.cumsum(lengths)),
            document_S,
            packing.start_S[at] - begins_D[document_S],
            list_R,
        )

    def documents(self) -> Ragged:
        """Whole documents in the order of their keys, which shuffles them by content."""
        offsets, order = self.segments.offsets, self._order_R
        starts, lengths = offsets[order, None], np.diff(offsets)[order, None]
        return join_slices(self.segments.stream, starts, lengths)

    def chunks(self, head: bytes = b"") -> Iterator[np.ndarray]:
        """Encoded rows in the order of their keys: a shuffle by content.

        Args:
          head: bytes before each row.

        Yields:
          uint8 [B, len(head) + stride].
        """
        schema = self.maker.schema
        codec = schema.codec()
        keys, order = self._order_of_copies
        masked = trained = 0
        size = -(-codec.piece_rows // 2)  # small enough for the cache of a core
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            columns = self._rows(chosen % len(self.keys_R))
            columns = self.maker.finish(columns, keys[chosen])
            masked += int(columns["masked_weights"].sum()) if "masked_weights" in columns else 0
            trained += int(columns["loss_weights"].sum()) if self.maker.task.chooses_tokens else 0
            yield codec.encode(columns, head)
        self._weighed = {"masked": masked, "trained": trained}

    @cached_property
    def _order_R(self) -> np.ndarray:
        """The order of the rows of one copy: int64 [R]."""
        return np.argsort(self.keys_R, kind="stable")

    @cached_property
    def _order_of_copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys of the rows of all copies, one copy after another, and their order: [copies x R]."""
        if self.copies == 1:
            return self.keys_R, self._order_R
        copies = np.arange(self.copies, dtype=np.uint64) * GAMMA
        keys = (self.keys_R[None, :] + copies[:, None]).ravel()
        keys = np.where(np.arange(len(keys)) < len(self.keys_R), keys, mix(keys))
        return keys, np.argsort(keys, kind="stable")

    def _rows(self, rows_B: np.ndarray) -> Columns:
        """The columns of the rows with these numbers, packed."""
        schema, segments, packing = self.maker.schema, self.segments, self.packing
        span_B = packing.bounds[rows_B], packing.bounds[rows_B + 1]
        length, pad = schema.max_length, schema.special_ids.get("pad", 0)
        layout = RowLayout(packing.start_S, packing.length_S, span_B, length)
        columns = {
            "input_ids": layout.copy(segments.stream, pad),
            "segment_ids": layout.number(schema.feature("segment_ids").dtype),
        }
        for name, values in segments.beside.items():
            columns[name] = layout.copy(values, 0)
        first_B = packing.segment_S[span_B[0]]
        columns["example_id"] = self.example_ids_E[segments.example_S[first_B]]
        for name, values in segments.scalars.items():
            columns[name] = values[first_B]
        for name, (values, start_S, length_S) in self._placed_pairs.items():
            layout = RowLayout(start_S, length_S, span_B, schema.feature(name).shape[0])
            columns[name] = layout.copy(values, pad)
            name = segment_name(name)
            columns[name] = layout.number(schema.feature(name).dtype)
        return columns

    @cached_property
    def _placed_pairs(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Features with a length of their own: all values; start and length of each segment's."""
        segment_S = self.packing.segment_S
        return {
            name: (values, offsets[:-1][segment_S], np.diff(offsets)[segment_S])
            for name, (values, offsets) in self.segments.pairs.items()
        }


def evaluation_of(kept: KeptExamples) -> tuple[EvaluationLine, ...]:
    """The documents' lines of evaluation.jsonl, if the task writes any."""
    if "evaluation" not in kept.examples.batch.schema.names:
        return ()
    lines = zip(kept.high_E.tolist(), kept.examples.batch["evaluation"].to_pylist(), strict=True)
    return tuple((example_name(name), line) for name, line in lines if line)
