"""How soon each entry shows its --help: what importing it costs.

python -m tests.benchmarks.bench_help
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.measure import Options, Record, Side, alternated, entry, seconds_of, versions
from tests.tools.places import ROOT


@dataclass(frozen=True)
class Bench(Options):
    """Nothing to choose."""


def entries() -> list[str]:
    """All modules that are commands: "pipelines.build_shards", ..."""
    return [
        f"{folder}.{path.stem}"
        for folder in ("pipelines", "trainers")
        for path in sorted((ROOT / folder).glob("*.py"))
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    ]


def measure(options: Bench) -> Iterator[Record]:
    """A row an entry."""
    contestants = {name: partial(seconds_of, name, "--help") for name in entries()}
    for name, runs in alternated(contestants, options.runs).items():
        ours = Side.time(f"python -m {name} --help", runs)
        yield Record(f"--help of {name}, s", ours, None, 2, 0.5, True, versions("tyro"))


if __name__ == "__main__":
    entry(measure, Bench)
