"""How many rows documents shorter than a row need, beside the fewest that there can be.

    python -m tests.benchmarks.bench_packing --segments=200,2000,20000,200000

Lengths are drawn, with a seed, from those that GPT-2's tokenizer makes of SQuAD's questions and of
reviews (IMDB, NoReC), cut as --task=mlm cuts, with two special tokens a piece. Those of tweets are
drawn by a law: log-normal, median 18, spread 0.65, 140 at most. "tokens" is all tokens through L;
"fewest" is Martello and Toth's bound L2 (1990), below which no packing comes whatever its time;
"best fit" is best-fit decreasing, which packed alone before; then each search that had to be run.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.benchmarks.clock import timed
from tests.benchmarks.corpora import reviews, unpacked
from tests.benchmarks.measure import Options, Record, Runs, Side, entry, needs, versions
from tests.tools.places import DATA
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.rows.packing import pack, try_ways
from textmill.pipelines.rows.ragged import cut

LENGTHS = (128, 512, 2048)
REVIEWS = 10_000  # of each language, the first


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    segments: str = "200,2000,20000,200000"
    """Sizes of shards, with commas between."""


def measure(options: Bench) -> Iterator[Record]:
    """Prints a table; for each size the worst of its shards, and the speed over all."""
    laws = _laws()
    for size in map(int, options.segments.split(",")):
        shards = [
            (name, length, _draw(documents, size, length))
            for length in LENGTHS
            for name, documents in laws.items()
        ]
        what = f"{len(shards)} shards of {size:,} segments"
        yield Record(
            f"rows above the fewest, the worst of {what}",
            Side.values("best_fit", "per mille", Runs([max(_compare(*shard) for shard in shards)])),
            at_most=True,
        )
        seconds = Runs(
            timed(lambda: [_pack(lengths, length) for _, length, lengths in shards])[0]  # noqa: B023
            for _ in range(options.runs)
        )
        speed = Side.rate("best_fit", seconds, len(shards) * size / 1e6, "M segments")
        yield Record(f"packing {what}", speed, versions=versions("numba", "numpy"))


def _laws() -> dict[str, np.ndarray]:
    """Tokens of documents."""
    tokenizer = load_tokenizer(needs(DATA / "tokenizers" / "gpt2"))
    articles = json.loads(unpacked("squad/train-v1.1.json.zst"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    texts = {
        "questions": [question["question"] for each in paragraphs for question in each["qas"]],
        "IMDB": [review["text"] for review in reviews("imdb/train")[:REVIEWS]],
        "NoReC": [review["text"] for review in reviews("norec/train")[:REVIEWS]],
    }
    laws = {
        name: tokenizer.encode(pa.array(some, pa.large_string())).lengths
        for name, some in texts.items()
    }
    drawn = np.random.default_rng(1).lognormal(np.log(18), 0.65, 100_000)
    return {**laws, "tweets": np.clip(np.rint(drawn), 1, 140).astype(np.int64)}


def _draw(documents: np.ndarray, size: int, max_length: int) -> np.ndarray:
    """So many pieces of documents drawn at random."""
    drawn = np.random.default_rng(size).choice(documents, size)
    offsets, _ = cut(np.append(0, np.cumsum(drawn)), max_length - 2)
    return np.diff(offsets)[:size] + 2


def _pack(lengths: np.ndarray, max_length: int) -> int:
    return pack(np.append(0, np.cumsum(lengths)), max_length, "best_fit").rows


def _compare(name: str, max_length: int, lengths: np.ndarray) -> float:
    """Prints a line; the rows that `pack` makes above the fewest, in thousandths of these."""
    _pack(lengths, max_length)  # compiles
    seconds, rows = timed(lambda: _pack(lengths, max_length))
    count_L = np.bincount(lengths, minlength=max_length + 1)
    tokens, fewest = int(lengths.sum()), fewest_rows(count_L)
    before, *searches = (made for made, _ in try_ways(count_L))
    least = -(-tokens // max_length)
    full = [f"{tokens / max_length / each:.2%}" for each in (before, rows, least)]
    print(
        f"{name:9} L {max_length:4} segments {len(lengths):7,} rows: tokens {least:7,} "
        f"fewest {fewest:7,} best fit {before:7,} packed {rows:7,} "
        f"full: {full[0]} -> {full[1]} of {full[2]} {1000 * seconds.cpu:6.1f} ms "
        f"searches {searches}",
        flush=True,
    )
    return 1000 * (rows - fewest) / fewest


def fewest_rows(count_L: np.ndarray) -> int:
    """Martello and Toth's L2: below it no packing comes.

    For any k up to L / 2, segments longer than L - k share a row with none of k and more, those
    longer than L / 2 share none with each other, and the rest of k and more fill what these leave.
    """
    most, half = len(count_L) - 1, (len(count_L) - 1) // 2
    segments_L = np.append(0, np.cumsum(count_L))  # shorter than each length
    tokens_L = np.append(0, np.cumsum(count_L * np.arange(most + 1)))
    k = np.arange(half + 1)
    large, long = segments_L[-1] - segments_L[most - k + 1], segments_L[-1] - segments_L[half + 1]
    room = (long - large) * most - (tokens_L[most - k + 1] - tokens_L[half + 1])
    rest = tokens_L[half + 1] - tokens_L[k]
    return int((long + np.maximum(-((room - rest) // most), 0)).max())


if __name__ == "__main__":
    entry(measure, Bench)
