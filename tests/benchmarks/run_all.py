"""Runs every benchmark and writes benchmarks.md, benchmarks.json and benchmarks.png.

    make bench
    python -m tests.benchmarks.run_all --only=bench_reading,bench_verify
    python -m tests.benchmarks.run_all --small

Each bench is a process of its own, one after another; one that fails is a row that says why. The
figures mean something on an idle machine only. What does not fit into 40 minutes has flags: sources
and all vocabularies in bench_build_shards, a corpus in bench_workers, more text in bench_memory and
bench_train_tokenizer.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.benchmarks.measure import Record, Side, read_records
from tests.benchmarks.report import write_report
from tests.tools.places import ROOT

LONGEST = 900  # seconds that one bench may take


@dataclass(frozen=True)
class Bench:
    """One of the suite.

    Attributes:
      name: of the module.
      seconds: that it takes on two idle cores, about.
      small: flags for a try.
    """

    name: str
    seconds: int
    small: str


SUITE = (
    Bench("bench_build_shards", 360, "--megabytes=5"),
    Bench("bench_tasks", 130, "--megabytes=2"),
    Bench("bench_tokens", 300, "--megabytes=2"),
    Bench("bench_tokenization", 30, "--megabytes=2"),
    Bench("bench_train_tokenizer", 80, "--megabytes=5 --vocab_size=4000"),
    Bench("bench_patterns", 200, "--megabytes=2 --vocab_size=4000"),
    Bench("bench_merge_loop", 70, "--megabytes=5 --plain_words=5000"),
    Bench("bench_histogram", 45, "--megabytes=5"),
    Bench("bench_workers", 60, "--megabytes=5"),
    Bench("bench_packing", 4, "--segments=200"),
    Bench("bench_memory", 80, "--megabytes=20 --less_megabytes=5"),
    Bench("bench_integrity", 80, "--megabytes=5"),
    Bench("bench_found", 15, "--megabytes=5"),
    Bench("bench_help", 25, ""),
    Bench("bench_reading", 130, "--megabytes=5 --rows=2000"),
    Bench("bench_readers", 60, "--megabytes=1"),
    Bench("bench_first_batch", 10, "--megabytes=5 --rows=100000"),
    Bench("bench_store", 30, "--megabytes=5 --rows=50000"),
    Bench("bench_streaming", 240, "--megabytes=500 --part_rows=100000 --peer_rows=2000"),
    Bench("bench_verify", 25, "--megabytes=5 --rows=100000"),
    Bench("bench_compression", 20, "--megabytes=5"),
    Bench("bench_trainers", 300, "--steps=8"),
)


@dataclass(frozen=True)
class Options:
    """What to run."""

    only: str = ""
    """Names of benches, with commas between; none: all."""
    small: bool = False
    """One run of each on little text: the figures mean nothing."""
    output: str = "benchmarks"
    """Folder of the report, from the repository's root."""


def main(options: Options) -> None:
    """Runs them."""
    wanted = set(filter(None, options.only.split(",")))
    unknown = wanted - {bench.name for bench in SUITE}
    if unknown:
        sys.exit(f"there is no {', '.join(sorted(unknown))} among the benches")
    records, began = [], time.monotonic()
    for bench in SUITE:
        if not wanted or bench.name in wanted:
            flags = [*bench.small.split(), "--runs=1"] if options.small else []
            records += run(bench.name, flags)
    folder = ROOT / options.output
    write_report(records, folder)
    took = time.monotonic() - began
    print(f"\n{len(records)} rows in {took / 60:.1f} min: {folder / 'benchmarks.md'}")


def run(name: str, flags: list[str]) -> list[Record]:
    """Runs one; its records, or one that says why there are none."""
    began = time.monotonic()
    print(f"\npython -m tests.benchmarks.{name} {' '.join(flags)}".rstrip(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found, said = Path(folder, "records.json"), Path(folder, "stderr")
        command = [sys.executable, "-m", f"tests.benchmarks.{name}", *flags, f"--records={found}"]
        with open(said, "wb") as errors:
            try:
                code = subprocess.run(command, cwd=ROOT, stderr=errors, timeout=LONGEST).returncode
                why = f"ended with {code}: {_tail(said)}" if code else ""
            except subprocess.TimeoutExpired:
                why = f"took longer than {LONGEST} s"
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
        if why:
            print(f"  {why}")
            return [
                Record(name, Side("textmill", "", (), note=why), command=" ".join(command[1:4]))
            ]
        return read_records(found)


def _tail(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").split())[-300:]


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
