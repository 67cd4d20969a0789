"""Measures a sample for a plan: it is cleaned, compared and written in memory, as in a run."""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from textmill.pipelines.corpus.measure_rules import clean_sample
from textmill.pipelines.corpus.near_duplicates.one_partition import find_near
from textmill.pipelines.corpus.options import CorpusOptions, Paragraphs
from textmill.pipelines.corpus.paragraphs import find_repeated, list_paragraphs, send_paragraphs
from textmill.pipelines.corpus.partition import cut_batch, gather, make_batch, no_rows
from textmill.pipelines.corpus.partition_files import encode_documents
from textmill.pipelines.rows.example_batch import to_stream
from textmill.pipelines.runners.plan import Clock
from textmill.pipelines.runners.sample import Sample
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.corpus_metadata import NOT_BEST, number_to_keep
from textmill.schemas.format.drops import total_counts


@dataclass(frozen=True)
class Measured:
    """The measured cost of a sample, and what became of its documents."""

    clock: Clock
    documents: int  # read
    dropped: dict[str, int]
    kept: int
    kept_bytes: int  # of text
    output_bytes: int
    sent_bytes: int
    staged_bytes: int


def measure(options: CorpusOptions, sample: Sample) -> Measured:
    """Runs the steps of the run on the documents of a sample, as one partition."""
    clock, staged = Clock(), 0
    share = sample.taken / max(sample.text, 1)
    clock.add("reading", sample.cpu_seconds * share, sample.seconds * share)
    dropped: Counter[str] = Counter()
    pieces = clean_sample(options, sample.pieces, clock, dropped)
    added = options.filters.added()
    empty = no_rows(options.source.roles, added, keep_source=options.keep_source)
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
        find_near(batch["text"].slice(0, 1), rule)  # compiles
        with clock.part("near-duplicates"):
            near, sent_to_compare = find_near(batch["text"], rule)
        dropped["near_duplicates"] += near
        sent += sent_to_compare
    if paragraphs:
        sent += _count_paragraphs(batch, paragraphs, clock)
    encode_documents(batch.slice(0, 1), options.schema(0))  # imports
    with clock.part("writing"):
        content = encode_documents(batch, options.schema(0))
    kept = len(batch) - dropped["near_duplicates"]
    if (share := options.filters.quality_model.keep_best) is not None:
        staged += batch.nbytes
        best = number_to_keep(share, kept)
        dropped[NOT_BEST], kept = kept - best, best
    left = kept / max(len(batch), 1)
    return Measured(
        clock,
        sum(piece.read for piece in sample.pieces),
        total_counts(dropped),
        kept,
        round(int(pc.sum(pc.binary_length(batch["text"])).as_py() or 0) * left),
        round(len(content) * left),
        sent,
        staged,
    )


def _count_paragraphs(batch: pa.RecordBatch, rule: Paragraphs, clock: Clock) -> int:
    """The bytes sent to find repeated paragraphs."""
    few = list_paragraphs(batch.slice(0, 1), rule)  # compiles
    find_repeated([to_stream(some) for _, some in send_paragraphs(few, 1)], rule.most, 1)
    with clock.part("repeated paragraphs"):
        rows = list_paragraphs(batch, rule)
        find_repeated([to_stream(some) for _, some in send_paragraphs(rows, 1)], rule.most, 1)
    return rows.nbytes
