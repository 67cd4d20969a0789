"""The plan of a run, which `build_shards --dry_run` estimates from a sample of the inputs.

The functions of the run read, filter, tokenize, pack, mask and write the sample (to a temporary
folder).
"""

import math
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from rich.filesize import decimal

from textmill.pipelines import store
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import Documents, join_documents
from textmill.pipelines.readers.sources import (
    BLOCK_BYTES,
    Block,
    describe_documents,
)
from textmill.pipelines.rows.example_batch import join, keep
from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.plan import Clock, Needs, RunPlan
from textmill.pipelines.runners.sample import take_sample
from textmill.pipelines.runners.shuffle import count_elements
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.steps import RowMaker, route_examples, stage_shard
from textmill.pipelines.user_filter import choose_documents
from textmill.pipelines.writers.output_directory import other_sizes, set_of
from textmill.schemas.drops import Drop, describe_dropped, total_counts
from textmill.schemas.errors import DataError
from textmill.schemas.manifest import MANIFEST
from textmill.schemas.metadata import Schema
from textmill.schemas.statistics import ShardStatistics

# Measured: a worker's memory for a block (text, ids, example batches) and for a shard (example
# batches, segments, a chunk of rows), in multiples of its bytes of text.
_TIMES_BLOCK, _TIMES_SHARD = 6, 3


@dataclass(frozen=True)
class Run:
    """The settings and inputs of a run, before the pipeline starts."""

    options: BuildOptions  # complete, see `pipelines.shards.run.complete`
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
    cpu_seconds: dict[str, float]  # by part of the work, without loading and compiling
    passed: float  # seconds of the same work on one core of this machine, at its load

    def __add__(self, other: "Estimate") -> "Estimate":
        """Adds the estimates of two groups of inputs."""
        sums: dict[str, Any] = {"whole": self.whole and other.whole}
        for name in ("dropped", "cpu_seconds"):  # without zeros
            sums[name] = Counter(getattr(self, name)) + Counter(getattr(other, name))
        sums["rows"] = self.rows | other.rows  # of different splits
        for name in self.__dataclass_fields__.keys() - sums.keys():
            sums[name] = getattr(self, name) + getattr(other, name)
        return Estimate(**sums)


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
    sample = take_sample(run.on.source, blocks)
    documents, split = join_documents(sample.pieces), blocks[0].split
    whole = sample.stored == total and sample.taken == sample.text and run.times == 1
    text_bytes = run.times * total * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text_bytes / sample.taken
    if not whole:  # shards as large as the run's, not as many
        shards = {name: max(1, round(n / scale)) for name, n in run.schema.shards.items()}
        run = replace(run, schema=replace(run.schema, shards=shards, fingerprint=""))
    _make(documents, run, split)  # compiles and fills caches
    clock = Clock()
    with clock.part("tokens and rows"):
        numbers, dropped, rows = _make(documents, run, split)
    share = sample.taken / max(sample.text, 1)
    clock.add("reading", sample.cpu_seconds * share, sample.seconds * share)
    return Estimate(
        whole=whole,
        sampled_bytes=sample.stored,
        text_bytes=text_bytes,
        dropped={reason: number * scale for reason, number in dropped.items()},
        rows={name: number * scale for name, number in rows.items()},
        cpu_seconds={name: seconds * scale for name, seconds in clock.cpu.items()},
        passed=clock.passed * scale,
        **{name: number * scale for name, number in numbers.items()},
    )


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
    """A run and its estimate."""

    run: Run
    estimate: Estimate

    @property
    def output(self) -> str:
        """The dataset's directory."""
        return self.run.options.output

    def needs(self) -> RunPlan:
        """The disk, memory, time and shuffles of the run."""
        estimate, schema = self.estimate, self.run.schema
        shards = sum(schema.shards.values())
        blocks = max(1, math.ceil(estimate.text_bytes / BLOCK_BYTES))
        needs = Needs(
            whole=estimate.whole,
            sampled_bytes=estimate.sampled_bytes,
            text_bytes=estimate.text_bytes,
            cpu_seconds=estimate.cpu_seconds,
            slowdown=max(1.0, estimate.passed / max(sum(estimate.cpu_seconds.values()), 1e-9)),
            output_bytes=estimate.shard_bytes,
            shuffled_bytes=estimate.scratch_bytes,
            scratch_bytes=estimate.scratch_bytes,
            block_bytes=_TIMES_BLOCK * min(BLOCK_BYTES, estimate.text_bytes),
            key_bytes=_TIMES_SHARD * estimate.text_bytes / shards,
            shuffles=1,
            elements=count_elements(estimate.scratch_bytes, estimate.documents, blocks, shards)
            * (self.run.on.shuffle_by == "runner" or self.run.times != 1),
            blocks=blocks,
            keys=shards,
        )
        return RunPlan(self.run.on, self.output, "shards", needs, self.run.times)

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


def plan_facts(plan: Plan) -> dict[str, str]:
    """The lines of the plan, by their titles."""
    estimate, number, schema, on = plan.estimate, plan.number, plan.run.schema, plan.run.on
    about = "" if estimate.whole else "about "

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
    documents, needs = describe_documents(on.blocks, on.source), plan.needs()
    return {
        "inputs": needs.inputs(),
        "text": f"{about}{decimal(int(estimate.text_bytes))}",
        "documents": "; ".join(filter(None, (about + number(estimate.documents), documents))),
        **describe_dropped(estimate.dropped, ("duplicates",), write),
        "tokens": f"{about}{number(estimate.tokens)} + {number(estimate.specials)} special",
        "rows": rows,
        "shards": ", ".join(f"{split} {count:,}" for split, count in schema.shards.items()),
        **needs.facts(),
        "task": f"{schema.task}, packing {schema.packing}",
        "features": ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in schema.features),
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256[:12]}; "
        f"ids by {plan.run.load_encoder()}",
        "fingerprint": schema.fingerprint,
        "output holds": plan.output_state(),
    }
