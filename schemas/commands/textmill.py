"""The command `textmill`: `textmill build-shards ...` is `python -m pipelines.build_shards ...`.

Either half may be installed alone, so a command is imported when it is called. Python 3.8 syntax.
"""

import difflib
import os
import sys
from importlib import import_module
from typing import Dict, List, Tuple

from schemas.commands.entry import run_entry
from schemas.commands.help import docs_line
from schemas.commands.terminal import say
from schemas.errors import UsageError
from schemas.version import VERSION

# The name of a command: its module, and what it does.
COMMANDS: Dict[str, Tuple[str, str]] = {
    "build-corpus": ("pipelines.build_corpus", "Clean, filter and deduplicate text."),
    "train-tokenizer": ("pipelines.train_tokenizer", "Train a BPE or WordPiece tokenizer."),
    "build-shards": ("pipelines.build_shards", "Tokenize and pack text into a dataset of shards."),
    "verify": ("pipelines.verify", "Check datasets and corpora against their metadata."),
    "inspect": ("pipelines.inspect_shards", "Show rows of a dataset as text, and its counts."),
    "export": ("pipelines.export", "Convert a dataset to Parquet, JSONL, Arrow or MDS."),
    "demo": ("pipelines.demo", "Run all steps on a small text, in a few minutes."),
    "train flax-mlm": ("trainers.flax_mlm", "Train RoBERTa, BERT or ELECTRA's generator (JAX)."),
    "train flax-clm": ("trainers.flax_clm", "Train GPT-2, Llama and others (JAX)."),
    "train tf-classifier": ("trainers.tf_classifier", "Train a text classifier (TensorFlow)."),
    "train tf-qa": ("trainers.tf_qa", "Train GPT-2 to answer questions (TensorFlow)."),
    "train poptorch-classifier": (
        "trainers.poptorch_classifier",
        "Train a text classifier (PyTorch, IPUs).",
    ),
    "use-model": ("trainers.use_model", "Evaluate, export or run a trained model."),
}


def main() -> None:
    """Runs the command that sys.argv names, and leaves with its exit code."""
    run_entry(_dispatch)


def _dispatch(argv: List[str]) -> None:
    words = argv[: 2 if argv[:1] == ["train"] else 1]
    name = " ".join(words).replace("_", "-")
    if name in ("", "-h", "--help", "help", "train", "train -h", "train --help"):
        say("\n".join(_overview("train " if words[:1] == ["train"] else "")))
    elif name in ("-V", "--version"):
        say(f"textmill {VERSION}")
    elif name in COMMANDS:
        sys.argv = [f"textmill {name}", *argv[len(words) :]]
        sys.path.append(os.getcwd())  # of --filter=module:function; `python -m` has it too
        import_module(COMMANDS[name][0]).main(sys.argv[1:])
    else:
        by_word = {command.split()[-1]: command for command in COMMANDS}
        near = difflib.get_close_matches(name.split()[-1], by_word, 1)
        hint = f"did you mean {by_word[near[0]]}?" if near else "textmill --help lists them"
        raise UsageError(f"textmill has no command {name!r}: {hint}")


def _overview(group: str) -> List[str]:
    rows = {name: about for name, (_, about) in COMMANDS.items() if name.startswith(group)}
    return [
        f"usage: textmill {group}COMMAND [FLAGS]",
        "",
        "Textmill turns text into tokenized datasets and trains models on them.",
        "",
        *(f"  {name:27}{about}" for name, about in rows.items()),
        "",
        f"textmill {group}COMMAND --help shows the flags of a command.",
        *docs_line("README.md"),
    ]
