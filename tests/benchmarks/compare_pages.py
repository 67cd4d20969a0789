"""Cost of build_corpus on web pages in two checkouts of the repository, in turn.

    python -m tests.benchmarks.compare_pages --pages=FOLDER --before=DIR --megabytes=1000

The WARC file has the HTML files of a folder, in a seeded order, again and again until it is as
large as --megabytes says. A row has the processor time of the command and its children, the wall
time, and the memory of the largest process: medians of the rounds.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.benchmarks.measure import alternated
from tests.tools.places import ROOT
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import UsageError


@dataclass(frozen=True)
class Options:
    """What is compared."""

    pages: Path
    """Folder of HTML files, at any depth."""
    before: Path
    """Another checkout of the repository."""
    megabytes: int = 1000
    """Size of the pages."""
    rounds: int = 3
    """Runs of each; medians count."""
    html: str = "main"
    """Value of --html."""


def write_warc(path: Path, folder: Path, size: int) -> int:
    """Writes pages of a folder into a WARC file; returns their number."""
    files = sorted(folder.rglob("*.html"))
    if not files:
        raise UsageError(f"--pages={folder}: it has no *.html")
    random.Random(1).shuffle(files)
    count = written = 0
    with path.open("wb") as warc:
        while written < size:
            body = files[count % len(files)].read_bytes()
            content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
            warc.write(
                b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.b/%d\r\n"
                b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (count, len(content), content)
            )
            count, written = count + 1, written + len(content)
    return count


def build(checkout: Path, warc: Path, html: str) -> tuple[float, float, float]:
    """Builds a corpus; returns processor seconds, wall seconds, and megabytes."""
    with tempfile.TemporaryDirectory(dir=warc.parent) as folder:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.build_corpus", f"--input={warc}"]
            + [f"--output={folder}/out", f"--html={html}"],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise UsageError(f"build_corpus of {checkout} ended with {process.returncode}")
        seconds = usage.ru_utime + usage.ru_stime
        return seconds, time.monotonic() - began, usage.ru_maxrss / 1000


def compare(options: Options) -> Iterator[str]:
    """The rows of a table."""
    with tempfile.TemporaryDirectory() as folder:
        warc, small = Path(folder, "pages.warc"), Path(folder, "few.warc")
        count = write_warc(warc, options.pages, options.megabytes * 10**6)
        write_warc(small, options.pages, 1)
        checkouts = {"before": options.before, "now": ROOT}
        for checkout in checkouts.values():  # compiles what is not in the cache
            build(checkout, small, options.html)
        found = alternated(
            {
                name: lambda checkout=checkout: build(checkout, warc, options.html)
                for name, checkout in checkouts.items()
            },
            options.rounds,
        )
    yield f"{count:,} pages, {options.megabytes:,} MB, --html={options.html}"
    medians = {
        name: [statistics.median(run[n] for run in runs) for n in range(3)]
        for name, runs in found.items()
    }
    for name, (cpu, wall, memory) in medians.items():
        ratios = [now / then for now, then in zip(medians[name], medians["before"], strict=True)]
        yield (
            f"{name:8}{cpu:8.1f} s of processor ({ratios[0]:.3f}){wall:8.1f} s ({ratios[1]:.3f})"
            f"{memory:7.0f} MB ({ratios[2]:.2f})"
        )
    for name, runs in found.items():
        yield f"{name:8}" + ", ".join(f"{run[0]:.1f}" for run in runs)


def main(argv: Sequence[str]) -> None:
    """Prints the comparison."""
    for line in compare(tyro.cli(Options, description=__doc__, args=argv)):
        print(line, flush=True)


if __name__ == "__main__":
    run_entry(main)
