"""The command `textmill`: `textmill build-shards ...` is `python -m pipelines.build_shards ...`.

Either half may be installed alone, so a command is imported when it is called. Python 3.8 syntax.
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.help import docs_line
from textmill.schemas.commands.terminal import name_of, say
from textmill.schemas.errors import UsageError
from textmill.schemas.version import VERSION

# Modules of commands; their last names are the commands'.
ABOUT: dict[str, str] = {
    "pipelines.build_corpus": "Clean, filter and deduplicate text.",
    "pipelines.train_tokenizer": "Train a BPE or WordPiece tokenizer.",
    "pipelines.build_shards": "Tokenize and pack text into a dataset of shards.",
    "pipelines.verify": "Check datasets and corpora against their metadata.",
    "pipelines.inspect_shards": "Show rows of a dataset as text, and its counts.",
    "pipelines.train_quality_model": "Train a model of quality for build_corpus.",
    "pipelines.publish": "Upload a corpus or dataset to the Hugging Face Hub.",
    "pipelines.export": "Convert a dataset to Parquet, JSONL, Arrow or MDS.",
    "pipelines.describe": "Write a dataset card, Croissant and a summary for the EU.",
    "pipelines.demo": "Run all steps on a small text, in a few minutes.",
    "trainers.flax_mlm": "Train RoBERTa, BERT or ELECTRA's generator (JAX).",
    "trainers.flax_clm": "Train GPT-2, Llama and others (JAX).",
    "trainers.tf_classifier": "Train a text classifier (TensorFlow).",
    "trainers.tf_qa": "Train GPT-2 to answer questions (TensorFlow).",
    "trainers.poptorch_classifier": "Train a text classifier (PyTorch, IPUs).",
    "trainers.trace": "Show documents of a step, and steps of a document.",
    "trainers.use_model": "Evaluate, export or run a trained model.",
}
COMMANDS = {name_of(module): module for module in ABOUT}
_ALSO = {"inspect": "inspect-shards"}


def main() -> None:
    """Runs the command that sys.argv names, and leaves with its exit code."""
    run_entry(_dispatch)


def _dispatch(argv: list[str]) -> None:
    words = argv[1:] if argv[:1] == ["train"] else argv  # `train flax-clm` is `flax-clm`, too
    first = words[0] if words else ""
    name = first.replace("_", "-")
    name = _ALSO.get(name, name)
    if name in ("", "-h", "--help", "help"):
        say("\n".join(_overview("trainers." if argv[:1] == ["train"] else "")))
    elif name in ("-V", "--version"):
        say(f"textmill {VERSION}")
    elif name in COMMANDS:
        sys.argv = [f"textmill {name}", *words[1:]]
        sys.path.append(os.getcwd())  # of --filter=module:function; `python -m` has it too
        import_module(f"textmill.{COMMANDS[name]}").main(sys.argv[1:])
    else:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "textmill --help lists them"
        raise UsageError(f"textmill has no command {first!r}: {hint}")


def _overview(package: str) -> list[str]:
    modules = [module for module in ABOUT if module.startswith(package)]
    return [
        "usage: textmill COMMAND [FLAGS]",
        "",
        "Textmill turns text into tokenized datasets and trains models on them.",
        "",
        *(f"  {name_of(module):21}{ABOUT[module]}" for module in modules),
        "",
        "textmill COMMAND --help shows the flags of a command.",
        *docs_line("README.md"),
    ]
