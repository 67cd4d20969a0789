"""What a corpus takes on a cluster: keys, memory and work, by rates of one machine.

The rates are of reviews with RoBERTa's tokenizer, L = 128, masked (tests/benchmarks measures them);
the rest follows from how documents are routed, by their hash, to S shards. The D documents that a
worker holds before it sends them go to S (1 - (1 - 1/S)^D) shards, each an element of the shuffle;
a shard gets a binomial number of documents.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
from rich.filesize import decimal

from pipelines.readers.source import BLOCK_BYTES
from pipelines.runners.preflight.checks import Asked, Check, most_workers
from pipelines.runners.shuffle import BUFFER_BYTES

BESIDE_BYTES = 28  # of a document beside its tokens: hash, length, copies
SHARD_TIMES = 3  # bytes of a shard's text that its writer holds, in times of them: see plan.py
# Beam's messages hold 2 GiB, and Flink keeps all of a key in memory while it is read.
_MOST_KEY_BYTES, _GOOD_KEY_BYTES = 2_000_000_000, 200_000_000
# Measured: a worker with Beam, the engines and a tokenizer (RoBERTa's); and what it takes beside
# that for blocks, with example batches that wait for others, and for counting words.
_WORKER_BYTES, _ROUTE_BYTES, _COUNT_BYTES = 500_000_000, 700_000_000, 200_000_000


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


def check_shards(asked: Asked, taken: Costs, shards: int) -> Iterator[Check]:
    """Keys, memory a worker and work, from the plan."""
    brings = f"{shards:,} shards; the largest key brings {decimal(int(taken.key_bytes))}"
    more = 1 << max(0, (int(shards * taken.key_bytes / _GOOD_KEY_BYTES)).bit_length())
    remedy = f"--num_shards={min(more, 99_999)}"
    if taken.key_bytes > _MOST_KEY_BYTES:
        limit = decimal(_MOST_KEY_BYTES)
        yield Check("keys", "failed", f"{brings}: more than {limit}", remedy)
    else:
        yield Check("keys", "ok", brings)
    remedy = remedy if taken.key_memory > _ROUTE_BYTES else ""
    yield _memory(asked, _WORKER_BYTES + max(_ROUTE_BYTES, taken.key_memory), remedy)
    yield _work(asked, taken.cpu_hours, taken.shuffle_bytes)


def check_counting(asked: Asked, stored_bytes: int) -> Iterator[Check]:
    """Memory a worker and work of train_tokenizer.

    Args:
      asked: the command.
      stored_bytes: of the inputs, as they lie there.
    """
    rates, workers = Rates(), most_workers(asked.beam_arguments) or 1
    yield _memory(asked, _WORKER_BYTES + _COUNT_BYTES, "")
    seconds = stored_bytes / 1e9 * rates.count_ms_a_megabyte + rates.start_seconds * workers
    yield _work(asked, seconds / 3600, None)


def _memory(asked: Asked, need: float, remedy: str) -> Check:
    """Whether a worker has what it takes.

    Args:
      asked: the command.
      need: bytes.
      remedy: what makes it less.
    """
    needs = f"a worker takes up to {decimal(int(need))}"
    if asked.here:
        has = psutil.virtual_memory().total
        said = f"{needs}; this machine has {decimal(has)} for all of them"
        return Check("memory", "ok" if need < has else "failed", said, remedy * (need >= has))
    if asked.on_dataflow:
        said = f"{needs}, and Dataflow starts one for each vCPU"
        remedy = remedy or "take a --machine_type with more memory than that for each vCPU"
        return Check("memory", "not checked", said, remedy)
    return Check("memory", "not checked", f"{needs}; what one has is the cluster's to say", remedy)


def _work(asked: Asked, cpu_hours: float, shuffle_bytes: float | None) -> Check:
    workers = most_workers(asked.beam_arguments)
    parts = [f"about {cpu_hours:,.2f} hours of a core (a vCPU is half of one)"]
    if workers:
        parts.append(f"{cpu_hours / workers:,.2f} h with {workers:,} workers of one")
    if shuffle_bytes is not None:
        parts.append(f"{decimal(int(shuffle_bytes))} through the shuffle")
    return Check(
        "work", "ok", f"{', '.join(parts)}; by rates of one machine (docs/performance.md, Scale)"
    )
