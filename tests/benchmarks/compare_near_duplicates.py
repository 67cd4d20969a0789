"""Near-duplicates beside datatrove's MinHash and datasketch, and signatures beside rensa's.

    uv venv /tmp/baselines
    uv pip install --python /tmp/baselines/bin/python datatrove==0.9.0 orjson spacy tokenizers \
        xxhash==3.5.0 datasketch==2.0.0
    python -m tests.benchmarks.compare_near_duplicates --python=/tmp/baselines/bin/python

All look at runs of five words with 14 bands of 8 hashes, in one process, on reviews of which a
third have a copy with some words changed. Ours reads JSON Lines and says who is removed for whom;
datatrove has its four stages; datasketch signs and looks up. Seconds are of processors, without
start-up. Who is right says the exact similarity of what is removed with what is kept for it.
rensa (installed by baselines.py) makes signatures of 112 hashes of the shingles that ours hashed.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.corpora import REVIEWS, reviews
from tests.benchmarks.measure import (
    Options,
    Record,
    Runs,
    Side,
    alternated,
    entry,
    seconds_of,
    versions,
)
from textmill.pipelines.corpus.near_duplicates.flags import Shingle
from textmill.pipelines.corpus.near_duplicates.shingles import shingle_sets, verify

THRESHOLD = Fraction(4, 5)
_SCRIPTS = "tests.benchmarks.scripts"
Said = dict[str, Any]  # what a script wrote


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 60
    """Of text, for ours."""
    peer_megabytes: float = 30
    """Of text of the same kind, for the others, and for what all of them find."""
    python: str = "python"
    """An interpreter that has the baselines."""
    runs: int = 1
    """Of each side, in turn; medians count."""


def measure(options: Bench) -> Iterator[Record]:
    """A row of signatures, and one a peer."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        large, small = scratch / "large" / "text.jsonl", scratch / "small" / "text.jsonl"
        large_bytes = write_copies(large, options.megabytes)
        small_bytes = write_copies(small, options.peer_megabytes)

        def rensa(python: str) -> Said:  # takes what the latest run of ours wrote
            hashes = max(scratch.glob("*/hashes.npz"), key=lambda path: path.stat().st_mtime)
            return _run("near_rensa", scratch, hashes, python)

        found = alternated(
            {
                "ours": lambda: _run("near_core", scratch, large),
                "rensa": with_baselines(rensa, "rensa"),
                "datatrove": lambda: _run("near_datatrove", scratch, small.parent, options.python),
                "datasketch": lambda: _run("near_datasketch", scratch, small, options.python),
            },
            options.runs,
        )
        texts = [json.loads(line)["text"] for line in small.read_text().splitlines()]
        ours = _run("near_core", scratch, small)
    side = _side("the core", found["ours"], large_bytes, slice(1, None))
    signatures = _side("signatures", found["ours"], large_bytes, slice(1))
    yield Record("signatures of 14 x 8 hashes, a core", signatures, reach=100)
    minima = Runs(Seconds(said["minima"], said["minima"]) for said in found["ours"])
    yield Record(
        "signatures of hashed shingles, 14 x 8 hashes, a core",
        Side.rate("minima", minima, large_bytes / 1e6, "MB", bytes=large_bytes),
        _side("rensa", found["rensa"], large_bytes, slice(None)),
        reach=1,
        versions=versions("numba", "numpy") | baseline_versions("rensa", pins="rensa"),
    )
    print("ours:", judge(texts, ours["pairs"], []))
    for peer, reach in (("datatrove", 10), ("datasketch", 5)):
        note = judge(texts, found[peer][0]["pairs"], ours["pairs"]) if found[peer] else ""
        print(f"{peer}: {note}")
        yield Record(
            f"near-duplicates beside {peer}, a core",
            side,
            _side(peer, found[peer], small_bytes, slice(None), note),
            reach=reach,
            versions=versions("numba", "numpy"),
        )


def write_copies(path: Path, megabytes: float) -> int:
    """Reviews as JSON Lines, of which every third has a copy with words changed; the bytes."""
    path.parent.mkdir()
    generator, chosen, size = np.random.default_rng(0), reviews(*REVIEWS), 0
    texts = [review["text"] for review in chosen[:: max(1, int(len(chosen) / megabytes / 600))]]
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            if size >= megabytes * 1e6:
                break
            words = text.split()
            for place in generator.integers(0, len(words), 1 + len(words) // 60):
                words[place] = words[int(generator.integers(len(words)))]
            for document in (text, " ".join(words))[: 1 + (number % 3 == 0)]:
                file.write(json.dumps({"text": document}) + "\n")
                size += len(document.encode()) + 1
    return size


def _run(script: str, scratch: Path, source: Path, python: str = sys.executable) -> Said:
    result = Path(tempfile.mkdtemp(dir=scratch))
    seconds_of(f"{_SCRIPTS}.{script}", source, result, python=python)
    return json.loads((result / "said.json").read_text())


def _side(name: str, runs: Runs[Said], size: int, stages: slice, note: str = "") -> Side:
    """A rate by the processor's seconds of some stages, and the memory in the note."""
    seconds: Runs[Seconds] = Runs([Seconds(*[sum(said["stages"][stages])] * 2) for said in runs])
    seconds.reason = runs.reason
    most = max((said["megabytes"] for said in runs), default=0)
    told = f"{most:,.0f} MB of memory; {note}".removesuffix("; ")
    return Side.rate(name, seconds, size / 1e6, "MB", bytes=size, note=told)


def judge(texts: list[str], pairs: list[list[int]], ours: list[list[int]]) -> str:
    """What is said of pairs of a removed document and a kept one.

    Args:
      texts: of the documents.
      pairs: of numbers of documents.
      ours: those of the core, to see which of them are missed.
    """
    similarity = _similarities(texts, pairs)
    wrong = similarity[similarity < float(THRESHOLD)]
    said = f"{len(pairs):,} pairs, {len(wrong):,} below {float(THRESHOLD)}"
    said += f" (the least {wrong.min():.2f})" if len(wrong) else ""
    known = {number for pair in pairs for number in pair}
    missed = [pair for pair in ours if not known & set(pair)]
    known = {number for pair in ours for number in pair}
    more = [pair for pair in pairs if not known & set(pair)]
    right = (_similarities(texts, more) >= float(THRESHOLD)).sum()
    return said + (f"; {len(missed)} of ours missed, {right} of these missed by us" if ours else "")


def _similarities(texts: list[str], pairs: list[list[int]]) -> np.ndarray:
    sets = shingle_sets(pa.array(texts, pa.large_string()), Shingle("word", 5))
    numbers = np.array(pairs, np.int64).reshape(-1, 2)
    exact = Fraction(0)  # above it, verify gives 0 for pairs below the threshold
    return verify(sets, numbers[:, 0], sets, numbers[:, 1], exact)


if __name__ == "__main__":
    entry(measure, Bench)
