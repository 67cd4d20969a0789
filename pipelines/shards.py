"""The documents of one shard -> its rows. Pure: any order of the documents gives the same bytes.

Legend: R packed rows, B rows of a chunk, L places a row, S segments.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipelines.exchange import SubBlock
from pipelines.masking import Masking, mix
from pipelines.packing import Packing, pack
from pipelines.tasks import Segments, mlm_segments
from schemas.features import token_dtype
from schemas.sidecar import Schema
from schemas.statistics import ShardStatistics, length_histogram

_CHUNK_ROWS = 1024  # small enough for the cache
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class RowMaker:
    """How documents become rows: the contract, and what of the tokenizer is not in it.

    Attributes:
      schema: the contract.
      prefix: ids before each segment.
      suffix: ids after it.
      is_word_start: bool [vocabulary] to mask whole words, None to mask tokens.
    """

    schema: Schema
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    is_word_start: np.ndarray | None

    def make(self, documents: SubBlock) -> "Shard":
        """Sorts the documents by hash, drops repeats, and packs them."""
        high, low = documents.digests()
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        high, low = high[fresh], low[fresh]
        kept = documents.take(order[fresh])
        ids, offsets = kept.ids(token_dtype(self.schema.vocab_size))
        concat = self.schema.packing == "concat"
        segments = mlm_segments(
            ids, offsets, self.prefix, self.suffix, None if concat else self.schema.max_length
        )
        packing = pack(segments.offsets, self.schema.max_length, self.schema.packing)
        copies = self.schema.mask_copies
        lengths = np.diff(offsets)
        statistics = ShardStatistics(
            documents=len(lengths),
            duplicates=len(order) - len(lengths),
            text_bytes=kept.text_bytes(),
            tokens=len(ids),
            specials_added=segments.specials_added,
            rows=packing.rows * copies,
            tokens_in_rows=len(segments.stream) * copies,
            segments=len(packing.row_S) * copies,
            length_histogram=length_histogram(lengths),
        )
        keys_R = self._keys(segments, packing, high, low)
        return Shard(self, segments.stream, packing, keys_R, statistics)

    def _keys(
        self, segments: Segments, packing: Packing, high: np.ndarray, low: np.ndarray
    ) -> np.ndarray:
        """uint64 [R]: a hash of the seed and of what each row begins with.

        After deduplication no two rows begin with the same place of the same document.
        """
        first_of_document = np.searchsorted(segments.document_S, np.arange(len(high)))
        document_starts = segments.offsets[:-1][first_of_document]
        begins_R = packing.start_S[packing.first_segments]
        document_R = np.searchsorted(document_starts, begins_R, side="right") - 1
        place_R = (begins_R - document_starts[document_R]).astype(np.uint64)
        seed = mix(np.array([self.schema.seed], np.uint64) * _GAMMA)
        return mix(mix(high[document_R] ^ seed) ^ low[document_R] ^ mix(place_R))

    def masking(self) -> Masking | None:
        """How rows are masked; None without static masking."""
        schema = self.schema
        if not schema.static_masking:
            return None
        is_special = np.zeros(schema.vocab_size, bool)
        is_special[list(schema.all_special_ids)] = True
        return Masking(
            rate=schema.mask_rate,
            slots=schema.max_masked,
            mask_id=schema.special_ids["mask"],
            is_special=is_special,
            is_word_start=self.is_word_start,
        )


@dataclass
class Shard:
    """The rows of one shard, made a chunk at a time.

    Attributes:
      statistics: its counts; `masked` is whole once all chunks were made.
    """

    maker: RowMaker
    stream: np.ndarray
    packing: Packing
    keys_R: np.ndarray
    statistics: ShardStatistics

    def chunks(self) -> Iterator[np.ndarray]:
        """Encoded rows uint8 [B, stride], in the order of their keys: a shuffle by content."""
        schema = self.maker.schema
        codec, masking = schema.codec(), self.maker.masking()
        copies = np.arange(schema.mask_copies, dtype=np.uint64) * _GAMMA
        keys = (self.keys_R[None, :] + copies[:, None]).ravel()
        keys = np.where(np.arange(len(keys)) < len(self.keys_R), keys, mix(keys))
        order = np.argsort(keys, kind="stable")
        masked = 0
        for start in range(0, len(order), _CHUNK_ROWS):
            chosen = order[start : start + _CHUNK_ROWS]
            columns = self._rows(chosen % max(len(self.keys_R), 1))
            if masking:
                columns |= masking.apply(columns["input_ids"], columns["segment_ids"], keys[chosen])
                masked += int(columns["masked_weights"].sum())
            yield codec.encode(columns)
        self.statistics = replace(self.statistics, masked=masked)

    def _rows(self, rows_B: np.ndarray) -> dict[str, np.ndarray]:
        """input_ids and segment_ids [B, L] of the rows of these numbers."""
        schema, packing = self.maker.schema, self.packing
        first_R = packing.first_segments
        count_R = np.diff(np.append(first_R, len(packing.row_S)))
        segment_S = ranges(first_R[rows_B], count_R[rows_B])
        in_chunk_S = np.repeat(np.arange(len(rows_B)), count_R[rows_B])
        number_S = segment_S - first_R[packing.row_S[segment_S]] + 1
        length_S = packing.length_S[segment_S]
        used_B = np.bincount(in_chunk_S, length_S, len(rows_B))
        filled_BxL = np.arange(schema.max_length) < used_B[:, None]
        input_ids = np.full(filled_BxL.shape, schema.special_ids.get("pad", 0), self.stream.dtype)
        input_ids[filled_BxL] = self.stream[ranges(packing.start_S[segment_S], length_S)]
        segment_ids = np.zeros(filled_BxL.shape, np.uint16)
        segment_ids[filled_BxL] = np.repeat(number_S, length_S)
        return {"input_ids": input_ids, "segment_ids": segment_ids}


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[5, 9], [2, 3] -> [5, 6, 9, 10, 11]."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
