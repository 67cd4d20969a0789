"""Estimates the output of a run from a sample of its inputs.

The functions of the run read, filter, tokenize, pack, mask and write the sample (to a temporary
folder).
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from textmill.pipelines.readers.documents import Documents, join_documents
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.rows.example_batch import join, keep, to_stream
from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.runners.plan import Clock
from textmill.pipelines.runners.sample import take_sample
from textmill.pipelines.shards.choose import choose
from textmill.pipelines.shards.prepare import BuildRun
from textmill.pipelines.shards.steps import RowMaker, route_examples
from textmill.pipelines.shards.write import stage_shard
from textmill.schemas.errors import DataError, flag
from textmill.schemas.format.digests import read_digests
from textmill.schemas.format.drops import total_counts
from textmill.schemas.format.statistics import ShardStatistics


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


def estimate(run: BuildRun) -> Estimate:
    """Estimates the output of a run.

    Raises:
      DataError: the sample cannot be read, or none of its documents is kept.
    """
    run.load_encoder()
    by_split: dict[str, list[Block]] = {}
    for block in run.blocks:
        by_split.setdefault(block.split, []).append(block)
    total = reduce(Estimate.__add__, (_estimate(run, some) for some in by_split.values()))
    if not any(total.rows.values()):
        raise DataError(
            "no document of the sample would be kept: all are dropped, or longer than the parts "
            f"of the inputs that are sampled; run without {flag('dry_run', True)}, or name other "
            "inputs"
        )
    return total


def _estimate(run: BuildRun, blocks: list[Block]) -> Estimate:
    total = sum(block.bytes for block in blocks)
    sample = take_sample(run.source, blocks)
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
    documents: Documents, run: BuildRun, split: str
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Filters, tokenizes, packs and writes documents as workers do, one shard per split.

    Returns:
      Numbers by field of `Estimate`; number of dropped documents by reason; rows by split.
    """
    schema, task = run.schema, run.options.settings
    routes = Routes.of_schema(schema)
    listed = read_digests(run.options.forget, "forget") if run.options.forget else None
    chosen, _ = choose(documents, task, run.options.filter, listed)
    routed = route_examples(chosen.documents, task, run.tokenizer, schema, split)
    # If a split is named, batches for other splits have only hashes, of documents it holds out.
    rows = dict.fromkeys([split] if split else schema.splits, 0)
    batches: dict[str, list[bytes]] = {name: [] for name in rows}
    for route, examples in routed.batches:
        if (name := routes.split_names()[route]) in batches:
            batches[name].append(to_stream(examples.batch))
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
