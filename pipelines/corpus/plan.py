"""The plan of build_corpus: what a run needs, estimated from a sample."""

import math
from dataclasses import dataclass

from textmill.pipelines.corpus.keep_best import SHIFTS
from textmill.pipelines.corpus.measure import measure
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import MEMBER
from textmill.pipelines.corpus.near_duplicates.steps import count_rounds
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.prepare import CorpusRun
from textmill.pipelines.readers.sources import BLOCK_BYTES
from textmill.pipelines.runners.plan import Needs, RunPlan
from textmill.pipelines.runners.sample import take_sample
from textmill.pipelines.runners.shuffle import VALUE_BYTES, count_elements
from textmill.schemas.format.corpus_metadata import CorpusSchema

# Measured: a worker's memory for a block and for a partition, in multiples of its bytes of text;
# more to find near-duplicates and repeated lines.
_TIMES_BLOCK, _TIMES_PARTITION, _TIMES_NEAR, _TIMES_PARAGRAPHS = 6, 4, 4, 22
_NEAR_STEPS = 6  # of near-duplicates besides rounds: shuffles to compare, decide and list
_PARAGRAPH_STEPS = 3


@dataclass(frozen=True)
class CorpusPlan:
    """A run of build_corpus and its estimate.

    Attributes:
      plan: disk, memory, time and shuffles.
      documents: number that is read.
      dropped: number by reason; exact and near-duplicates of the sample only.
      kept: number that is written.
      kept_bytes: of their text.
      schema: of the corpus.
      near: the rule of near-duplicates; None if they are kept.
    """

    plan: RunPlan
    documents: float
    dropped: dict[str, float]
    kept: float
    kept_bytes: float
    schema: CorpusSchema
    near: NearDuplicateRule | None


def times_partition(options: CorpusOptions) -> int:
    """A worker's memory for a partition, in multiples of its bytes of text."""
    times = _TIMES_PARTITION + _TIMES_NEAR * bool(options.near.rule)
    return times + _TIMES_PARAGRAPHS * bool(options.duplicate_paragraphs)


def plan_corpus(run: CorpusRun) -> CorpusPlan:
    """Estimates a run.

    Raises:
      UsageError: a rule or a target cannot be used.
      DataError: the sample cannot be read.
    """
    options, schema, times = run.options, run.schema, run.times
    sample = take_sample(run.source, run.blocks)
    whole = sample.stored == run.total_bytes and sample.taken == sample.text and times == 1
    text = times * run.total_bytes * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text / max(sample.taken, 1)
    found = measure(options, sample)
    blocks = max(1, math.ceil(text / BLOCK_BYTES))
    times_text = times_partition(options)
    kept_bytes, sent = found.kept_bytes * scale, found.sent_bytes * scale
    if rule := options.near.rule:  # the signatures of older documents
        older = sum(corpus.stats.total().documents for corpus in options.ancestors)
        sent += older * rule.bands.bands * MEMBER.itemsize
    shuffles = _count_shuffles(options, schema)
    elements = count_elements(sent, found.documents * scale, blocks, schema.files)
    elements += (shuffles - 1) * (schema.files + sent / shuffles / VALUE_BYTES)
    needs = Needs(
        whole=whole,
        sampled_bytes=sample.stored,
        text_bytes=text,
        cpu_seconds={name: seconds * scale for name, seconds in found.clock.cpu.items()},
        slowdown=found.clock.slowdown,
        output_bytes=found.output_bytes * scale,
        shuffled_bytes=sent,
        scratch_bytes=sent + found.staged_bytes * scale,
        block_bytes=_TIMES_BLOCK * min(BLOCK_BYTES, text),
        key_bytes=times_text * kept_bytes / schema.files,
        shuffles=shuffles,
        elements=elements * (run.shuffle_by == "runner" or times != 1),
        blocks=blocks,
        keys=schema.files,
    )
    return CorpusPlan(
        RunPlan(run, options.output, "documents", needs, times),
        found.documents * scale,
        {reason: number * scale for reason, number in found.dropped.items()},
        found.kept * scale,
        kept_bytes,
        schema,
        options.near.rule,
    )


def _count_shuffles(options: CorpusOptions, schema: CorpusSchema) -> int:
    near = _NEAR_STEPS + count_rounds(schema.files) if options.near.rule else 0
    paragraphs = _PARAGRAPH_STEPS if options.duplicate_paragraphs else 0
    flags = options.filters.decontamination
    best = 0 if options.filters.quality_model.keep_best is None else 2 * len(SHIFTS)
    return (
        1
        + near
        + paragraphs
        + best
        + bool(flags.decontaminate and flags.decontaminate_max_documents)
    )
