"""train_tokenizer beside gigabpe and `tokenizers` on the same documents, all as whole commands.

    python -m tests.benchmarks.bench_train_tokenizer
    python -m tests.benchmarks.bench_train_tokenizer --texts sources reviews --megabytes=300
    taskset -c 0 python -m tests.benchmarks.bench_train_tokenizer --threads=1

A text has each document once (corpora.py), a line each: sources and documentation that are
installed on this machine, or 92 MB of reviews. `tokenizers` and gigabpe have as many threads as
--threads says, and write nothing but tokenizer.json; ours also reports on the text, and keeps its
histogram. Memory is that of one more run of each.

In the end merges are compared. gigabpe gives no ids to bytes that are absent from the text, and
makes as many merges more; those that all have must be equal.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.baselines import baseline_versions, with_baselines
from tests.benchmarks.bench_memory import peak_memory
from tests.benchmarks.clock import Seconds
from tests.benchmarks.commands import workers
from tests.benchmarks.corpora import TEXTS, write_lines
from tests.benchmarks.measure import (
    Options,
    Record,
    Side,
    alternated,
    entry,
    run_command,
    versions,
)

SCRIPTS = "tests.benchmarks.scripts"
OURS = "train_tokenizer"
THRESHOLDS = {"gigabpe": (2.5, None), "tokenizers": (3, 6)}  # reach, aim


@dataclass(frozen=True)
class Bench(Options):
    """What to compare."""

    texts: tuple[str, ...] = ("sources",)
    """`sources` or `reviews`."""
    megabytes: float = 100
    """Of each text, at most."""
    vocab_size: int = 32000
    """Of all."""
    threads: int = 2
    """Of gigabpe and `tokenizers`; ours takes the cores that it is given."""


def measure(options: Bench) -> Iterator[Record]:
    """A row for each text and other trainer."""
    with tempfile.TemporaryDirectory() as folder:
        for name in options.texts:
            text = Path(folder, f"{name}.txt")
            size = write_lines(text, options.megabytes, TEXTS[name]())
            yield from _measure(options, name, text, size)


def _measure(options: Bench, name: str, text: Path, size: int) -> Iterator[Record]:
    for who in (OURS, *THRESHOLDS):
        _output(text, who).parent.mkdir(parents=True)
    commands = _commands(options, text)
    run: dict[str, Callable[[], Seconds]] = {
        who: lambda command=command: run_command(command())[0] for who, command in commands.items()
    }
    found = alternated(run, options.runs)

    def side(who: str, working: str) -> Side:
        memory = 0.0 if found[who].reason else peak_memory(commands[who]())
        note = ""
        if who != OURS and not any(found[one].reason for one in (OURS, who)):
            note = differences(_output(text, OURS), _output(text, who))
        more = {"bytes": size, "workers": working, "memory": memory, "note": note}
        return Side.time(who, found[who], **more)

    ours = side(OURS, workers(text))
    used = versions("apache-beam", "numba", "tokenizers")
    for who, (reach, aim) in THRESHOLDS.items():
        yield Record(
            f"train_tokenizer, {name}, {size / 1e6:,.0f} MB, beside {who}",
            ours,
            side(who, f"{options.threads} threads"),
            reach,
            aim,
            versions=used | baseline_versions("gigabpe", pins="gigabpe"),
        )


def _commands(options: Bench, text: Path) -> dict[str, Callable[[], list[str]]]:
    tokens, threads = str(options.vocab_size), str(options.threads)

    def made_by(who: str) -> str:
        return str(_output(text, who))

    def gigabpe(python: str) -> list[str]:
        given = [str(text), tokens, made_by("gigabpe"), threads]
        return [python, "-m", f"{SCRIPTS}.train_gigabpe", *given]

    given = [f"--input={text}", "--document=line", f"--vocab_size={tokens}", "--overwrite"]
    given.append(f"--output={_output(text, OURS).parent}")
    script = [str(text), tokens, made_by("tokenizers"), "gpt2", threads]
    return {
        OURS: lambda: [sys.executable, "-m", "pipelines.train_tokenizer", *given],
        "gigabpe": with_baselines(gigabpe, "gigabpe"),
        "tokenizers": lambda: [sys.executable, "-m", f"{SCRIPTS}.train_tokenizers", *script],
    }


def _output(text: Path, who: str) -> Path:
    return text.with_suffix("") / who / "tokenizer.json"


def differences(ours: Path, theirs: Path) -> str:
    """How many merges there are, how many of those that both have differ, and how many are more."""
    mine, other = (
        [tuple(merge) for merge in json.loads(path.read_text())["model"]["merges"]]
        for path in (ours, theirs)
    )
    differ = sum(a != b for a, b in zip(mine, other, strict=False))
    more = len(other) - len(mine)
    return f"{len(mine):,} merges, {differ} differ" + (f", {more} more" if more else "")


if __name__ == "__main__":
    entry(measure, Bench)
