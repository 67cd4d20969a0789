"""The command `textmill`: `textmill build-shards ...` is `python -m pipelines.build_shards ...`.

Either half may be installed alone, so a command is imported when it is called. Python 3.8 syntax.
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module

from textmill.schemas.commands.entry import rest_idle_threads, run_entry
from textmill.schemas.commands.help import docs_line
from textmill.schemas.commands.terminal import name_of, say
from textmill.schemas.errors import UsageError
from textmill.schemas.version import VERSION

TRAINING: dict[str, str] = {
    "trainers.flax_mlm": "Train RoBERTa, BERT or ELECTRA's generator (JAX).",
    "trainers.flax_clm": "Train GPT-2, Llama and others (JAX).",
    "trainers.tf_classifier": "Train a text classifier (TensorFlow).",
    "trainers.tf_qa": "Train GPT-2 to answer questions (TensorFlow).",
    "trainers.poptorch_classifier": "Train a text classifier (PyTorch, IPUs).",
}
# Title to modules of commands; their last names are the commands'.
GROUPS: dict[str, dict[str, str]] = {
    "From text to a dataset": {
        "pipelines.build_corpus": "Clean, filter and deduplicate text.",
        "pipelines.train_quality_model": "Train a model of quality for build_corpus.",
        "pipelines.train_tokenizer": "Train a BPE or WordPiece tokenizer.",
        "pipelines.build_shards": "Tokenize and pack text into a dataset of shards.",
        "pipelines.demo": "Run all steps on a small text, in a few minutes.",
        "pipelines.flex_template": "Build a Flex Template of Dataflow.",
    },
    "Corpora and datasets": {
        "pipelines.verify": "Check datasets and corpora against their metadata.",
        "pipelines.inspect_shards": "Show rows of a dataset as text, and its counts.",
        "pipelines.export": "Convert a dataset to Parquet, JSONL, Arrow or MDS.",
        "pipelines.describe": "Write a dataset card, Croissant and a summary for the EU.",
        "pipelines.publish": "Upload a corpus or dataset to the Hugging Face Hub.",
    },
    "Training": TRAINING,
    "Trained models": {
        "trainers.evaluate": "Measure a model on a split of a dataset.",
        "trainers.generate": "Continue a text.",
        "trainers.chat": "Answer a message, or hold a conversation.",
        "trainers.predict": "Label texts with a classifier.",
        "trainers.export_model": "Export a model for transformers or TensorFlow.",
        "trainers.trace": "Show documents of a step, and steps of a document.",
    },
}
ABOUT = {module: about for group in GROUPS.values() for module, about in group.items()}
_COMPLETION = "completion"
_ABOUT_COMPLETION = "Print a script that completes commands in a shell."
COMMANDS = {name_of(module): module for module in ABOUT}
_TRAINERS = {name_of(module): module for module in TRAINING}
_ALSO = {"inspect": "inspect-shards"}


def main() -> None:
    """Runs the command that sys.argv names, and leaves with its exit code."""
    rest_idle_threads()
    run_entry(_dispatch)


def _dispatch(argv: list[str]) -> None:
    is_train = argv[:1] == ["train"]  # `train flax-clm` is `flax-clm`, too
    words, commands = (argv[1:], _TRAINERS) if is_train else (argv, COMMANDS)
    first = words[0] if words else ""
    name = first.replace("_", "-")
    name = _ALSO.get(name, name)
    if name in ("", "-h", "--help", "help"):
        say("\n".join(_overview({"Training": TRAINING} if is_train else GROUPS)))
    elif name in ("-V", "--version"):
        say(f"textmill {VERSION}")
    elif name == _COMPLETION and not is_train:
        _complete(words[1:])
    elif name in commands:
        sys.argv = [f"textmill {name}", *words[1:]]
        sys.path.append(os.getcwd())  # of --filter=module:function; `python -m` has it too
        import_module(f"textmill.{commands[name]}").main(sys.argv[1:])
    else:
        near = difflib.get_close_matches(name, [*commands, *_ALSO, _COMPLETION], 1)
        hint = f"did you mean {near[0]}?" if near else "textmill --help lists them"
        raise UsageError(f"textmill has no command {first!r}: {hint}")


def _complete(words: list[str]) -> None:
    from textmill.schemas.commands import completion  # which no other command needs

    shells = "|".join(completion.SHELLS)
    if words and words[0] in ("-h", "--help"):
        lines = [f"  {completion.INSTALL[shell]}" for shell in completion.SHELLS]
        about = f"usage: textmill {_COMPLETION} {shells}", "", _ABOUT_COMPLETION, "", *lines
        say("\n".join([*about, *docs_line("docs/commands.md")]))
        return
    if len(words) != 1 or words[0] not in completion.SHELLS:
        raise UsageError(f"textmill {_COMPLETION} needs the name of a shell: {shells}")
    named = {**COMMANDS, **{short: COMMANDS[name] for short, name in _ALSO.items()}}
    commands = [
        completion.CompletedCommand("train", "Train a model."),
        *(
            completion.CompletedCommand(
                name, ABOUT[module], completion.words_of(module), trains=name in _TRAINERS
            )
            for name, module in named.items()
        ),
        completion.CompletedCommand(_COMPLETION, _ABOUT_COMPLETION, choices=completion.SHELLS),
    ]
    say(completion.script(words[0], commands).rstrip())


def _overview(groups: dict[str, dict[str, str]]) -> list[str]:
    lines = [
        "usage: textmill COMMAND [FLAGS]",
        "",
        "Textmill turns text into tokenized datasets and trains models on them.",
    ]
    for title, group in groups.items():
        lines += ["", title]
        lines += [f"  {name_of(module):21}{about}" for module, about in group.items()]
    if groups is GROUPS:
        lines += ["", "Shells", f"  {_COMPLETION:21}{_ABOUT_COMPLETION}"]
    return [
        *lines,
        "",
        "textmill COMMAND --help shows the flags of a command.",
        *docs_line("README.md"),
    ]
