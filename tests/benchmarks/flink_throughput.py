"""What a Flink cluster of two hosts costs beside a local run.

    python -m tests.benchmarks.flink_throughput

Both have the same two cores. Processor time is that of all processes of the run; a job's steps and
the bytes between them are Flink's own numbers.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import tyro

from tests.benchmarks.corpora import write_corpus
from tests.tools.flink_cluster import Cluster, flink_cluster
from tests.tools.places import ROOT
from textmill.schemas.files.finished import read_dataset

HEAD = (
    "| | seconds | MB/s | CPU s of Python | of Java | of the command | workers started | "
    "MB between steps |\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Options:
    """Sizes and flags of the runs."""

    megabytes: float = 100
    """Size of the text: reviews, each with a number of its own."""
    num_shards: int = 8
    """Shards of the dataset."""
    flags: tuple[str, ...] = ()
    """For Beam, on the cluster."""


@dataclass
class Taken:
    """Seconds of a run, and of its processes by kind."""

    clock: float = 0
    python: float = 0
    java: float = 0
    command: float = 0


def _cpu(process: psutil.Process, *, children: bool) -> float:
    times = process.cpu_times()
    own = times.user + times.system
    return own + times.children_user + times.children_system if children else own


def _of_cluster(cluster: Cluster) -> tuple[float, float]:
    """CPU seconds of Python and of Java until now."""
    python = sum(_cpu(psutil.Process(pid), children=True) for pid in cluster.workers())
    java = 0.0
    for name, process in cluster.processes.items():
        if name.startswith("pool"):
            python += _cpu(psutil.Process(process.pid), children=True)
        else:
            java += _cpu(psutil.Process(process.pid), children=False)
    return python, java


@contextmanager
def _measured(cluster: Cluster | None) -> Iterator[Taken]:
    taken, me = Taken(), psutil.Process()
    python, java = _of_cluster(cluster) if cluster else (0.0, 0.0)
    command, began = _cpu(me, children=True) - _cpu(me, children=False), time.monotonic()
    yield taken
    taken.clock = time.monotonic() - began
    taken.command = _cpu(me, children=True) - _cpu(me, children=False) - command
    if cluster:
        now = _of_cluster(cluster)
        taken.python, taken.java = now[0] - python, now[1] - java


def _run(command: Sequence[str], cluster: Cluster | None) -> Taken:
    import subprocess

    with _measured(cluster) as taken:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return taken


def _between_steps(cluster: Cluster) -> float:
    """MB that the last job's steps handed on."""
    jobs = cluster.rest("jobs/overview")["jobs"]
    last = max(jobs, key=lambda job: job["start-time"])["jid"]
    vertices = cluster.rest(f"jobs/{last}")["vertices"]
    return sum(vertex["metrics"]["read-bytes"] for vertex in vertices) / 1e6


def _started(cluster: Cluster) -> int:
    """Workers that the pools have started."""
    logs = cluster.folder.glob("pool_*.log")
    return sum(log.read_text().count("Starting worker with command") for log in logs)


def main(argv: list[str]) -> None:
    """Prints a table."""
    options = tyro.cli(Options, args=argv, use_underscores=True)
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="textmill-flink-") as made:
        folder = Path(made)
        size = write_corpus(folder / "text.txt", options.megabytes)
        count = ["pipelines.train_tokenizer", f"--input={folder / 'text.txt'}", "--document=line"]
        count += ["--vocab_size=16000"]
        build = [
            "pipelines.build_shards",
            "--task=mlm",
            f"--input={folder / 'text.txt'}",
            "--document=line",
        ]
        build += [f"--tokenizer={folder / 'local_0'}", f"--num_shards={options.num_shards}"]
        build += ["--max_length=128"]

        def both(name: str, cluster: Cluster | None) -> None:
            flags = [*cluster.flags(), *options.flags] if cluster else []
            for number, command in enumerate((count, build)):
                output = folder / f"{name}_{number}"
                shutil.rmtree(output, ignore_errors=True)
                before = _started(cluster) if cluster else 0
                taken = _run([*command, f"--output={output}", *flags], cluster)
                started = _started(cluster) - before if cluster else 0
                moved = _between_steps(cluster) if cluster else 0
                print(
                    f"| {command[0].partition('.')[2]}, {name} | {taken.clock:.0f} | "
                    f"{size / taken.clock / 1e6:.1f} | {taken.python:.0f} | {taken.java:.0f} | "
                    f"{taken.command:.0f} | {started} | {moved:.0f} |",
                    flush=True,
                )

        both("local", None)
        with flink_cluster(task_heap="1024m") as cluster:
            both("flink", cluster)
            both("flink", cluster)
        sets = [
            read_dataset(str(folder / f"{name}_1")).manifest.files for name in ("local", "flink")
        ]
        assert sets[0] == sets[1], "the sets differ"


if __name__ == "__main__":
    main(sys.argv[1:])
