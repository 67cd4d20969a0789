"""What a corpus of any size would take on any number of workers: formulae and a simulation.

    python -m tests.benchmarks.simulate_scale --terabytes=10 --workers=500

Nothing is run on a cluster. The rates are those of one machine: sources with GPT-2's vocabulary,
clm, L = 1,024 (bench_build_shards measures them); documents are as long as reviews. The rest
follows from how documents are routed, by their hash, to S shards. The D documents that a worker
holds before it sends them go to S (1 - (1 - 1/S)^D) shards, each an element of the shuffle; a shard
gets a binomial number of documents. The formulae of elements and of the largest shard are checked
by drawing.
"""

import math
from dataclasses import dataclass

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from textmill.pipelines.corpus.near_duplicates.rows import ASK, EDGE, MEMBER, PAIR, PLACE
from textmill.pipelines.corpus.near_duplicates.steps import ROUNDS_BEFORE
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.input_options import InputFlags
from textmill.pipelines.readers.sources import BLOCK_BYTES
from textmill.pipelines.runners.shuffle import (
    BUFFER_BYTES,
    ELEMENT_BYTES,
    ELEMENT_SECONDS,
    routes_of,
)
from textmill.pipelines.shards.options import SplitFlags

_DRAWN = 40
DOCUMENT_BYTES = 28  # of a document in the shuffle beside its tokens: hash, length, copies
SHARD_TIMES = 3  # bytes of a shard's text that its writer holds, in times of them


@dataclass(frozen=True)
class Corpus:
    """Text and its shards.

    Attributes:
      text_bytes: of all documents.
      documents: number.
      tokens: that the tokenizer makes of them.
      shards: of the largest split.
      workers: cores, each with a worker of its own.
      share: of the text that goes to these shards.
      spread: standard deviation of the documents' bytes, in means.
      token_bytes: of one on its way to a shard.
    """

    text_bytes: float
    documents: float
    tokens: float
    shards: int
    workers: int
    share: float = 1.0
    spread: float = 0.8
    token_bytes: int = 2


@dataclass(frozen=True)
class Rates:
    """What was measured on one core."""

    block_ms_per_megabyte: float = 22.0
    """CPU, from raw text to example batches."""
    shard_ms_per_megabyte: float = 12.0
    """CPU, from example batches to a verified shard, by text."""
    element_us: float = ELEMENT_SECONDS * 1e6
    """CPU of an element: 16 to pack and unpack, 21 through Beam's GroupByKey."""
    element_bytes: int = ELEMENT_BYTES
    """Of an element beside its documents' tokens and hashes."""
    count_ms_per_megabyte: float = 15.0
    """CPU, of counting words for a tokenizer."""
    start_seconds: float = 4.0
    """Imports and engines of a worker."""


@dataclass(frozen=True)
class Costs:
    """What a corpus takes.

    Attributes:
      blocks: of input.
      together: documents that a worker sends at once.
      routes: shards that these go to.
      elements: of the shuffle.
      token_bytes: of the shuffle, that are tokens.
      shuffle_bytes: of the shuffle, in all.
      largest: text of the largest shard, in means.
      key_bytes: that the shuffle brings for it.
      key_memory: that its writer holds.
      seconds: of CPU, by what takes them.
    """

    blocks: int
    together: float
    routes: float
    elements: float
    token_bytes: float
    shuffle_bytes: float
    largest: float
    key_bytes: float
    key_memory: float
    seconds: dict[str, float]

    @property
    def cpu_hours(self) -> float:
        """CPU hours of all steps together."""
        return sum(self.seconds.values()) / 3600


def costs(corpus: Corpus, rates: Rates) -> Costs:
    """Computes what a run over a corpus takes."""
    text = corpus.text_bytes
    blocks = max(1, math.ceil(text / BLOCK_BYTES))
    token_bytes = corpus.tokens * corpus.token_bytes
    data_bytes = token_bytes + corpus.documents * DOCUMENT_BYTES
    sent = max(1.0, min(data_bytes / BUFFER_BYTES, blocks))  # times that workers send batches
    together = corpus.documents / sent
    routes = routes_of(together, corpus.shards)
    elements = sent * routes
    shuffle_bytes = data_bytes + elements * rates.element_bytes
    part = corpus.share / corpus.shards  # of all that a shard of the largest split has
    largest = largest_shard(corpus.documents * part, corpus.spread, corpus.shards)
    return Costs(
        blocks=blocks,
        together=together,
        routes=routes,
        elements=elements,
        token_bytes=token_bytes,
        shuffle_bytes=shuffle_bytes,
        largest=largest,
        key_bytes=shuffle_bytes * part * largest,
        key_memory=SHARD_TIMES * text * part * largest,
        seconds={
            "blocks": text / 1e9 * rates.block_ms_per_megabyte,
            "elements": elements * rates.element_us / 1e6,
            "shards": text / 1e9 * rates.shard_ms_per_megabyte,
            "start": rates.start_seconds * corpus.workers,
        },
    )


def largest_shard(documents: float, spread: float, shards: int) -> float:
    """The text of the largest of many shards, in means.

    Its documents are Poisson's, each with a size of its own: mean 1, standard deviation
    sqrt((1 + spread^2) / documents); the largest of n normal values lies sqrt(2 ln n) of those up.
    """
    if shards == 1:
        return 1.0
    return 1 + math.sqrt((1 + spread**2) / max(documents, 1.0) * 2 * math.log(shards))


@dataclass(frozen=True)
class Near:
    """What is near in a corpus, which is assumed, and rates of one core."""

    met: float = 0.3
    """Share of documents that meet a candidate."""
    pairs: float = 3.0
    """Candidate pairs of each of these."""
    hottest: float = 1e-4
    """Share of documents in the fullest bucket."""
    bands: int = 14
    """Of a signature."""
    word_bytes: float = 6.0
    """Of a word, with its space."""
    sign_ms_per_megabyte: float = 7.5
    """CPU, from text to members of buckets, and their pairs."""
    set_ms_per_megabyte: float = 20.0
    """CPU, from text that is read again to verified pairs, of documents that met a candidate: 9 are
    measured, for sets; the rest is assumed."""
    read_ms_per_megabyte: float = 2.5
    """CPU, to read text again."""


@dataclass(frozen=True)
class NearCosts:
    """What finding near-duplicates takes.

    Attributes:
      shuffle_bytes: by what travels.
      elements: of all shuffles.
      key_bytes: of the largest partition of buckets, without a hot one.
      hot_bytes: that the fullest bucket adds to its partition.
      rest_bytes: of the edges that one place decides, if a tenth is open after all rounds.
      seconds: of CPU, by what takes them.
    """

    shuffle_bytes: dict[str, float]
    elements: float
    key_bytes: float
    hot_bytes: float
    rest_bytes: float
    seconds: dict[str, float]


def near_costs(corpus: Corpus, near: Near, rates: Rates) -> NearCosts:
    """Computes what --near_duplicates adds to build_corpus."""
    documents = corpus.documents
    partitions = CorpusOptions(reading=InputFlags(("x",)), output="x").files(int(corpus.text_bytes))
    met = documents * near.met
    pairs = met * near.pairs / 2  # each has two documents
    set_bytes = 8 * corpus.text_bytes / documents / near.word_bytes + PLACE.itemsize
    members = documents * near.bands
    travels = {  # rows, bytes of each, keys, how often all of them go
        "members of buckets": (members, MEMBER.itemsize, partitions),
        "pairs": (pairs, PAIR.itemsize, partitions),
        "what is asked": (pairs, ASK.itemsize, partitions),
        "sets": (pairs, set_bytes, partitions),  # of the higher document of each
        "edges": (2 * pairs * (ROUNDS_BEFORE + 1), EDGE.itemsize, partitions),
    }
    shuffle_bytes, elements = {}, 0.0
    for name, (rows, size, keys) in travels.items():
        at_once = min(rows, BUFFER_BYTES / size)
        sent = rows / at_once * routes_of(at_once, keys)
        shuffle_bytes[name] = rows * size + sent * rates.element_bytes
        elements += sent
    text = corpus.text_bytes / 1e9
    largest = largest_shard(members / partitions, 0.0, partitions)
    return NearCosts(
        shuffle_bytes=shuffle_bytes,
        elements=elements,
        key_bytes=members / partitions * MEMBER.itemsize * largest,
        hot_bytes=documents * near.hottest * MEMBER.itemsize,
        rest_bytes=0.1 * pairs * EDGE.itemsize,
        seconds={
            "signing": text * near.sign_ms_per_megabyte,
            "reading again": text * near.read_ms_per_megabyte,
            "sets": text * near.met * near.set_ms_per_megabyte,
            "elements": elements * rates.element_us / 1e6,
        },
    )


@dataclass(frozen=True)
class Scale:
    """The corpus, the workers, and rates measured on one machine."""

    terabytes: float = 10
    """Of text."""
    workers: int = 500
    """Cores, each with a worker of its own."""
    num_shards: int = 0
    """Of the training split; 0: as build_shards chooses."""
    document_bytes: float = 1465
    """Mean."""
    document_spread: float = 0.8
    """Standard deviation of the documents' bytes, in means."""
    tokens_per_byte: float = 0.265
    """Of text."""
    row_bytes_per_token: float = 5.2
    """On disk: a row of 128 tokens takes 660 bytes."""
    rates: tyro.conf.OmitArgPrefixes[Rates] = Rates()
    """Measured."""
    near: tyro.conf.OmitArgPrefixes[Near] = Near()
    """What is near, and rates of finding it."""


def figures(scale: Scale) -> dict[str, str]:
    """Names and values, in words."""
    text = scale.terabytes * 1e12
    corpus = Corpus(
        text_bytes=text,
        documents=text / scale.document_bytes,
        tokens=text * scale.tokens_per_byte,
        shards=scale.num_shards or _shards_chosen(int(text)),
        workers=scale.workers,
        spread=scale.document_spread,
    )
    taken, shards = costs(corpus, scale.rates), corpus.shards
    per_shard = corpus.documents / shards
    drawn_routes, drawn_largest = simulated(
        taken.together, per_shard, scale.document_spread, shards
    )
    total = sum(taken.seconds.values())
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in taken.seconds.items())
    return {
        "blocks": f"{taken.blocks:,} of 16 MiB",
        "shards": f"{shards:,} of {text / shards / 1e6:,.0f} MB of text; the largest has "
        f"{taken.largest:.3f} of the mean (drawn: {drawn_largest:.3f})",
        "elements of the shuffle": f"{taken.elements:.2g}, {taken.together / taken.routes:.1f} "
        f"documents each; {taken.routes:,.0f} at once (drawn: {drawn_routes:,.0f})",
        "bytes of the shuffle": f"{taken.shuffle_bytes / 1e12:.2f} TB, of which "
        f"{taken.token_bytes / 1e12:.2f} are tokens",
        "memory a key": f"{SHARD_TIMES * text / shards / 1e6:,.0f} MB while its shard is written",
        "bytes of the set": f"{corpus.tokens * scale.row_bytes_per_token / 1e12:.1f} TB",
        "CPU hours": f"{taken.cpu_hours:,.0f} ({parts})",
        "hours on all workers": f"{taken.cpu_hours / scale.workers:.2f}",
    }


def near_figures(scale: Scale) -> dict[str, str]:
    """What --near_duplicates adds, in words."""
    text = scale.terabytes * 1e12
    documents = text / scale.document_bytes
    corpus = Corpus(text, documents, text * scale.tokens_per_byte, 1, scale.workers)
    taken = near_costs(corpus, scale.near, scale.rates)
    total = sum(taken.seconds.values())
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in taken.seconds.items())
    hot = documents * scale.near.hottest
    return {
        **{f"bytes of {n}": f"{b / 1e12:.2f} TB" for n, b in taken.shuffle_bytes.items()},
        "elements of near-duplicates": f"{taken.elements:.2g}",
        "largest partition": f"{taken.key_bytes / 1e6:,.0f} MB of members, held three times; a "
        f"bucket of {hot:,.0f} documents adds {taken.hot_bytes / 1e6:,.0f} MB to one",
        "last place": f"{taken.rest_bytes / 1e9:,.1f} GB, if a tenth of the pairs is open after "
        "all rounds",
        "CPU hours of near-duplicates": f"{total / 3600:,.0f} ({parts})",
    }


def simulated(
    together: float, per_shard: float, spread: float, shards: int, seed: int = 0
) -> tuple[float, float]:
    """The same two numbers, drawn."""
    random = np.random.default_rng(seed)
    hit = [len(np.unique(random.integers(0, shards, round(together)))) for _ in range(_DRAWN)]
    counts = random.poisson(per_shard, shards)
    sizes = random.gamma(np.maximum(counts, 1) / spread**2, spread**2) * (counts > 0)
    return float(np.mean(hit)), float(sizes.max() / sizes.mean())


def _shards_chosen(text_bytes: int) -> int:
    return SplitFlags().shards({"": text_bytes})["train"]


def main() -> None:
    """Prints the table."""
    scale = tyro.cli(Scale, use_underscores=True)
    table = Table(
        title=f"{scale.terabytes:g} TB of text on {scale.workers:,} workers of a core",
        show_header=False,
        title_justify="left",
    )
    for row in (figures(scale) | near_figures(scale)).items():
        table.add_row(*row)
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
