"""Seconds of `trace` for one step and for one document of a set of many rows.

    python -m tests.benchmarks.trace_seconds --rows=10000000 --batch_size=256 --epochs=3

The set is one shard of real rows under many names, see linked_sets.py, each name with documents of
its own. The run is a directory of settings and metrics, as after its last step. Whole commands are
timed, with the start of Python.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.linked_sets import linked_set
from tests.benchmarks.measure import run_command
from textmill.trainers.reader import ShardSet
from textmill.trainers.run.journal import METRICS
from textmill.trainers.run.run_directory import write_settings


def write_run(output: Path, shards: ShardSet, *, batch_size: int, epochs: int) -> int:
    """The files of a finished run that trace needs; returns its steps."""
    output.mkdir()
    config = {"shards": shards.directory, "train_split": "train", "seed": 1}
    settings = {"trainer": "flax_mlm", "model": {}, "fingerprint": shards.fingerprint}
    write_settings(output, {**settings, "config": {**config, "batch_size": batch_size}})
    steps = epochs * shards.rows("train") // batch_size
    with open(output / METRICS, "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({"kind": "train", "step": step, "loss": 2.0, "rate": 1e-4}))
            file.write("\n")
    return steps


def measure(folder: Path, rows: int, batch_size: int, epochs: int, times: int) -> Iterator[str]:
    """A line of seconds for steps, and one for documents."""
    _, many, rows = linked_set(folder, 44, rows)
    shards, run = ShardSet(many, verify=False), folder / "run"
    steps = write_run(run, shards, batch_size=batch_size, epochs=epochs)
    command = [sys.executable, "-m", "trainers.trace", run, "--json"]
    choose = random.Random(0)
    chosen = [choose.randint(1, steps) for _ in range(times)]
    seconds, digests = [], []
    for step in chosen:
        took, said = run_command([*command, f"--step={step}"])
        report = json.loads(said)
        seconds.append(took)
        digests.append((step, choose.choice(report["documents"])["document"]))
    about = f"{rows:,} rows, steps of {batch_size}, {epochs} epochs"
    yield f"{about}: a step {_middle(seconds)}, {len(report['documents']):,} documents"
    seconds = []
    for step, digest in digests:
        took, said = run_command([*command, f"--document={digest}"])
        seconds.append(took)
        assert step in {one["step"] for one in json.loads(said)["steps"]}
    yield f"{about}: a document {_middle(seconds)}"


def _middle(seconds: list) -> str:
    """The median of processor and wall time."""
    wall = statistics.median(one.wall for one in seconds)
    return f"{wall:.2f} s ({statistics.median(one.cpu for one in seconds):.2f} s of a processor)"


def main() -> None:
    """Measures, and prints the lines."""
    parser = argparse.ArgumentParser(description="Times trace.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in measure(Path(folder), *vars(options).values()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
