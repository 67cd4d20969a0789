"""Command lines to flags and back, whatever groups the flags are in."""

import dataclasses
import shlex
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Type, TypeVar

import tyro

from schemas.commands.flag_file import is_word, kinds_of, with_config
from trainers.flags.run_flags import RunFlags

Flags = TypeVar("Flags", bound=RunFlags)
Group = TypeVar("Group")
_OF_ALL = """

What is not given here (vocabulary, row length, special tokens, classes) comes from the set's \
contract. --config=FILE.yaml holds flags; those of the command line win. trainers.use_model \
metrics and exports what was trained, labels texts with it or continues them."""


def parse_flags(argv: List[str], kind: Type[Flags]) -> Flags:
    """The flags of a command line and of the file that its --config names.

    Raises:
      UsageError: they make no sense, or see `schemas.commands.flag_file.with_config`.
      SystemExit: after --help, and with 2 where there is no such flag.
    """
    argv = with_config(argv, kind.entry, lambda: (kind,))
    return parse_groups(argv, kind, prog=f"trainers.{kind.entry}", more=_OF_ALL)


def parse_groups(argv: List[str], kind: Type[Group], *, prog: str, more: str = "") -> Group:
    """A dataclass of groups, whose names are not part of the flags; --help shows `more`, too."""
    about, flat = f"{kind.__doc__ or ''}{more}", (tyro.conf.OmitArgPrefixes,)
    return tyro.cli(
        kind, args=argv, prog=prog, description=about, use_underscores=True, config=flat
    )


def flag_values(flags: Any) -> Dict[str, Any]:
    """Every flag by its name: {"shards": "set", "batch_size": 32, ...}."""
    return {field.name: value for field, value in _fields_of(flags)}


def _fields_of(flags: Any) -> "Iterator[Tuple[dataclasses.Field, Any]]":
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields_of(value)
        else:
            yield field, value


def make_flags(kind: Type[Group], **values: Any) -> Group:
    """Flags of these values, by their names, and of defaults.

    make_flags(FlaxMlmFlags, shards="set", steps=10).length.steps is 10.
    """
    unknown = set(values) - set(kinds_of(kind))
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return _make(kind, values)


def _make(kind: Any, values: Mapping[str, Any]) -> Any:
    fields = {}
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            fields[field.name] = _make(field.type, values)
        elif field.name in values:
            fields[field.name] = values[field.name]
    return kind(**fields)


def command(flags: RunFlags, **changes: Any) -> str:
    """The command line that gives these flags, with some of them changed."""
    words = ["python", "-m", f"trainers.{flags.entry}"]
    for field, value in _fields_of(flags):
        value = changes.get(field.name, value)
        if value == field.default or value is None and not is_word(field, value):
            continue
        if isinstance(value, bool) and not is_word(field, value):
            words.append(f"--{field.name}" if value else f"--no_{field.name}")
        else:
            words.append(f"--{field.name}={value}")
    return " ".join(shlex.quote(word) for word in words)
