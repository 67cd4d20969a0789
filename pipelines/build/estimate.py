"""What a run of build_shards would do, estimated from a sample of its inputs.

The sample goes through the very functions of the run: read, filtered, tokenized, packed, masked and
written (to a temporary folder). Places are spread evenly over the bytes of the inputs, so the same
inputs give the same sample, and small inputs are taken whole.
"""

import itertools
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.build.make_shard import RowMaker
from pipelines.build.route_examples import route_examples
from pipelines.build.stage_shard import stage_shard
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.filters.filter_documents import filter_documents
from pipelines.filters.filters import Filters
from pipelines.readers.documents import Documents, join_documents
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.source import Source
from pipelines.readers.sources import Block, read_block
from pipelines.readers.stored import is_compressed
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.repeats import keep
from pipelines.rows.routing import Routes
from pipelines.tasks.task import Task, is_training
from schemas.drops import total_counts
from schemas.errors import DataError
from schemas.sidecar import Schema
from schemas.statistics import ShardStatistics

_PLACE_BYTES = 256 << 10
_PLACES = 24
_WHOLE_BYTES = 8 << 20  # inputs up to this are read whole
_FEW_PLACES = 4
_PATIENCE = 4.0  # seconds of reading, after which no new place is looked at


@dataclass(frozen=True)
class Making:
    """What a run makes shards with; see `pipelines.build.job.Job`."""

    schema: Schema
    task: Task
    source: Source
    filters: Filters
    tokenizer: LoadedTokenizer


@dataclass(frozen=True)
class Estimate:
    """What comes of some inputs; exact but for the seconds where they were read whole.

    Attributes:
      whole: whether all of it was read.
      sampled_bytes: as stored, that were read.
      text_bytes: after decompression.
      documents: found.
      dropped: reason to number of those that are left out; of repeats those in the sample only,
        where that is not all: there will be more.
      tokens: that the tokenizer makes.
      specials: tokens added.
      tokens_in_rows: not padding, masked copies included.
      rows: by split.
      shard_bytes: on disk, all formats.
      scratch_bytes: of example batches on their way to shards, by `--exchange=files`.
      seconds: on one core, once all is loaded and compiled.
      documents_error: two standard errors of `documents`, by how the places of the sample differ.
    """

    whole: bool
    sampled_bytes: int
    text_bytes: float
    documents: float
    dropped: dict[str, float]
    tokens: float
    specials: float
    tokens_in_rows: float
    rows: dict[str, float]
    shard_bytes: float
    scratch_bytes: float
    seconds: float
    documents_error: float = 0.0

    def __add__(self, other: "Estimate") -> "Estimate":
        """Adds the estimates of two groups of inputs."""
        sums: dict[str, Any] = {"whole": self.whole and other.whole}
        for name in ("dropped", "rows"):
            sums[name] = total_counts(getattr(self, name), getattr(other, name))
        for name in self.__dataclass_fields__.keys() - sums.keys():
            sums[name] = getattr(self, name) + getattr(other, name)
        return Estimate(**sums)


@dataclass
class _Sample:
    """What was read of the blocks that are for one given split, or of all.

    Attributes:
      stored: bytes on disk that were read.
      text: bytes of text in them.
      taken: bytes of text in `pieces`; the others were read for the two above.
      pieces: documents.
      places: bytes of text taken, and documents in them, of each place.
      seconds: of reading `text`.
    """

    stored: int = 0
    text: int = 0
    taken: int = 0
    pieces: list[Documents] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0

    def error(self) -> float:
        """The relative standard error of documents a byte: a ratio of means over the places.

        Cochran, Sampling Techniques, 1977, section 6.4. 0 of a few places, which tell none, as of
        two archives, of which only the beginning is read.
        """
        taken, found = np.array(self.places, np.float64).T
        if len(taken) < _FEW_PLACES or not found.sum():
            return 0.0
        rest = found - found.sum() / taken.sum() * taken
        variance = rest @ rest / (len(rest) - 1) / len(rest)
        return float(np.sqrt(variance) / found.mean())


def estimate(making: Making, blocks: list[Block]) -> Estimate:
    """What a run over the blocks gives.

    Raises:
      DataError: the sample cannot be read; or no document of it is kept.
    """
    by_split: dict[str, list[Block]] = {}
    for block in blocks:
        by_split.setdefault(block.split, []).append(block)
    return reduce(Estimate.__add__, (_estimate(making, some) for some in by_split.values()))


def _estimate(making: Making, blocks: list[Block]) -> Estimate:
    total = sum(block.bytes for block in blocks)
    sample = _sample(making.source, blocks)
    whole = sample.stored == total and sample.taken == sample.text
    documents, split = join_documents(sample.pieces), blocks[0].split
    _make(documents, making, split)  # compiles, and fills caches
    began = time.perf_counter()
    numbers, dropped, rows = _make(documents, making, split)
    seconds = time.perf_counter() - began
    text_bytes = total * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text_bytes / sample.taken
    return Estimate(
        whole=whole,
        sampled_bytes=sample.stored,
        text_bytes=text_bytes,
        dropped={reason: number * scale for reason, number in dropped.items()},
        rows={name: number * scale for name, number in rows.items()},
        seconds=seconds * scale + sample.seconds * text_bytes / max(sample.text, 1),
        documents_error=0.0 if whole else 2 * sample.error() * documents.read * scale,
        **{name: number * scale for name, number in numbers.items()},
    )


def _sample(source: Source, blocks: list[Block]) -> _Sample:
    # How much text a small archive or a small Parquet file holds is not known: it is sampled as a
    # large one is.
    packed = any(
        is_compressed(part.path) or not FORMATS[part.format].packs
        for block in blocks
        for part in block.parts
    )
    small = not packed and sum(block.bytes for block in blocks) <= _WHOLE_BYTES
    places = blocks if small else list(_places(blocks, source))
    wanted = None if small else max(_PLACE_BYTES, _PLACES * _PLACE_BYTES // len(places))
    sample = _Sample()
    began = time.perf_counter()
    for place in places:
        if sample.pieces and sample.seconds > _PATIENCE:
            break
        _take(sample, place, source, wanted)
        sample.seconds = time.perf_counter() - began
    return sample


def _places(blocks: list[Block], source: Source) -> Iterator[Block]:
    """Blocks or parts of them, spread evenly over the bytes of all."""
    ends = list(itertools.accumulate(block.bytes for block in blocks))
    last = -1
    for number in range(_PLACES):
        offset = int((number + 0.5) / _PLACES * ends[-1])
        index = bisect_right(ends, offset)
        block = blocks[index]
        [part, *others] = block.parts
        in_part = offset - (ends[index] - block.bytes)
        by_lines = FORMATS[part.format].cuts == "anywhere" and not is_compressed(part.path)
        is_document = source.text_document == "file" and part.bytes == part.size  # no cut parts it
        if by_lines and not others and not is_document:
            start = part.start + min(in_part, max(part.bytes - _PLACE_BYTES, 0))
            stop = min(start + _PLACE_BYTES, part.stop)
            yield replace(block, parts=(replace(part, start=start, stop=stop),))
        elif index != last:  # read from its start, once
            yield block
        last = index


def _take(sample: _Sample, place: Block, source: Source, wanted: int | None) -> None:
    """Takes the place's first documents, and reads on until its stored bytes are known.

    Formats with rows tell of stored bytes at the end of a part. Compressed files are read a buffer
    at a time: when a piece takes a new one, that happened somewhere within it, and what came before
    was made of the buffers before.

    Args:
      sample: grows.
      place: a block or a part of one.
      source: how it is read.
      wanted: bytes of text to take; None for all.
    """
    compressed = is_compressed(place.parts[0].path)
    if wanted is not None:
        source = replace(source, block_bytes=_PLACE_BYTES)
    stored = text = taken = found = 0
    for documents in read_block(place, source):
        if wanted is not None and taken >= wanted and stored and documents.stored_bytes:
            text += documents.source_bytes // 2 if compressed else 0
            break
        stored += documents.stored_bytes
        text += documents.source_bytes
        if wanted is None or taken < wanted:
            taken += documents.source_bytes
            sample.pieces.append(documents)
            found += documents.read
    sample.places.append((taken, found))
    sample.stored += stored
    sample.text += text
    sample.taken += taken


def _make(
    documents: Documents, making: Making, split: str
) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """Filters, tokenizes, packs and writes documents as workers do.

    Splits whose rows are packed in one way are packed together: a small share of a small sample
    would fill its rows otherwise than a shard of the run.

    Args:
      documents: of the sample.
      making: what with.
      split: that was given for them; "" if their content tells.

    Returns:
      Numbers by the names of `Estimate`; documents dropped by reason; rows by split.

    Raises:
      DataError: none is kept.
    """
    schema, task = making.schema, making.task
    routes = Routes(schema.splits, schema.shards)
    filtered = filter_documents(making.filters.of_split(split), documents, making.source.roles)
    routed = route_examples(filtered.documents, task, making.tokenizer, schema, routes, split)
    pools: dict[str, dict[str, list[pa.RecordBatch]]] = {}
    for route, examples in routed.batches:
        name = routes.split_names()[route]
        if not split or name == split:  # others only say what a held-out split has
            pool = pools.setdefault(task.packing_of(name, schema), {})
            pool.setdefault(name, []).append(examples.batch)
    if not pools:
        raise DataError(
            "the sample of the inputs has no document that would be kept: documents are dropped, "
            "or longer than the places it is taken from; run without --dry_run, or name other "
            "inputs"
        )
    maker = RowMaker(schema, task, task.finish(schema, making.tokenizer))
    counts, rows, shard_bytes, scratch_bytes = ShardStatistics(), {}, 0, 0
    for pool in pools.values():
        joined = ExampleBatch(pa.concat_batches([one for some in pool.values() for one in some]))
        shard = maker.make(keep(joined), max(pool, key=is_training))
        with tempfile.TemporaryDirectory() as folder:
            shard_bytes += sum(f.bytes for f in stage_shard(shard, schema, folder, "sample"))
        scratch_bytes += len(joined.to_bytes())
        counts += shard.statistics
        shares = schema.splits
        if schema.splits_given:
            shares = {name: sum(map(len, batches)) for name, batches in pool.items()}
        every = sum(shares[name] for name in pool)
        rows |= {name: shard.statistics.rows * shares[name] / every for name in pool}
    numbers = {
        "documents": documents.read,
        "tokens": counts.tokens,
        "specials": counts.specials_added,
        "tokens_in_rows": counts.tokens_in_rows,
        "shard_bytes": shard_bytes,
        "scratch_bytes": scratch_bytes,
    }
    return numbers, total_counts(counts.dropped, filtered.dropped, routed.dropped), rows
