"""One corpus on every engine and into every store.

    python -m tests.stress.same_bytes [--input=TEXT] [--build='--task=tokens --file_format=npy']

Prints a table: where it ran, where it was written, and the beginnings of sha256 of tokenizer.json
and of MANIFEST.json of the corpus and of the set, which hold the sha256 of all other files. Exit
code 1 if two differ.
"""

import contextlib
import os
import pydoc_data.topics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import tyro

from tests.tools.flink_cluster import flink_cluster
from tests.tools.places import ROOT
from tests.tools.prism import started_prism
from tests.tools.store_servers import Server, Store, gs_server, s3_server
from textmill.pipelines.runners.launch import IN_PROCESS
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

LOCAL = [f"--runner={IN_PROCESS}"]
WORKERS = "--direct_num_workers=2"


@dataclass(frozen=True)
class Options:
    """Which text goes everywhere."""

    input: str | None = None
    """A file; Python's own help if None."""
    vocab_size: int = 2000
    """Of the tokenizer."""
    corpus: str = "--near_duplicates=jaccard:0.7 --duplicate_paragraphs=line:20 --num_files=3"
    """Flags of build_corpus."""
    build: str = "--document=paragraph"
    """Flags of build_shards."""


def main(argv: list[str]) -> None:
    """Runs all, prints the table."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.same_bytes", args=argv, use_underscores=True
    )
    with tempfile.TemporaryDirectory(prefix="textmill-same-") as folder:
        text = Path(options.input or Path(folder) / "topics.txt")
        if not options.input:
            text.write_text("\n".join(pydoc_data.topics.topics.values()))
        print("| runner | written to | tokenizer.json | corpus | set | seconds |")
        print("|---|---|---|---|---|---|")
        seen, first = set(), f"{folder}/in one process"
        for engine, store, flags, environment in _places(Path(folder)):
            began = time.monotonic()
            where = store.url() if store else f"{folder}/{engine}/"
            _run("train_tokenizer", text, where + "bpe", environment, flags, options, first)
            _run("build_corpus", text, where + "corpus", environment, flags, options, first)
            _run("build_shards", text, where + "set", environment, flags, options, first)
            names = ("bpe/tokenizer.json", "corpus/MANIFEST.json", "set/MANIFEST.json")
            read = store.get if store else (lambda name, at=where: Path(at + name).read_bytes())
            found = tuple(sha256(read(name)).hexdigest() for name in names)
            seen.add(found)
            target = f"{store.scheme}://" if store else "disk"
            took = f"{time.monotonic() - began:.0f}"
            sums = " | ".join(f"`{digest[:16]}`" for digest in found)
            print(f"| {engine} | {target} | {sums} | {took} |", flush=True)
    if len(seen) > 1:
        raise DataError("they are not all equal")


def _places(folder: Path) -> Iterator[tuple[str, Store | None, list[str], dict[str, str]]]:
    """Name of an engine, store or None, flags, environment."""
    threads = [*LOCAL, "--direct_running_mode=multi_threading", WORKERS]
    processes = [*LOCAL, "--direct_running_mode=multi_processing", WORKERS]
    yield "in one process", None, LOCAL, {}
    yield "in two threads", None, threads, {}
    yield "two worker processes", None, processes, {}
    yield "Prism", None, started_prism(), {}
    with flink_cluster() as cluster:
        yield "Flink, two hosts", None, cluster.flags(), {}
    for serve in (gs_server, s3_server):
        with _served(serve, folder) as server:
            for engine, flags in (("in one process", LOCAL), ("two worker processes", processes)):
                yield engine, Store(server), flags, server.environment
            yield "Prism", Store(server), started_prism(), server.environment


@contextlib.contextmanager
def _served(serve, folder: Path) -> Iterator[Server]:
    logs = folder / serve.__name__
    logs.mkdir()
    with serve(logs) as server:
        yield server


def _run(
    command: str,
    text: Path,
    output: str,
    environment: dict[str, str],
    flags: list[str],
    options: Options,
    first: str,
) -> None:
    own = {  # one tokenizer for all sets: they note where it lay
        "train_tokenizer": ["--document=line", f"--vocab_size={options.vocab_size}"],
        "build_corpus": ["--document=paragraph", *options.corpus.split()],
        "build_shards": [f"--tokenizer={first}/bpe", "--num_shards=4", *options.build.split()],
    }[command]
    done = subprocess.run(
        [sys.executable, "-m", f"pipelines.{command}", f"--input={text}", f"--output={output}"]
        + own
        + flags,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise DataError(f"{command} {' '.join(flags)}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    run_entry(main)
