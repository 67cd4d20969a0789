"""The whole way in one command: text -> tokenizer -> shards -> training. `make demo` runs it.

The text is at hand wherever Python is: the docstrings of the standard library and the manual's
topics. Each step is a command of its own, printed before it runs, so that it can be run again.
"""

import time
from pathlib import Path

import tyro

from pipelines.host.console import Console
from pipelines.runners.demo_commands import (
    DemoOptions,
    commands,
    run,
    show_what_was_made,
    write_corpus,
)
from schemas.commands.entry import run_entry


def main(argv: list[str]) -> None:
    """Runs the commands one after another, and says what was made."""
    options = tyro.cli(
        DemoOptions, args=argv, prog="python -m pipelines.demo", use_underscores=True
    )
    console = Console()
    began = time.monotonic()
    corpus = Path(options.output) / "corpus.jsonl"
    with console.status("reading the standard library's docstrings ..."):
        documents, size = write_corpus(corpus)
    console.print(f"{documents:,} documents, {size / 1e6:.1f} MB of Python's own documentation")
    for command in commands(options, str(corpus)):
        run(command)
    show_what_was_made(options, time.monotonic() - began)


if __name__ == "__main__":
    run_entry(main)
