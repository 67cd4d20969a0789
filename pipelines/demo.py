"""All steps: text -> corpus -> tokenizer -> dataset -> training. `make demo` runs them.

The text comes with Python: docstrings of the standard library and topics of the manual. The demo
prints each command before it runs it, so that a user can run it again.
"""

import ast
import json
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

from rich.table import Table
from rich.text import Text

from textmill.pipelines.runners.console import Console
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import parse_options
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.store import is_url, write_file

_LEAST_CHARACTERS = 40  # a shorter docstring repeats the name
_console = Console()


HELP = Help(
    module="pipelines.demo",
    about="Runs all steps on the documentation that comes with Python: text, corpus, tokenizer, "
    "dataset, training. It prints each command before it runs.",
    usage="",
    example="--output=demo",
    page="README.md",
)


@dataclass(frozen=True)
class DemoOptions:
    """The flags of the demo."""

    output: str = "demo"
    """Directory for the corpus, the tokenizer, the dataset and the training run."""
    steps: int = 300
    """Number of training steps. 300 take a minute or two on a CPU."""
    vocab_size: int = 4000
    """Tokens of the vocabulary."""
    max_length: int = 128
    """Tokens of a row."""


def main(argv: list[str]) -> None:
    """Runs the commands one after another, and prints what they wrote."""
    options: DemoOptions = parse_options(argv, HELP, DemoOptions)
    if is_url(options.output):
        raise UsageError(f"--output={options.output}: give a directory of this machine")
    began = time.monotonic()
    raw = Path(options.output) / "raw.jsonl"
    with _console.working("reading the standard library's docstrings ..."):
        documents, size = write_documents(raw)
    _console.print(f"{documents:,} documents, {size / 1e6:.1f} MB of Python's own documentation")
    for command in _commands(options, str(raw)):
        run(command)
    _show_results(options, time.monotonic() - began)


def write_documents(path: Path) -> tuple[int, int]:
    """Writes JSON Lines with `text` and `name`; returns the number of documents and of bytes.

    Raises:
      UsageError: there is another file of this name.
      DataError: the file cannot be written.
    """
    texts = {f"topic {name}": text for name, text in sorted(topics.topics.items())}
    texts |= dict(read_docstrings(Path(sysconfig.get_path("stdlib"))))
    documents = [
        {"name": name, "text": text.strip()}
        for name, text in texts.items()
        if len(text) >= _LEAST_CHARACTERS
    ]
    lines = (json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    content = "".join(lines).encode()
    if not path.exists():
        write_file(str(path), content)
    elif path.read_bytes() != content:
        raise UsageError(
            f"{path} is not the text of this Python's demo: use another --output, or remove the "
            "directory of an earlier demo"
        )
    return len(documents), len(content)


def read_docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """(dotted name, docstring) of all source files below a folder, without importing any."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if {"site-packages", "test", "tests", "idlelib"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # a template, or written for a different Python
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield ".".join((*parts, getattr(node, "name", ""))), text


def run(command: list[str]) -> None:
    """Runs a command in a process of its own, after printing it as the user types commands.

    Raises:
      DataError: the command failed; it has printed why.
    """
    module, *flags = command
    words = command_name(module).split()
    shown = shlex.join([*words, *flags])
    _console.print(f"\n$ {shown}", style="bold cyan", soft_wrap=True)
    in_python = words[1:] if words[0] == "python" else ["-m", *words]
    done = subprocess.run([sys.executable, *in_python, *flags], check=False)
    if done.returncode:
        raise DataError(f"the demo stopped: `{shown}` ended with exit code {done.returncode}")


def _commands(options: DemoOptions, raw: str) -> list[list[str]]:
    out = options.output
    corpus, shards = f"{out}/corpus", f"{out}/shards"
    return [
        [
            *("pipelines.build_corpus", f"--input={raw}", f"--output={corpus}"),
            *("--keep_fields=name", "--min_words=5", "--near_duplicates=jaccard:0.8"),
        ],
        [
            *("pipelines.train_tokenizer", f"--input={corpus}", f"--output={out}/tokenizer"),
            f"--vocab_size={options.vocab_size}",
        ],
        [
            *("pipelines.build_shards", "--task=mlm", f"--input={corpus}", f"--output={shards}"),
            *(f"--tokenizer={out}/tokenizer", f"--max_length={options.max_length}"),
            "--splits=train:0.95,validation:0.05",
        ],
        ["pipelines.verify", corpus, shards],
        [
            *("trainers.flax_mlm", f"--shards={shards}", f"--output={out}/run", "--model=tiny"),
            *(f"--steps={options.steps}", "--batch_size=32", "--learning_rate=0.002", "--resume"),
        ],
    ]


def _show_results(options: DemoOptions, seconds: float) -> None:
    """The last screen: the directories, and commands to copy, which are not wrapped."""
    out = Path(options.output)
    results = Table.grid(padding=(0, 3))
    results.add_row("corpus", str(out / "corpus"), _documents(out / "corpus" / "stats.json"))
    results.add_row("tokenizer", str(out / "tokenizer"), "tokenizer.json, for any library")
    results.add_row("shards", str(out / "shards"), _rows(out / "shards" / "stats.json"))
    results.add_row("training", str(out / "run"), _losses(out / "run" / "metrics.jsonl"))
    shards = shlex.quote(str(out / "shards"))
    _console.print()
    _console.rule(Text(f"From text to a training step in {seconds:.0f} s", "bold"))
    _console.print(results)
    _console.print("\nRun next, after `source .venv/bin/activate`:", style="bold")
    inspect, train = command_name("pipelines.inspect_shards"), command_name("trainers.flax_mlm")
    for what, command in (
        ("show a row", f"{inspect} {shards} --row=0"),
        ("train longer", f"{train} --shards={shards} --model=small"),
        ("your own text", f"{command_name('pipelines.build_corpus')} --help"),
        ("run the tests", "make test"),
    ):
        _console.print(Text.assemble(f"  {what:14} ", (command, "cyan")), soft_wrap=True)


def _documents(stats: Path) -> str:
    values = json.loads(stats.read_text(encoding="utf-8"))
    kept = sum(file["documents"] for file in values["files"].values())
    return f"{kept:,} of {values['documents_read']:,} documents: see report.html"


def _rows(stats: Path) -> str:
    splits = json.loads(stats.read_text(encoding="utf-8"))["splits"]
    return ", ".join(f"{split['rows']:,} rows to {name}" for name, split in splits.items())


def _losses(metrics: Path) -> str:
    lines = metrics.read_text(encoding="utf-8").splitlines()
    losses = [m["loss"] for m in map(json.loads, lines) if m["kind"] == "train"]
    return f"loss {losses[0]:.2f} falls to {losses[-1]:.2f}: see loss.png"


if __name__ == "__main__":
    run_entry(main)
