"""The plan of train_tokenizer: a sample's words are counted and merged as in the run."""

import math
from dataclasses import dataclass

import numpy as np

from textmill.pipelines.readers.sources import BLOCK_BYTES
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.plan import Clock, Needs, RunPlan
from textmill.pipelines.runners.sample import Sample, take_sample
from textmill.pipelines.tokenizer import histogram
from textmill.pipelines.tokenizer.options import TokenizerOptions, load_model
from textmill.pipelines.tokenizer.word_counter import BUCKETS, WordCounter
from textmill.pipelines.user_filter import choose_documents

_TIMES_BLOCK = 3  # measured: a worker's memory for a block, in multiples of its text
_TIMES_WORDS = 6  # and for distinct words, in multiples of their bytes in Arrow; merging too
_TOKEN_BYTES = 60  # of tokenizer.json, for a token and its merge
_SHUFFLES = 2  # counts by bucket of words, and all buckets to one worker


@dataclass(frozen=True)
class TokenizerPlan:
    """A run of train_tokenizer and its estimate.

    Attributes:
      options: the options of the run.
      plan: disk, memory, time and shuffles.
      documents: number that is read.
      dropped: number by reason.
      words: number that is counted.
      distinct: number of distinct words.
    """

    options: TokenizerOptions
    plan: RunPlan
    documents: float
    words: float
    distinct: float


def plan_tokenizer(options: TokenizerOptions, run: BlockRun, times: float) -> TokenizerPlan:
    """Estimates a run whose inputs are `times` as large as the given ones.

    Raises:
      DataError: the sample cannot be read.
    """
    sample = take_sample(run.source, run.blocks)
    whole = sample.stored == run.total_bytes and sample.taken == sample.text and times == 1
    text = times * run.total_bytes * sample.text / max(sample.stored, 1)
    scale = 1.0 if whole else text / max(sample.taken, 1)
    clock, exponent, counted = _count(options, run, sample)
    table = counted.counts
    distinct = table.num_rows * scale**exponent
    word_bytes = table.nbytes / max(table.num_rows, 1)
    model, merging = load_model(options.model), Clock()
    words = model.words_of(counted, options)
    with merging.part("merging"):
        model.train(words, options, np.zeros(2, np.int64))
    more_words = distinct / max(table.num_rows, 1)
    blocks = max(1, math.ceil(text / BLOCK_BYTES))
    of_block = table.num_rows * (min(BLOCK_BYTES, text) / max(sample.taken, 1)) ** exponent
    sent = blocks * of_block * word_bytes
    needs = Needs(
        whole=whole,
        sampled_bytes=sample.stored,
        text_bytes=text,
        cpu_seconds={name: seconds * scale for name, seconds in clock.cpu.items()},
        serial_seconds={"merging": merging.cpu["merging"] * more_words},
        slowdown=clock.slowdown,
        output_bytes=distinct * len(histogram.to_parquet(counted)) / max(table.num_rows, 1)
        + _TOKEN_BYTES * options.vocab_size,
        shuffled_bytes=sent,
        block_bytes=_TIMES_BLOCK * min(BLOCK_BYTES, text) + _TIMES_WORDS * of_block * word_bytes,
        serial_bytes=_TIMES_WORDS * distinct * word_bytes,
        shuffles=_SHUFFLES,
        elements=blocks * (BUCKETS + 2) * (not run.is_local or times != 1),
        blocks=blocks,
        keys=BUCKETS,
    )
    return TokenizerPlan(
        options,
        RunPlan(run, options.output, "tokenizer and histogram", needs, times),
        sum(piece.read for piece in sample.pieces) * scale,
        sum(table["count"].to_pylist()) * scale,
        distinct,
    )


def _count(
    options: TokenizerOptions, run: BlockRun, sample: Sample
) -> tuple[Clock, float, histogram.Histogram]:
    """Times the count of words, and finds how distinct words grow with text (Heaps' exponent)."""
    clock, cutting = Clock(), options.cutting
    share = sample.taken / max(sample.text, 1)
    clock.add("reading", sample.cpu_seconds * share, sample.seconds * share)
    texts = [choose_documents(run.filter, piece).documents.text for piece in sample.pieces]
    WordCounter().count(texts[0].slice(0, 1), cutting)  # compiles
    counter, half = WordCounter(), WordCounter()
    with clock.part("counting words"):
        for text in texts:
            counter.count(text, cutting)
        table = counter.table()
    for text in texts[::2] if len(texts) > 1 else [texts[0].slice(0, len(texts[0]) // 2)]:
        half.count(text, cutting)
    counts = table.sort_by("word")
    sizes = [histogram.array_bytes(text) for text in texts]
    origin = histogram.Origin(cutting, sum(map(len, texts)), sum(sizes), sum(sizes))
    tables = counts["count"].to_numpy().sum(), half.table()["count"].to_numpy().sum()
    ratio = tables[0] / max(tables[1], 1)
    growth = table.num_rows / max(half.table().num_rows, 1)
    exponent = math.log(growth) / math.log(ratio) if ratio > 1 and growth > 1 else 0.0
    return clock, min(1.0, exponent), histogram.Histogram(counts, origin)
