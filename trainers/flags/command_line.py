"""Command lines to flags and back."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any, Iterable, Iterator, Mapping, TypeVar

from textmill.schemas.commands.flag_file import is_word, read_config
from textmill.schemas.commands.help import CONFIG_NOTE, Help, describe_unknown, see_help
from textmill.schemas.commands.options import Given, fields_of, parse_known
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.commands.values import rule_of, take, text_of
from textmill.schemas.errors import UsageError, as_typed, either
from textmill.trainers.flags.run_flags import RunFlags

Flags = TypeVar("Flags", bound=RunFlags)
Group = TypeVar("Group")
# Flags on the first screen of --help.
_COMMON = """shards output steps epochs model family init_from learning_rate batch_size precision
resume evaluate_every checkpoint_every masking best_metric"""
_NOTE = "evaluate, generate, chat, predict and export_model use the trained model."
# How transformers spells a flag -> how it is spelled here; both are accepted.
_SPELLINGS = {
    "adam_beta1": "beta1",
    "adam_beta2": "beta2",
    "adam_epsilon": "epsilon",
    "eval_steps": "evaluate_every",
    "max_grad_norm": "clip_norm",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "output_dir": "output",
    "save_steps": "checkpoint_every",
    "save_total_limit": "keep_checkpoints",
}
_IN_SEVERAL = "flax_mlm and flax_clm train in several processes, others run in one: leave it out"
# Flags of other commands -> why this one has none.
_ELSEWHERE = {
    "checkpoint": "to use one, give it to evaluate, generate or another use of the run, as {}",
    "max_length": "rows are as long as the dataset's; build another with build_shards {}",
    "tokenizer": "the dataset has its own tokenizer; build another with build_shards {}",
    "vocab_size": "it is that of the dataset's tokenizer; leave the flag out",
    "num_processes": _IN_SEVERAL,
    "coordinator_address": _IN_SEVERAL,
    "process_id": _IN_SEVERAL,
}


def parse_flags(
    argv: list[str], kind: type[Flags], given: Mapping[str, Given] | None = None
) -> Flags:
    """The flags of a command line, of the file that its --config names, and of Python.

    Args:
      argv: of the command.
      kind: of the trainer.
      given: values of Python by name of the flag. They win over the file.

    Raises:
      UsageError: a flag is unknown or wrong, or see `schemas.commands.flag_file.read_config`.
      SystemExit: 0, after --help.
    """
    argv, of_file = read_config(list(map(_respell, argv)), kind.entry, lambda: (kind,))
    every = {**of_file, **(given or {})}
    given = {_SPELLINGS.get(name, name): value for name, value in every.items()}
    page = Help(
        module=f"trainers.{kind.entry}",
        about=f"{kind.__doc__} Vocabulary, row length, special tokens and classes come from the "
        "dataset.",
        usage="--shards=DIR",
        example="--shards=shards --output=run --steps=1000",
        page=f"docs/{kind.entry}.md",
        common=_COMMON,
        note=f"{CONFIG_NOTE} {_NOTE}",
    )
    return parse_groups(argv, kind, page, given)


def parse_groups(
    argv: list[str], kind: type[Group], page: Help, given: Mapping[str, Given] | None = None
) -> Group:
    """The flags of a command line; arguments as of `parse_known`.

    Raises like `parse_flags`.
    """

    def refuse(arguments: list[str], names: Iterable[str]) -> None:
        raise unknown_flag(arguments[0], names, page.module)

    flags, _ = parse_known(argv, page, kind, given, check_others=refuse)
    return flags


def _respell(argument: str) -> str:
    """--max_grad_norm=1 -> --clip_norm=1."""
    name, equals, value = argument.partition("=")
    ours = _SPELLINGS.get(name[2:].replace("-", "_"))
    return f"--{ours}{equals}{value}" if ours and name.startswith("--") else argument


def unknown_flag(argument: str, names: Iterable[str], module: str) -> UsageError:
    """The error for an argument that is none of these flags of a command."""
    name = argument.partition("=")[0].lstrip("-").replace("-", "_")
    if name in _ELSEWHERE:
        unknown = f"{either('unknown flag', 'unknown keyword')} {as_typed(argument)}"
        return UsageError(f"{unknown}: {_ELSEWHERE[name].format(as_typed(argument))}")
    flags, remedy = [f"--{name}" for name in names], see_help(module, "--help=all lists the flags")
    return UsageError(describe_unknown(argument, flags, remedy))


def flag_values(flags: Any) -> dict[str, Any]:
    """Names of flags to values: {"shards": "data", "batch_size": 32, ...}."""
    return {field.name: text_of(field.type, value) for field, value in _fields_of(flags)}


def _fields_of(flags: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if dataclasses.is_dataclass(value) and rule_of(field.type) is None:
            yield from _fields_of(value)
        else:
            yield field, value


def make_flags(kind: type[Group], **values: Any) -> Group:
    """Flags with these values, and defaults for the others.

    make_flags(FlaxMlmFlags, shards="data", steps=10).length.steps is 10.
    """
    unknown = set(values) - set(fields_of(kind))
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return _make(kind, values)


def _make(kind: Any, values: Mapping[str, Any]) -> Any:
    fields = {}
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            fields[field.name] = _make(field.type, values)
        elif field.name in values:
            value = values[field.name]
            fields[field.name] = value if rule_of(field.type) is None else take(field.type, value)
    return kind(**fields)


def command(flags: RunFlags, **changes: Any) -> str:
    """The command line of these flags, with some of them changed."""
    words = command_name(f"trainers.{flags.entry}").split()
    for field, value in _changed(flags, changes):
        if isinstance(value, bool) and not is_word(field, value):
            words.append(f"--{field.name}" if value else f"--no_{field.name}")
        else:
            words.append(f"--{field.name}={value}")
    return " ".join(shlex.quote(word) for word in words)


def command_to_resume(flags: RunFlags, **changes: Any) -> str:
    """The command line that resumes a run, in a message; in Python the call of the function."""
    changes = {"resume": True, **changes}
    keywords = [f"{field.name}={value!r}" for field, value in _changed(flags, changes)]
    call = f"textmill.train({', '.join([repr(flags.entry), *keywords])})"
    return either(command(flags, **changes), call)


def _changed(
    flags: RunFlags, changes: Mapping[str, Any]
) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Fields and values of flags with some of them changed, except defaults."""
    for field, value in _fields_of(flags):
        value = changes.get(field.name, value)
        if value != field.default and (value is not None or is_word(field, value)):
            yield field, value
