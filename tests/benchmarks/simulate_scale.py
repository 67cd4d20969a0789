"""What a corpus of any size would take on any number of workers: formulae and a simulation.

    python -m tests.benchmarks.simulate_scale --terabytes=10 --workers=500

Nothing is run on a cluster. The rates are those of this machine (see the flags; bench_build_shards
measures them), the rest follows from how documents are routed: by their hash, to S shards. The D
documents that a worker holds before it sends them go to S (1 - (1 - 1/S)^D) shards, each of them an
element of the shuffle; a shard gets a binomial number of documents. Both are drawn as well, to see
that the formulae hold.
"""

import math
from dataclasses import dataclass

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from pipelines.exchange import HELD_BYTES
from pipelines.options import BuildOptions
from pipelines.sources import BLOCK_BYTES
from pipelines.tasks.mlm import Mlm

_DRAWN = 40
_BESIDE_BYTES = 28  # of a document beside its tokens: hash, length, copies


@dataclass(frozen=True)
class Scale:
    """The corpus, the workers, and rates measured on reviews with RoBERTa's tokenizer, L = 128."""

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
    tokens_a_byte: float = 0.265
    """Of text."""
    row_bytes_a_token: float = 5.2
    """On disk: a row of 128 tokens takes 660 bytes."""
    block_ms_a_megabyte: float = 6.0
    """CPU, from raw text to sub-blocks."""
    shard_ms_a_megabyte: float = 8.5
    """CPU, from sub-blocks to a verified shard, by text."""
    element_us: float = 37.0
    """CPU of an element: 16 to pack and unpack, 21 through Beam's GroupByKey."""
    element_bytes: int = 500
    """Of an element beside its documents' tokens and hashes."""
    start_seconds: float = 4.0
    """Imports and engines of a worker."""


def figures(scale: Scale) -> dict[str, str]:
    """Names and values, in words."""
    text = scale.terabytes * 1e12
    shards = scale.num_shards or _shards_chosen(int(text))
    documents, blocks = text / scale.document_bytes, math.ceil(text / BLOCK_BYTES)
    token_bytes = text * scale.tokens_a_byte * 2
    data_bytes = token_bytes + documents * _BESIDE_BYTES
    sent = max(1.0, min(data_bytes / HELD_BYTES, blocks))  # how often a worker sends what it holds
    together = documents / sent
    routes = routes_of(together, shards)
    elements = sent * routes
    shuffled = data_bytes + elements * scale.element_bytes
    a_shard = documents / shards
    of_mean = largest_shard(a_shard, scale.document_spread, shards)
    drawn_routes, drawn_largest = simulated(together, a_shard, scale.document_spread, shards)
    seconds = {
        "blocks": text / 1e9 * scale.block_ms_a_megabyte,
        "elements": elements * scale.element_us / 1e6,
        "shards": text / 1e9 * scale.shard_ms_a_megabyte,
        "start": scale.start_seconds * scale.workers,
    }
    total = sum(seconds.values())
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in seconds.items())
    key_bytes = 3 * text / shards
    return {
        "blocks": f"{blocks:,} of 16 MiB",
        "shards": f"{shards:,} of {text / shards / 1e6:,.0f} MB of text; the largest has "
        f"{of_mean:.3f} of the mean (drawn: {drawn_largest:.3f})",
        "elements of the shuffle": f"{elements:.2g}, {together / routes:.1f} documents each; "
        f"{routes:,.0f} at once (drawn: {drawn_routes:,.0f})",
        "bytes of the shuffle": f"{shuffled / 1e12:.2f} TB, of which {token_bytes / 1e12:.2f} are "
        "tokens",
        "memory a key": f"{key_bytes / 1e6:,.0f} MB while its shard is written",
        "bytes of the set": f"{text * scale.tokens_a_byte * scale.row_bytes_a_token / 1e12:.1f} TB",
        "CPU hours": f"{total / 3600:,.0f} ({parts})",
        "hours on all workers": f"{total / scale.workers / 3600:.2f}",
    }


def routes_of(documents: float, shards: int) -> float:
    """How many shards documents go to, on average."""
    return shards * -math.expm1(documents * math.log1p(-1 / shards)) if shards > 1 else 1.0


def largest_shard(documents: float, spread: float, shards: int) -> float:
    """The text of the largest of many shards, in means.

    Its documents are Poisson's, each with a size of its own: mean 1, standard deviation
    sqrt((1 + spread^2) / documents); the largest of n normal values lies sqrt(2 ln n) of those up.
    """
    return 1 + math.sqrt((1 + spread**2) / documents * 2 * math.log(max(shards, 2)))


def simulated(
    together: float, a_shard: float, spread: float, shards: int, seed: int = 0
) -> tuple[float, float]:
    """The same two numbers, drawn."""
    random = np.random.default_rng(seed)
    hit = [len(np.unique(random.integers(0, shards, round(together)))) for _ in range(_DRAWN)]
    counts = random.poisson(a_shard, shards)
    sizes = random.gamma(np.maximum(counts, 1) / spread**2, spread**2) * (counts > 0)
    return float(np.mean(hit)), float(sizes.max() / sizes.mean())


def _shards_chosen(text_bytes: int) -> int:
    options = BuildOptions(input=("x",), tokenizer="x", output="x", settings=Mlm())
    return options.shards({"": text_bytes})["train"]


def main() -> None:
    """Prints the table."""
    scale = tyro.cli(Scale, use_underscores=True)
    table = Table(
        title=f"{scale.terabytes:g} TB of text on {scale.workers:,} workers of a core",
        show_header=False,
        title_justify="left",
    )
    for row in figures(scale).items():
        table.add_row(*row)
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
