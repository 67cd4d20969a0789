"""build_shards, the whole command, beside the scripts that its users would write.

    python -m tests.benchmarks.bench_build_shards
    python -m tests.benchmarks.bench_build_shards --texts reviews sources --vocabularies all
    python -m tests.benchmarks.bench_build_shards --megabytes=2 --runs=1

A text has each document once (corpora.py): 92 MB of reviews, or some 1.2 GB of the sources and
documentation that are installed on this machine. Beside build_shards run, with 2 processes each,
scripts/lean_tokenizers.py with `tokenizers` 1.0 and with 0.23, and scripts/language_datasets.py.
The lean script writes ids alone: it packs, deduplicates and checks nothing. The two with 0.23 take
no sources: they would need half an hour. Start-up counts on all sides. Memory is that of one more
run of each, of all its processes together.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.benchmarks import corpora
from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.bench_memory import peak_memory
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import build_command, workers
from tests.benchmarks.measure import (
    CannotRun,
    Options,
    Record,
    Side,
    alternated,
    entry,
    run_command,
    versions,
)
from tests.tools.published_tokenizers import PUBLISHED, write_published
from tests.tools.tokenizer_families import FAMILIES, train_family
from textmill.pipelines.encoding.tokenizer import load_tokenizer

SCRIPTS = "tests.benchmarks.scripts"
GROUPS = {"all": ("GPT-2", "o200k", "Qwen", "DeepSeek V3", "Mistral v7", "BERT")}
THRESHOLDS = {"reviews": (1.0, 1.5), "sources": (1.5, 2.5)}  # beside `tokenizers` 1.0: reach, aim
NEXT = "the lean script, tokenizers 1.0"
TODAY = "the lean script, tokenizers 0.23"
SCRIPT = "the script of `datasets`"
_TRAINING = 20  # MB of reviews, for vocabularies that are trained here
Command = Callable[[Path], list[str]]  # takes an empty directory for what it writes


@dataclass(frozen=True)
class Bench(Options):
    """What to measure."""

    texts: tuple[str, ...] = ("reviews",)
    """`reviews` or `sources`."""
    vocabularies: tuple[str, ...] = ("GPT-2",)
    """Published ones, families to train on reviews, or `all`: six published ones."""
    megabytes: float = 1260
    """Of each text, at most."""
    max_length: int = 1024
    """Tokens a row."""
    flags: str = ""
    """More flags for build_shards."""


def measure(options: Bench) -> Iterator[Record]:
    """A row for each text, vocabulary and script."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for text in options.texts:
            documents = scratch / f"{text}.jsonl"
            size = corpora.write_json_lines(documents, options.megabytes, corpora.TEXTS[text]())
            for group in options.vocabularies:
                for name in GROUPS.get(group, (group,)):
                    tokenizer = write_vocabulary(name, scratch / "tokenizer.json")
                    yield from _measure(options, text, name, documents, size, tokenizer)


def _measure(
    options: Bench, text: str, vocabulary: str, documents: Path, size: int, tokenizer: Path
) -> Iterator[Record]:
    task, commands = _commands(options, documents, tokenizer)
    if text == "sources":
        commands = {name: commands[name] for name in ("ours", NEXT)}
    timed = {name: partial(_run, command, documents.parent) for name, command in commands.items()}
    found = alternated(timed, options.runs)

    def side(name: str) -> Side:
        runs = found[name]
        if runs.reason:
            return Side.time(name, runs)
        memory = _peak(commands[name], documents.parent)
        working = workers(documents) if name == "ours" else "2 processes"
        return Side.time(name, runs, bytes=size, workers=working, memory=memory)

    ours = replace(side("ours"), name=f"build_shards --task={task}")
    used = versions("apache-beam", "gigatoken", "tokenizers", "datasets")
    next_version = baseline_versions("tokenizers", pins="tokenizers_1")
    for name in list(commands)[1:]:
        reach, aim = THRESHOLDS[text] if name == NEXT else (None, None)
        row = f"build_shards {task}, {text}, {vocabulary}, beside {name}"
        yield Record(
            row,
            ours,
            side(name),
            reach,
            aim,
            versions=used | (next_version if name == NEXT else {}),
        )


def _commands(options: Bench, documents: Path, tokenizer: Path) -> tuple[str, dict[str, Command]]:
    """The task of a vocabulary, and what runs for it."""
    roles = load_tokenizer(tokenizer).special_ids
    task = "mlm" if "mask" in roles else "clm"
    flags = [f"--task={task}", f"--max_length={options.max_length}", "--splits=train:1"]
    flags += ["--no_eos"] if task == "clm" and "eos" not in roles else []
    separator = [str(roles["eos"])] if task == "clm" and "eos" in roles else []
    of_next = with_baselines(str, "tokenizers_1")

    def lean(python: str, output: Path) -> list[str]:
        given = [str(documents), str(tokenizer), str(output / "ids"), "2"]
        return [python, "-m", f"{SCRIPTS}.lean_tokenizers", *given]

    def script(output: Path) -> list[str]:
        given = [str(documents), str(tokenizer), str(output), str(options.max_length), *separator]
        return [sys.executable, "-m", f"{SCRIPTS}.language_datasets", *given]

    return task, {
        "ours": lambda output: build_command(
            output / "set", documents, tokenizer, *flags, *options.flags.split()
        ),
        NEXT: lambda output: lean(of_next(), output),
        TODAY: lambda output: lean(sys.executable, output),
        SCRIPT: script,
    }


def _run(command: Command, scratch: Path) -> Seconds:
    with tempfile.TemporaryDirectory(dir=scratch) as output:
        return run_command(command(Path(output)))[0]


def _peak(command: Command, scratch: Path) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as output:
        return peak_memory(command(Path(output)))


def write_vocabulary(name: str, path: Path) -> Path:
    """The tokenizer.json of a published vocabulary, or of a family, trained on reviews."""
    if name in PUBLISHED:
        return write_published(name, path)
    if name not in FAMILIES:
        raise CannotRun(f"there is no vocabulary {name}, only {', '.join([*PUBLISHED, *FAMILIES])}")
    texts = [*corpora.within(corpora.review_texts(), _TRAINING)]
    train_family(name, texts, 32_000).save(str(path))
    return path


if __name__ == "__main__":
    entry(measure, Bench)
