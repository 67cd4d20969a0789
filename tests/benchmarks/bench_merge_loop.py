"""The merge loop alone, numba's, beside the same in plain Python.

    python -m tests.benchmarks.bench_merge_loop --words=400000 --vocab_size=32261

Words and counts are those of reviews and sources, the most frequent first. Plain Python is a heap
of pairs with the words that hold each (below): a fair method, and what one would write; its merges
must be ours. It may take fewer words, and then its seconds are scaled, as if they were linear in
the words, and that is said. Compiling (numba caches it) is not timed.
"""

import heapq
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.benchmarks.clock import Seconds, timed
from tests.benchmarks.commands import train
from tests.benchmarks.corpora import write_corpus
from tests.benchmarks.measure import (
    CannotRun,
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    versions,
)
from textmill.pipelines.encoding.patterns import byte_characters, first_tokens
from textmill.pipelines.tokenizer.byte_level_bpe import train_bpe
from textmill.pipelines.tokenizer.histogram import read_histogram

Pair = tuple[int, int]


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 110
    """Of text whose words are counted."""
    words: int = 400_000
    """Distinct ones that are merged, the most frequent."""
    plain_words: int = 200_000
    """Of these, for plain Python."""
    merges: int = 32_000
    """Of both."""


def measure(options: Bench) -> Iterator[Record]:
    """One row."""
    table = _word_counts(options.megabytes)
    table = table.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, options.words)
    words, counts = pa.concat_arrays(table["word"].chunks), table["count"].to_numpy()
    few = min(options.plain_words, len(words))
    vocab_size = 256 + options.merges

    def ours(number: int) -> list[tuple[str, str]]:
        return train_bpe(words[:number], counts[:number], vocab_size=vocab_size).merges

    ours(1000)  # compiles
    found = alternated(
        {
            "ours": partial(timed, lambda: ours(len(words))),
            "few": partial(timed, lambda: ours(few)),
            "plain": partial(
                timed, lambda: plain_merges(words[:few].to_pylist(), counts[:few], vocab_size)
            ),
        },
        options.runs,
    )
    if found["few"][0][1] != found["plain"][0][1]:
        raise CannotRun("plain Python found other merges")
    factor = len(words) / few
    scaled = Runs(Seconds(s.wall * factor, s.cpu * factor) for s, _ in found["plain"])
    mine, same, plain = (Runs(s for s, _ in found[name]) for name in ("ours", "few", "plain"))
    what = f"{options.merges:,} merges"
    used = versions("numba", "numpy")
    note = f"scaled from {few:,} words" if factor > 1 else ""
    yield Record(
        f"the merge loop, {len(words):,} words, {what}",
        Side.time("numba", mine),
        Side.time("plain Python", scaled, note=note),
        reach=10,
        aim=30,
        versions=used,
    )
    if factor > 1:
        yield Record(
            f"the merge loop, {few:,} words, {what}",
            Side.time("numba", same),
            Side.time("plain Python", plain),
            versions=used,
        )


def _word_counts(megabytes: float) -> pa.Table:
    """As train_tokenizer counts them."""
    with tempfile.TemporaryDirectory() as folder:
        text, output = Path(folder, "text.txt"), Path(folder, "tokenizer")
        write_corpus(text, megabytes)
        train(output, f"--input={text}", "--vocab_size=300")
        return read_histogram(str(output / "histogram.parquet")).counts


def plain_merges(words: list[bytes], counts: np.ndarray, vocab_size: int) -> list[tuple[str, str]]:
    """Merges as `train_bpe` gives them, without special tokens, with nothing but Python."""
    tokens = first_tokens(())
    ids = [tokens.index(character) for character in byte_characters()]
    spelled, times = [[ids[byte] for byte in word] for word in words], counts.tolist()
    totals: Counter[Pair] = Counter()
    holders: dict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(spelled):
        for pair in zip(word, word[1:], strict=False):
            totals[pair] += times[number]
            holders[pair].add(number)
    heap = [(-total, pair) for pair, total in totals.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(tokens) < vocab_size:
        negative, best = heapq.heappop(heap)
        if totals[best] != -negative:  # it has become less since
            if totals[best] > 0:
                heapq.heappush(heap, (-totals[best], best))
            continue
        if -negative < 2:
            break
        made = len(tokens)
        merges.append((tokens[best[0]], tokens[best[1]]))
        tokens.append("".join(merges[-1]))
        more: set[Pair] = set()
        for number in holders.pop(best):
            word = spelled[number]
            merged = _merged(word, best, made)
            if len(merged) == len(word):
                continue
            for pair in zip(word, word[1:], strict=False):
                totals[pair] -= times[number]
            for pair in zip(merged, merged[1:], strict=False):
                totals[pair] += times[number]
                if made in pair:
                    holders[pair].add(number)
                    more.add(pair)
            spelled[number] = merged
        for pair in more:
            heapq.heappush(heap, (-totals[pair], pair))
    return merges


def _merged(word: list[int], pair: Pair, made: int) -> list[int]:
    merged, place = [], 0
    while place < len(word):
        if place + 1 < len(word) and (word[place], word[place + 1]) == pair:
            merged.append(made)
            place += 2
        else:
            merged.append(word[place])
            place += 1
    return merged


if __name__ == "__main__":
    entry(measure, Bench)
