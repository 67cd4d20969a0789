"""What a corpus takes on a cluster, from rates that were measured on one machine. Pure.

The rates are of reviews with RoBERTa's tokenizer, L = 128, masked (tests/benchmarks measures them);
the rest follows from how documents are routed, by their hash, to S shards. The D documents that a
worker holds before it sends them go to S (1 - (1 - 1/S)^D) shards, each an element of the shuffle;
a shard gets a binomial number of documents.
"""

import math
from dataclasses import dataclass

from pipelines.duplicates.job import ROUNDS_BEFORE, count_partitions
from pipelines.duplicates.rows import ASK, EDGE, MEMBER
from pipelines.readers.source import BLOCK_BYTES
from pipelines.runners.exchange import BUFFER_BYTES

BESIDE_BYTES = 28  # of a document beside its tokens: hash, length, copies
SHARD_TIMES = 3  # bytes of a shard's text that its writer holds, in times of them: see plan.py


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

    block_ms_a_megabyte: float = 6.0
    """CPU, from raw text to example batches."""
    shard_ms_a_megabyte: float = 8.5
    """CPU, from example batches to a verified shard, by text."""
    element_us: float = 37.0
    """CPU of an element: 16 to pack and unpack, 21 through Beam's GroupByKey."""
    element_bytes: int = 500
    """Of an element beside its documents' tokens and hashes."""
    count_ms_a_megabyte: float = 15.0
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
    data_bytes = token_bytes + corpus.documents * BESIDE_BYTES
    sent = max(
        1.0, min(data_bytes / BUFFER_BYTES, blocks)
    )  # how often a worker sends what it holds
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
            "blocks": text / 1e9 * rates.block_ms_a_megabyte,
            "elements": elements * rates.element_us / 1e6,
            "shards": text / 1e9 * rates.shard_ms_a_megabyte,
            "start": rates.start_seconds * corpus.workers,
        },
    )


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
    sign_ms_a_megabyte: float = 7.5
    """CPU, from text to members of buckets, and their pairs."""
    set_ms_a_megabyte: float = 20.0
    """CPU, from text that is read again to verified pairs, of documents that met a candidate: 9 are
    measured, for sets; the rest is assumed."""
    read_ms_a_megabyte: float = 2.5
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
    """Computes what --near_duplicates adds to a run over a corpus."""
    documents, partitions = corpus.documents, count_partitions(int(corpus.text_bytes))
    blocks = max(1, math.ceil(corpus.text_bytes / BLOCK_BYTES))
    met = documents * near.met
    pairs = met * near.pairs / 2  # each has two documents
    set_bytes = 8 * corpus.text_bytes / documents / near.word_bytes + ASK.itemsize
    members = documents * near.bands
    travels = {  # rows, bytes of each, keys, how often all of them go
        "members of buckets": (members, MEMBER.itemsize, partitions),
        "what is asked": (2 * pairs, ASK.itemsize, blocks),
        "sets": (min(2.0, 1 + near.pairs / 2) * met, set_bytes, partitions),
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
            "signing": text * near.sign_ms_a_megabyte,
            "reading again": text * near.read_ms_a_megabyte,
            "sets": text * near.met * near.set_ms_a_megabyte,
            "elements": elements * rates.element_us / 1e6,
        },
    )


def routes_of(documents: float, shards: int) -> float:
    """How many shards documents go to, on average."""
    return shards * -math.expm1(documents * math.log1p(-1 / shards)) if shards > 1 else 1.0


def largest_shard(documents: float, spread: float, shards: int) -> float:
    """The text of the largest of many shards, in means.

    Its documents are Poisson's, each with a size of its own: mean 1, standard deviation
    sqrt((1 + spread^2) / documents); the largest of n normal values lies sqrt(2 ln n) of those up.
    """
    if shards == 1:
        return 1.0
    return 1 + math.sqrt((1 + spread**2) / max(documents, 1.0) * 2 * math.log(shards))
