"""The plan of build_corpus: functions of the run clean, compare and write a sample in memory."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import pyarrow as pa

from textmill.pipelines.corpus.decontamination.finders import find_holders
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.targets import find_targets
from textmill.pipelines.corpus.filter_documents import filter_documents, load_filters
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import (
    ASK,
    MEMBER,
    PAIR,
    all_distinct,
    of_batch,
    sets_of,
    take_rows,
)
from textmill.pipelines.corpus.near_duplicates.steps import (
    count_rounds,
    make_members,
    make_sets,
    propose_pairs,
    verify_pairs,
)
from textmill.pipelines.corpus.options import CorpusOptions, Paragraphs
from textmill.pipelines.corpus.paragraphs import find_repeated, list_paragraphs, send_paragraphs
from textmill.pipelines.corpus.partition import cut_batch, gather, make_batch
from textmill.pipelines.corpus.partition_files import encode_documents
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.host.imports import pc
from textmill.pipelines.readers.documents import Documents, no_documents
from textmill.pipelines.readers.sources import BLOCK_BYTES
from textmill.pipelines.rows.example_batch import to_stream
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.plan import Clock, Needs, RunPlan
from textmill.pipelines.runners.sample import Sample, take_sample
from textmill.pipelines.runners.shuffle import VALUE_BYTES, count_elements
from textmill.schemas.format.corpus_metadata import CorpusSchema
from textmill.schemas.format.drops import total_counts

# Measured: a worker's memory for a block and for a partition, in multiples of its bytes of text;
# more to find near-duplicates and repeated lines.
_TIMES_BLOCK, _TIMES_PARTITION, _TIMES_NEAR, _TIMES_PARAGRAPHS = 6, 4, 4, 22
_NEAR_STEPS = 6  # of near-duplicates besides rounds: shuffles to compare, decide and list
_PARAGRAPH_STEPS = 3


@dataclass
class _Measured:
    """The measured cost of a sample, and what became of its documents."""

    clock: Clock
    documents: int  # read
    dropped: dict[str, int]
    kept: int
    kept_bytes: int  # of text
    output_bytes: int
    sent_bytes: int
    staged_bytes: int


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


def plan_corpus(
    options: CorpusOptions, schema: CorpusSchema, run: BlockRun, times: float
) -> CorpusPlan:
    """Estimates a run whose inputs are `times` as large as the given ones.

    Raises:
      UsageError: a rule or a target cannot be used.
      DataError: the sample cannot be read.
    """
    sample = take_sample(run.source, run.blocks)
    whole = sample.stored == run.total_bytes and sample.taken == sample.text and times == 1
    text = times * run.total_bytes * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text / max(sample.taken, 1)
    found = _measure(options, run, sample)
    blocks = max(1, math.ceil(text / BLOCK_BYTES))
    times_text = _TIMES_PARTITION + _TIMES_NEAR * bool(options.near.rule)
    times_text += _TIMES_PARAGRAPHS * bool(options.duplicate_paragraphs)
    kept_bytes, sent = found.kept_bytes * scale, found.sent_bytes * scale
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
    return 1 + near + paragraphs + bool(flags.decontaminate and flags.decontaminate_max_documents)


def _measure(options: CorpusOptions, run: BlockRun, sample: Sample) -> _Measured:
    """Runs the steps of the run on the documents of a sample, as one partition."""
    clock, staged = Clock(), 0
    share = sample.taken / max(sample.text, 1)
    clock.add("reading", sample.cpu_seconds * share, sample.seconds * share)
    dropped: Counter[str] = Counter()
    pieces = _clean(options, sample.pieces, clock, dropped)
    empty = make_batch(no_documents(run.source.roles), keep_source=options.keep_source)
    with clock.part("partitions"):
        batches = [make_batch(piece, keep_source=options.keep_source) for piece in pieces]
        streams = [to_stream(batch) for whole in batches for _, batch in cut_batch(whole, 1)]
        batch = gather(streams, empty)
    dropped["duplicates"] += sum(map(len, (p.columns for p in pieces))) - len(batch)
    sent = sum(map(len, streams))
    rule, paragraphs = options.near.rule, options.duplicate_paragraphs
    if rule or paragraphs:
        staged = batch.nbytes * (1 + 2 * bool(paragraphs))
    if rule:
        near, sent_to_compare = _find_near(batch, rule, clock)
        dropped["near_duplicates"] += near
        sent += sent_to_compare
    if paragraphs:
        sent += _count_paragraphs(batch, paragraphs, clock)
    with clock.part("writing"):
        content = encode_documents(batch, options.schema(0))
    kept = len(batch) - dropped["near_duplicates"]
    left = kept / max(len(batch), 1)
    return _Measured(
        clock,
        sum(piece.read for piece in sample.pieces),
        total_counts(dropped),
        kept,
        round(int(pc.sum(pc.binary_length(batch["text"])).as_py() or 0) * left),
        round(len(content) * left),
        sent,
        staged,
    )


def _clean(
    options: CorpusOptions, pieces: list[Documents], clock: Clock, dropped: Counter[str]
) -> list[Documents]:
    """Applies the rules to pieces, and then searches for evaluation texts, with the run's order."""
    flags = options.filters.decontamination
    rules = replace(options.filters, decontamination=Decontamination(), keep_rejects=False)
    load_filters(rules)
    filter_documents(rules, pieces[0])  # compiles
    with clock.part("rules"):
        filtered = [filter_documents(rules, piece) for piece in pieces]
    dropped.update(total_counts(*(some.dropped for some in filtered)))
    left = [some.documents for some in filtered]
    if not flags.decontaminate:
        return left
    finder = Finder(find_targets(options.filters, lambda _: None))
    search = Filters(decontamination=flags)
    bare = [replace(some, empty=0, rejects=(), unusable={}) for some in left]
    filter_documents(search, bare[0], finder)
    with clock.part("decontamination"):
        searched = [filter_documents(search, some, finder) for some in bare]
    dropped.update(total_counts(*(some.dropped for some in searched)))
    if flags.decontaminate_max_documents:  # a job before reads and cleans the input, too
        with clock.part("decontamination"):
            for some in left:
                find_holders(finder, some.text)
        before = clock.cpu["reading"] + clock.cpu["rules"]
        clock.add("decontamination", before, before * clock.slowdown)
    return [some.documents for some in searched]


def _find_near(batch: pa.RecordBatch, rule: NearDuplicateRule, clock: Clock) -> tuple[int, int]:
    """The number of near-duplicates of a partition, and the bytes sent to find them."""
    text = batch["text"]
    list(make_members(0, text.slice(0, 1), rule, 1))  # compiles
    with clock.part("near-duplicates"):
        sent = [
            to_stream(some) for batches, _ in make_members(0, text, rule, 1) for _, some in batches
        ]
        members, pairs, asks = take_rows(sent, MEMBER), [], []
        for own_pairs, own_asks, _ in propose_pairs(members, rule):
            pairs += [some for _, some in own_pairs]
            asks += [some for _, some in own_asks]
        sets = [
            some
            for batches in make_sets(
                all_distinct((of_batch(one, ASK) for one in asks), ASK), text, rule
            )
            for _, some in batches
        ]
        distinct = all_distinct((of_batch(one, PAIR) for one in pairs), PAIR)
        edges = [
            found
            for found, _ in verify_pairs(
                distinct, lambda: filter(None, map(sets_of, sets)), text, rule
            )
        ]
    lower = {row for found in edges for row in found["lower"].tolist()}
    return len(lower), sum(map(len, sent)) + sum(one.nbytes for one in (*pairs, *asks, *sets))


def _count_paragraphs(batch: pa.RecordBatch, rule: Paragraphs, clock: Clock) -> int:
    """The bytes sent to find repeated paragraphs."""
    few = list_paragraphs(batch.slice(0, 1), rule)  # compiles
    find_repeated([to_stream(some) for _, some in send_paragraphs(few, 1)], rule.most, 1)
    with clock.part("repeated paragraphs"):
        rows = list_paragraphs(batch, rule)
        find_repeated([to_stream(some) for _, some in send_paragraphs(rows, 1)], rule.most, 1)
    return rows.nbytes
