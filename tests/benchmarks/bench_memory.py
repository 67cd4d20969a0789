"""Peak memory of build_shards, all processes together, on much and on little text.

    python -m tests.benchmarks.bench_memory --megabytes=4000 --less_megabytes=400 --runs=1

Memory is PSS, as the kernel shares pages out among processes, looked at every 0.1 s. Both run in
the same way (--flags), since the choice that build_shards makes by itself depends on the size.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.benchmarks.measure import CannotRun, Options, Record, Side, alternated, entry, versions
from tests.tools.places import ROOT

_EVERY = 0.1  # seconds


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 600
    """Of text."""
    less_megabytes: float = 150
    """Of text, to compare with."""
    flags: str = "--direct_running_mode=multi_threading --direct_num_workers=2"
    """More flags for build_shards."""


def measure(options: Bench) -> Iterator[Record]:
    """Two rows."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tokenizer, text = write_tokenizer(scratch / "tokenizer.json"), scratch / "text.txt"
        sizes = {"much": options.megabytes, "little": options.less_megabytes}

        def peak(megabytes: float) -> float:
            write_corpus(text, megabytes)
            flags = [
                f"--input={text}",
                "--document=line",
                f"--tokenizer={tokenizer}",
                f"--output={scratch / 'set'}",
            ]
            flags += [*options.flags.split(), "--overwrite"]
            return peak_memory([sys.executable, "-m", "pipelines.build_shards", *flags])

        found = alternated(
            {name: lambda size=size: peak(size) for name, size in sizes.items()}, options.runs
        )
    much, little = (
        Side.values(
            f"{megabytes:,.0f} MB of text",
            "MB",
            found[name],
            bytes=int(megabytes * 1e6),
            workers=options.flags,
        )
        for name, megabytes in sizes.items()
    )
    used, name = versions("apache-beam", "numpy", "pyarrow"), "peak memory of build_shards mlm"
    yield Record(f"{name}, much text beside little", much, little, 1.1, at_most=True, versions=used)
    yield Record(f"{name}, MB", much, aim=1500, at_most=True, versions=used)


def peak_memory(command: list[str]) -> float:
    """Runs a command: the most MB of it and its children together.

    Raises:
      CannotRun: it failed.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            peak[0] = max(peak[0], _held(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    over.set()
    watcher.join()
    if code:
        raise CannotRun(f"{command[2]} ended with {code}")
    return peak[0] / 1e6


def _held(pid: int) -> int:
    """Bytes of a process and all below it."""
    try:
        parent = psutil.Process(pid)
        members = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    held = 0
    for member in members:
        try:
            held += member.memory_full_info().pss
        except psutil.Error:  # it has just ended
            continue
    return held


if __name__ == "__main__":
    entry(measure, Bench)
