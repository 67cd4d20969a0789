"""build_shards --task=tokens beside the preprocessors of the trainers that it writes for.

    git clone --depth=1 https://github.com/NVIDIA/Megatron-LM benchmarks/Megatron-LM
    python -m tests.benchmarks.bench_tokens

Megatron's are preprocess_data.py with 2 workers and preprocess_data_fast.py, whose gigatoken takes
all cores, both of a checkout, with --append-eod; OLMo-core's is `dolma tokens` with 2 processes.
All read the same reviews, each once, as JSON Lines. Start-up counts on all sides.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_set, workers
from tests.benchmarks.corpora import review_texts, write_json_lines
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    needs,
    run_command,
    seconds_of,
    versions,
)
from tests.tools.places import DATA, ROOT
from textmill.pipelines.encoding.tokenizer import load_tokenizer

MEGATRON = ROOT / "benchmarks" / "Megatron-LM"
_OF_MEGATRON = ("--tokenizer-type=HuggingFaceTokenizer", "--append-eod")
_OF_DOLMA = (
    *("--tokenizer.eos_token_id=50256", "--tokenizer.pad_token_id=50256"),
    *("--processes=2", "--dtype=uint16"),
)


@dataclass(frozen=True)
class Bench(Options):
    """How much."""

    megabytes: float = 92
    """Of text: all reviews."""
    formats: tuple[str, ...] = ("megatron", "npy")
    """Of ours, beside the tools that write them."""


class Peer(NamedTuple):
    """A preprocessor.

    Attributes:
      file_format: of ours that the same trainer reads.
      pins: of the environment that it runs in.
      package: whose version matters.
      workers: what works at once.
      run: runs it with the interpreter of that environment.
    """

    file_format: str
    pins: str
    package: str
    workers: str
    run: Callable[[str], Seconds]


def measure(options: Bench) -> Iterator[Record]:
    """A row a peer."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text = scratch / "reviews.jsonl"
        size = write_json_lines(text, options.megabytes, review_texts())
        tokenizer = needs(DATA / "tokenizers" / "gpt2")

        def ours(file_format: str) -> Seconds:
            flags = ("--task=tokens", f"--file_format={file_format}")
            return build_set(scratch / "set", text, tokenizer, *flags)

        def megatron(script: str, flag: str, python: str) -> Seconds:
            output = Path(tempfile.mkdtemp(dir=scratch), "reviews")
            given = (f"--input={text}", f"--output-prefix={output}", flag)
            given += (f"--tokenizer-model={tokenizer}", *_OF_MEGATRON)
            return run_command([python, needs(MEGATRON) / "tools" / script, *given])[0]

        def dolma(python: str) -> Seconds:
            given = ("--documents", *halves, "--destination", tempfile.mkdtemp(dir=scratch))
            words = ("tokens", f"--tokenizer.name_or_path={older}", *_OF_DOLMA, *given)
            return seconds_of("dolma.cli", *words, python=python)

        halves, older = _write_halves(text), _write_older(tokenizer, scratch)
        peers = {
            "preprocess_data.py": Peer(
                file_format="megatron",
                pins="megatron",
                package="transformers",
                workers="2 processes and one that writes",
                run=partial(megatron, "preprocess_data.py", "--workers=2"),
            ),
            "preprocess_data_fast.py": Peer(
                file_format="megatron",
                pins="megatron",
                package="gigatoken",
                workers="all cores",
                run=partial(megatron, "preprocess_data_fast.py", "--use-gigatoken"),
            ),
            "dolma tokens": Peer(
                file_format="npy", pins="dolma", package="dolma", workers="2 processes", run=dolma
            ),
        }
        for file_format in options.formats:
            some = {name: peer for name, peer in peers.items() if peer.file_format == file_format}
            theirs = {name: with_baselines(peer.run, peer.pins) for name, peer in some.items()}
            found = alternated({"ours": partial(ours, file_format), **theirs}, options.runs)
            rate = partial(Side.rate, work=size / 1e6, of="MB", bytes=size)
            command = f"build_shards --task=tokens --file_format={file_format}"
            for name, peer in some.items():
                yield Record(
                    f"build_shards tokens beside {name}",
                    rate(command, found["ours"], workers=workers(text)),
                    rate(name, found[name], workers=peer.workers),
                    versions=versions("apache-beam", "gigatoken")
                    | baseline_versions(peer.package, "tokenizers", pins=peer.pins),
                )


def _write_halves(text: Path) -> list[Path]:
    """Two files of the lines, as dolma's processes take them, each with an id."""
    halves = [text.with_suffix(f".{number}.jsonl") for number in range(2)]
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    for number, half in enumerate(halves):
        some = (json.loads(line) | {"id": str(i)} for i, line in enumerate(lines[number::2]))
        half.write_text("".join(json.dumps(document) + "\n" for document in some))
    return halves


def _write_older(tokenizer: Path, scratch: Path) -> Path:
    """A tokenizer as tokenizers 0.19 reads it: merges are texts."""
    values = json.loads(load_tokenizer(tokenizer).json)
    values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]
    older = scratch / "older.json"
    older.write_text(json.dumps(values))
    return older


if __name__ == "__main__":
    entry(measure, Bench)
