"""The plan of a run, which `build_shards --dry_run` estimates from a sample of the inputs.

The functions of the run read, filter, tokenize, pack, mask and write the sample (to a temporary
folder). It is spread evenly over the bytes of the inputs, so the same inputs give the same sample;
small inputs are read whole.
"""

import itertools
import math
import os
import shutil
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import psutil
from rich.filesize import decimal

from pipelines import store
from pipelines.build.options import BuildOptions
from pipelines.build.steps import RowMaker, route_examples, stage_shard
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.readers.documents import Documents, join_documents
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.sources import (
    BLOCK_BYTES,
    CLUSTER_WORKERS,
    Block,
    Source,
    describe_documents,
    read_block,
    uneven,
)
from pipelines.readers.stored import is_compressed
from pipelines.rows.example_batch import join, keep
from pipelines.rows.routing import Routes
from pipelines.runners.block_run import BlockRun
from pipelines.runners.console import cpu_hours, duration
from pipelines.runners.shuffle import ELEMENT_BYTES, ELEMENT_SECONDS, count_elements
from pipelines.user_filter import choose_documents
from pipelines.writers.output_directory import other_sizes, set_of
from schemas.commands.terminal import number_of
from schemas.drops import Drop, describe_dropped, total_counts
from schemas.errors import DataError
from schemas.manifest import MANIFEST
from schemas.metadata import Schema
from schemas.statistics import ShardStatistics

_PLACE_BYTES = 256 << 10
_PLACES = 24
_WHOLE_BYTES = 8 << 20  # inputs up to this are read whole
_PATIENCE = 4.0  # seconds of reading after which the sample ends
_MOST_BYTES = 32 << 20  # bytes of text after which it ends: a part may have large documents
# Measured: Beam in memory, and a worker's memory for a block (text, ids, example batches) and for a
# shard (example batches, segments, a chunk of rows), in multiples of its bytes of text.
_BEAM_BYTES = 100_000_000
_TIMES_BLOCK, _TIMES_SHARD = 6, 3
_BLOCK_BYTES = 16 << 20
_BEGIN_SECONDS = 4.0  # to start a worker and to write the metadata files
_GAIN = 0.8  # of each worker: they share memory and disk, and threads the interpreter


@dataclass(frozen=True)
class Run:
    """The settings and inputs of a run, before the pipeline starts."""

    options: BuildOptions  # complete, see `pipelines.build.run.complete`
    schema: Schema
    tokenizer: LoadedTokenizer
    on: BlockRun  # the inputs and the runner
    times: float = 1.0  # how much larger the inputs are assumed to be

    @staticmethod
    def of(
        options: BuildOptions,
        tokenizer: LoadedTokenizer,
        blocks: list[Block],
        beam_arguments: list[str],
        how: str = "",
        times: float = 1.0,
    ) -> "Run":
        """Makes the run of a command whose runner is chosen.

        Raises:
          UsageError: the tokenizer does not fit the task, or a row does not hold its specials.
        """
        bytes_of: Counter[str] = Counter()
        for block in blocks:
            bytes_of[block.split] += int(block.bytes * times)
        on = BlockRun(
            "build_shards",
            options.source,
            blocks,
            beam_arguments,
            how,
            options.run.shuffle_by,
            filter=options.filter,
        )
        return Run(options, options.schema(tokenizer, bytes_of), tokenizer, on, times)

    def load_encoder(self) -> str:
        """Loads what encodes inputs of this size, and names it."""
        return self.tokenizer.load_backend(int(self.on.total_bytes * self.times))


@dataclass(frozen=True)
class Estimate:
    """The output of some inputs; all but `seconds` is exact if they were read whole."""

    whole: bool  # whether the inputs were read whole
    sampled_bytes: int  # stored bytes that were read
    text_bytes: float  # after decompression
    documents: float
    dropped: dict[str, float]  # by reason; exact duplicates inside the sample only
    tokens: float  # of the tokenizer
    specials: float  # special tokens added
    tokens_in_rows: float  # without padding, with masked copies
    rows: dict[str, float]  # by split
    shard_bytes: float  # on disk, all formats
    scratch_bytes: float  # of example batches, if --shuffle_by=files
    seconds: float  # on one core, without loading and compiling

    def __add__(self, other: "Estimate") -> "Estimate":
        """Adds the estimates of two groups of inputs."""
        sums: dict[str, Any] = {"whole": self.whole and other.whole}
        sums["dropped"] = Counter(self.dropped) + Counter(other.dropped)  # without zeros
        sums["rows"] = self.rows | other.rows  # of different splits
        for name in self.__dataclass_fields__.keys() - sums.keys():
            sums[name] = getattr(self, name) + getattr(other, name)
        return Estimate(**sums)


@dataclass
class _Sample:
    """A sample of blocks."""

    stored: int = 0  # bytes read from disk
    text: int = 0  # bytes of text in them
    taken: int = 0  # bytes of text in `pieces`; the rest only measures the two above
    pieces: list[Documents] = field(default_factory=list)
    seconds: float = 0.0  # of reading `text`


def estimate(run: Run) -> Estimate:
    """Estimates the output of a run.

    Raises:
      DataError: the sample cannot be read, or none of its documents is kept.
    """
    run.load_encoder()
    by_split: dict[str, list[Block]] = {}
    for block in run.on.blocks:
        by_split.setdefault(block.split, []).append(block)
    total = reduce(Estimate.__add__, (_estimate(run, some) for some in by_split.values()))
    if not any(total.rows.values()):
        raise DataError(
            "no document of the sample would be kept: all are dropped, or longer than the parts of "
            "the inputs that are sampled; run without --dry_run, or name other inputs"
        )
    return total


def _estimate(run: Run, blocks: list[Block]) -> Estimate:
    total = sum(block.bytes for block in blocks)
    sample = _sample(run.on.source, blocks)
    documents, split = join_documents(sample.pieces), blocks[0].split
    whole = sample.stored == total and sample.taken == sample.text and run.times == 1
    text_bytes = run.times * total * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text_bytes / sample.taken
    if not whole:  # shards as large as the run's, not as many
        shards = {name: max(1, round(n / scale)) for name, n in run.schema.shards.items()}
        run = replace(run, schema=replace(run.schema, shards=shards, fingerprint=""))
    _make(documents, run, split)  # compiles and fills caches
    began = time.perf_counter()
    numbers, dropped, rows = _make(documents, run, split)
    seconds = time.perf_counter() - began
    return Estimate(
        whole=whole,
        sampled_bytes=sample.stored,
        text_bytes=text_bytes,
        dropped={reason: number * scale for reason, number in dropped.items()},
        rows={name: number * scale for name, number in rows.items()},
        seconds=seconds * scale + sample.seconds * text_bytes / max(sample.text, 1),
        **{name: number * scale for name, number in numbers.items()},
    )


def _sample(source: Source, blocks: list[Block]) -> _Sample:
    # The bytes of text in a small archive or Parquet file are unknown: it is sampled like a large
    # one.
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
        if sample.pieces and (sample.seconds > _PATIENCE or sample.taken > _MOST_BYTES):
            break
        _take(sample, place, source, wanted)
        sample.seconds = time.perf_counter() - began
    return sample


def _places(blocks: list[Block], source: Source) -> Iterator[Block]:
    """Yields blocks or parts of them, spread evenly over the bytes of all."""
    ends = list(itertools.accumulate(block.bytes for block in blocks))
    last = -1
    for number in range(_PLACES):
        offset = int((number + 0.5) / _PLACES * ends[-1])
        index = bisect_right(ends, offset)
        block = blocks[index]
        [part, *others] = block.parts
        in_part = offset - (ends[index] - block.bytes)
        by_lines = FORMATS[part.format].cuts == "anywhere" and not is_compressed(part.path)
        is_document = source.document == "file" and part.bytes == part.size  # is not cut
        if by_lines and not others and not is_document:
            start = part.start + min(in_part, max(part.bytes - _PLACE_BYTES, 0))
            stop = min(start + _PLACE_BYTES, part.stop)
            yield replace(block, parts=(replace(part, start=start, stop=stop),))
        elif index != last:  # read from its start, once
            yield block
        last = index


def _take(sample: _Sample, place: Block, source: Source, wanted: int | None) -> None:
    """Takes the first documents of a block or a part of one, and reads until its size is known.

    The stored bytes of formats with rows are known at the end of a part. Compressed files are read
    a buffer at a time: a piece that begins a new buffer began it at an unknown position, and all
    text before the piece came from the earlier buffers.

    Args:
      sample: receives the documents.
      place: the block or part.
      source: how to read it.
      wanted: bytes of text to take; None for all.
    """
    compressed = is_compressed(place.parts[0].path)
    if wanted is not None:
        source = replace(source, block_bytes=_PLACE_BYTES)
    stored = taken = unmatched = 0  # the last: bytes of text whose stored bytes are not known yet
    for documents in read_block(place, source):
        is_new = documents.stored_bytes or not compressed
        if wanted is not None and taken >= wanted and stored and is_new:
            sample.text += documents.source_bytes // 2 if compressed else 0
            break
        unmatched += documents.source_bytes
        if documents.stored_bytes or compressed:
            stored += documents.stored_bytes
            sample.text += unmatched
            unmatched = 0
        if wanted is None or taken < wanted:
            taken += documents.source_bytes
            sample.pieces.append(documents)
    sample.stored += stored
    sample.taken += taken


def _make(
    documents: Documents, run: Run, split: str
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Filters, tokenizes, packs and writes documents as workers do, one shard per split.

    Returns:
      Numbers by field of `Estimate`; number of dropped documents by reason; rows by split.
    """
    schema, task = run.schema, run.options.settings
    routes = Routes.of_schema(schema)
    chosen = choose_documents(run.options.filter, documents)
    routed = route_examples(chosen.documents, task, run.tokenizer, schema, split)
    # If a split is named, batches for other splits have only hashes, of documents it holds out.
    rows = dict.fromkeys([split] if split else schema.splits, 0)
    batches: dict[str, list[bytes]] = {name: [] for name in rows}
    for route, examples in routed.batches:
        if (name := routes.split_names()[route]) in batches:
            batches[name].append(examples.to_bytes())
    maker = RowMaker(schema, task, task.finish(schema, run.tokenizer))
    counts, shard_bytes = ShardStatistics(), 0
    for name, own in batches.items():
        if (joined := join(own)) is None:
            continue
        shard = maker.make(keep(joined), name)
        with tempfile.TemporaryDirectory() as folder:
            shard_bytes += sum(f.bytes for f in stage_shard(shard, schema, folder, "sample"))
        counts += shard.statistics
        rows[name] = shard.statistics.rows
    numbers = {
        "documents": documents.read,
        "tokens": counts.tokens,
        "specials": counts.specials_added,
        "tokens_in_rows": counts.tokens_in_rows,
        "shard_bytes": shard_bytes,
        "scratch_bytes": sum(len(batch) for own in batches.values() for batch in own),
    }
    return numbers, total_counts(counts.dropped, chosen.dropped, routed.dropped), rows


@dataclass(frozen=True)
class Plan:
    """A run, its estimate, and the time, memory and disk that it needs."""

    run: Run
    estimate: Estimate

    @property
    def output(self) -> str:
        """The dataset's directory."""
        return self.run.options.output

    @property
    def workers(self) -> int:
        """--direct_num_workers; 1 if the run is in this process, 0 on a cluster (unknown)."""
        return self.run.on.flags.number if self.run.on.is_local else 0

    def disk_bytes(self) -> int:
        """The most bytes needed on this machine's disk: shards and scratch files."""
        shards = 0 if store.is_url(self.output) else self.estimate.shard_bytes
        return int(shards + self.estimate.scratch_bytes * (self.run.on.shuffle_by == "files"))

    def free_bytes(self) -> int:
        """Free bytes on the disk of the output, or of temporary files for an object store."""
        remote = store.is_url(self.output)
        path = tempfile.gettempdir() if remote else os.path.abspath(self.output)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        return shutil.disk_usage(path).free

    def seconds(self) -> float:
        """Expected seconds from the command to the finished dataset."""
        gain = max(1.0, self.workers * _GAIN)
        return _BEGIN_SECONDS * (1 + self.run.on.flags.in_processes) + self.estimate.seconds / gain

    def memory_bytes(self) -> int:
        """The most bytes that all workers of this machine need: a block or a shard each."""
        base = psutil.Process().memory_info().rss + _BEAM_BYTES
        text, workers = self.estimate.text_bytes, max(self.workers, 1)
        shard = text / sum(self.run.schema.shards.values())
        held = _TIMES_BLOCK * min(_BLOCK_BYTES, text) + _TIMES_SHARD * shard
        return int(base * (1 + workers * self.run.on.flags.in_processes) + held * workers)

    def output_state(self) -> str:
        """The content of the output directory, and how the run would treat it."""
        if not store.exists(os.path.join(self.output, MANIFEST)):
            return "no dataset: the run builds it"
        overwrite, replaced = self.run.options.run.overwrite, "the run replaces it (--overwrite)"
        try:
            found = set_of(self.output)
        except DataError as error:
            return f"a damaged dataset: {replaced if overwrite else f'the run would fail: {error}'}"
        if overwrite:
            return f"a dataset, fingerprint {found.schema.fingerprint[:12]}: {replaced}"
        differing = found.schema.differences(self.run.schema)
        if differing := differing or other_sizes(found.inputs, self.run.on.blocks):
            return f"a different dataset ({'; '.join(differing)}): the run needs --overwrite"
        return (
            "a dataset of these settings, from inputs of these sizes: if their content is the "
            "same too, the run has nothing to do"
        )

    def number(self, value: float) -> str:
        """Writes three digits of an estimate, 74,045.3 -> 74,000, and all of an exact count."""
        return f"{round(value) if self.estimate.whole else int(float(f'{value:.3g}')):,}"


def warnings(plan: Plan) -> list[str]:
    """Reasons for which the run may fail or be slow, a line each."""
    lines = []
    need, free = plan.disk_bytes(), plan.free_bytes()
    if need > free and plan.run.times == 1:
        lines.append(
            f"the disk of {plan.output} is too small: about {decimal(need)} are needed and "
            f"{decimal(free)} are free; use another --output, fewer copies or one format"
        )
    available = psutil.virtual_memory().available
    if plan.memory_bytes() > available:
        lines.append(
            f"memory may be too small: about {decimal(plan.memory_bytes())} are needed and "
            f"{decimal(available)} are available; use fewer --direct_num_workers or more "
            "--num_shards"
        )
    if waiting := uneven(plan.run.on.blocks, plan.workers or CLUSTER_WORKERS):
        lines.append(waiting)
    return lines


def plan_facts(plan: Plan) -> dict[str, str]:
    """The lines of the plan, by their titles."""
    estimate, number, schema, on = plan.estimate, plan.number, plan.run.schema, plan.run.on
    files = {part.path: part.size for block in on.blocks for part in block.parts}
    about, sample = "", "read whole"
    if not estimate.whole:
        about = "about "
        sample = f"estimated from a sample of {decimal(estimate.sampled_bytes)}"

    def write(drop: Drop, count: float) -> str:
        # A sample has few of the exact duplicates.
        return ("at least " if about and drop.by_shard else about) + number(count)

    rows = ", ".join(f"{split} {about}{number(n)}" for split, n in sorted(estimate.rows.items()))
    if schema.holds_documents:
        rows += "; a row is a document"
    else:
        length = schema.row_tokens
        efficiency = estimate.tokens_in_rows / max(sum(estimate.rows.values()) * length, 1)
        rows += f"; {length} tokens each, packing efficiency {efficiency:.1%}"
        rows += f", {schema.codec().stride} bytes"
    scratch = f" and {decimal(int(estimate.scratch_bytes))} of scratch" * (on.shuffle_by == "files")
    took = f"{duration(estimate.seconds)} of one core of this machine"
    assumed = ""
    if plan.run.times != 1:
        assumed = f"a sample of {decimal(int(on.total_bytes * plan.run.times))}; "
    documents = describe_documents(on.blocks, on.source)
    return {
        "inputs": f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
        f"{number_of(len(on.blocks), 'block')}; {assumed}{sample}",
        "text": f"{about}{decimal(int(estimate.text_bytes))}",
        "documents": "; ".join(filter(None, (about + number(estimate.documents), documents))),
        **describe_dropped(estimate.dropped, ("duplicates",), write),
        "tokens": f"{about}{number(estimate.tokens)} + {number(estimate.specials)} special",
        "rows": rows,
        "shards": ", ".join(f"{split} {count:,}" for split, count in schema.shards.items()),
        "disk": f"about {decimal(int(estimate.shard_bytes))} of shards{scratch}; "
        f"{decimal(plan.free_bytes())} free",
        "memory": f"about {decimal(plan.memory_bytes())}; "
        f"{decimal(psutil.virtual_memory().available)} available",
        "time": f"about {duration(plan.seconds()) if plan.workers else took}, {on.how}",
        **({} if plan.workers and plan.run.times == 1 else cluster_facts(plan)),
        "task": f"{schema.task}, packing {schema.packing}",
        "features": ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in schema.features),
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256[:12]}; "
        f"ids by {plan.run.load_encoder()}",
        "fingerprint": schema.fingerprint,
        "output holds": plan.output_state(),
    }


def cluster_facts(plan: Plan) -> dict[str, str]:
    """Estimates a run on a cluster: hours by number of workers, bytes of the shuffle, memory."""
    estimate, shards = plan.estimate, sum(plan.run.schema.shards.values())
    blocks = max(1, math.ceil(estimate.text_bytes / BLOCK_BYTES))
    elements = count_elements(estimate.scratch_bytes, estimate.documents, blocks, shards)
    seconds = estimate.seconds + elements * ELEMENT_SECONDS
    shard = estimate.text_bytes / shards
    held = _TIMES_BLOCK * min(_BLOCK_BYTES, estimate.text_bytes) + _TIMES_SHARD * shard
    memory = psutil.Process().memory_info().rss + _BEAM_BYTES + held
    return {
        "on a cluster": cpu_hours(seconds, max(blocks, shards)),
        "shuffle": f"about {decimal(int(estimate.scratch_bytes + elements * ELEMENT_BYTES))}",
        "memory of a worker": f"about {decimal(int(memory))}: {_TIMES_SHARD} times the text of a "
        f"shard ({decimal(int(shard))}), {_TIMES_BLOCK} times that of a block, and its programs",
    }
