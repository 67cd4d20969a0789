"""What the demo runs one after another, and what it says in the end."""

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pipelines.host.console import Console
from schemas.errors import DataError

_console = Console()


@dataclass(frozen=True)
class DemoOptions:
    """From text to a training step, on what this computer has."""

    output: str = "demo"
    """Where corpus, tokenizer, shards and training run go."""
    steps: int = 300
    """Training steps."""
    vocab_size: int = 4000
    """Token ids."""
    max_length: int = 128
    """Tokens in a row."""


def commands(options: DemoOptions, corpus: str) -> list[list[str]]:
    """What `make demo` runs, each as a user would type it."""
    out = options.output
    shards = f"{out}/shards"
    return [
        [
            *("pipelines.train_tokenizer", f"--input={corpus}", f"--output={out}/tokenizer"),
            f"--vocab_size={options.vocab_size}",
        ],
        [
            *("pipelines.build_shards", "--task=mlm", f"--input={corpus}", f"--output={shards}"),
            *(f"--tokenizer={out}/tokenizer", f"--max_length={options.max_length}"),
            "--splits=train:0.95,validation:0.05",
        ],
        ["pipelines.verify", shards],
        [
            *("trainers.flax_mlm", f"--shards={shards}", f"--output={out}/run", "--model=tiny"),
            *(f"--steps={options.steps}", "--batch_size=32", "--learning_rate=0.002", "--resume"),
        ],
    ]


def run(command: list[str]) -> None:
    """Runs `python -m ...` in a process of its own, after printing it.

    Raises:
      DataError: it failed; what was wrong it has said itself.
    """
    shown = shlex.join(["python", "-m", *command])
    _console.print(f"\n$ {shown}", style="bold cyan", soft_wrap=True)
    done = subprocess.run([sys.executable, "-m", *command], check=False)
    if done.returncode:
        raise DataError(f"the demo stopped: `{shown}` ended with exit code {done.returncode}")


def show_what_was_made(options: DemoOptions, seconds: float) -> None:
    """The last screen: what lies where, and commands to copy, which are never wrapped."""
    out = Path(options.output)
    made = Table.grid(padding=(0, 3))
    made.add_row("corpus", str(out / "corpus.jsonl"), "one JSON object a line, with its text")
    made.add_row("tokenizer", str(out / "tokenizer"), "tokenizer.json, for any library")
    made.add_row("shards", str(out / "shards"), _rows(out / "shards" / "stats.json"))
    made.add_row("training", str(out / "run"), _losses(out / "run" / "metrics.jsonl"))
    shards = shlex.quote(str(out / "shards"))
    _console.print()
    _console.rule(Text(f"From text to a training step in {seconds:.0f} s", "bold"))
    _console.print(made)
    _console.print("\nWhat to run next, after `source .venv/bin/activate`:", style="bold")
    for what, command in (
        ("look at a row", f"python -m pipelines.inspect_shards {shards} --row=0"),
        ("train longer", f"python -m trainers.flax_mlm --shards={shards} --model=small"),
        ("your own text", "python -m pipelines.build_shards --help"),
        ("run the tests", "make test"),
    ):
        _console.print(Text.assemble(f"  {what:14} ", (command, "cyan")), soft_wrap=True)


def _rows(stats: Path) -> str:
    splits = json.loads(stats.read_text(encoding="utf-8"))["splits"]
    return ", ".join(f"{split['rows']:,} rows to {name}" for name, split in splits.items())


def _losses(metrics: Path) -> str:
    lines = metrics.read_text(encoding="utf-8").splitlines()
    losses = [m["loss"] for m in map(json.loads, lines) if m["kind"] == "train"]
    return f"loss {losses[0]:.2f} falls to {losses[-1]:.2f}: see loss.png"
