"""The parameters of a Flex Template: from the flags of a command, and back to a command line. Pure.

A template gets one text for each parameter, and its launcher passes them on as --NAME=TEXT. So a
switch is --resume=true, and a flag that may be repeated has its values in one text, separated by
semicolons.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from textmill.schemas.commands.help import Flag, Help, flags_of
from textmill.schemas.commands.options import fields_of, is_switch
from textmill.schemas.commands.values import kind_of
from textmill.schemas.errors import FieldError

SEPARATOR = ";"
# They start no job, or need files of the machine on which a command is typed.
_LEFT_OUT = ("config", "dry_run", "preflight", "assume_bytes", "filter")
_YES, _NO = "true", "false"


def template_metadata(page: Help, kinds: Sequence[type]) -> dict[str, Any]:
    """The metadata of a template, as `gcloud dataflow flex-template build` reads it.

    {"name": "Textmill build_corpus", "description": ..., "parameters": [
        {"name": "input", "label": "Input", "helpText": ..., "paramType": "TEXT"}, ...]}

    Args:
      page: the help of the command. Flags of its usage are required.
      kinds: the dataclasses of its flags.
    """
    fields, required = fields_of(*kinds), set(re.findall(r"--(\w+)", page.usage))
    parameters = [
        _parameter(flag, fields[flag.name], flag.name not in required)
        for flag in _flags(kinds)
        if flag.name not in _LEFT_OUT
    ]
    return {
        "name": f"Textmill {page.module.rpartition('.')[2]}",
        "description": page.about,
        # Required ones first, as the console shows them.
        "parameters": sorted(parameters, key=lambda one: one.get("isOptional", False)),
    }


def _flags(kinds: Sequence[type]) -> Iterator[Flag]:
    """The flags of all dataclasses, each once; the others stand for a variable of the first."""
    own, *others = kinds
    variables = [f.name for f in dataclasses.fields(own) if isinstance(kind_of(f.type), TypeVar)]
    stand_ins = {name: others[0] for name in variables}
    seen: dict[str, Flag] = {}
    for kind in kinds:
        for flag in flags_of(kind, **(stand_ins if kind is own else {})):
            seen.setdefault(flag.name, flag)
    return iter(seen.values())


def _parameter(flag: Flag, field: dataclasses.Field[Any], is_optional: bool) -> dict[str, Any]:
    text = " ".join(flag.sentences)
    if _is_repeatable(field):
        text += f" Separate several by {SEPARATOR}"
    parameter: dict[str, Any] = {
        "name": flag.name,
        "label": flag.name.replace("_", " ").capitalize(),
        "helpText": text,
        "paramType": "TEXT",
    }
    if is_optional:
        parameter["isOptional"] = True
    kind = kind_of(field.type)
    if is_switch(field):
        parameter |= {"paramType": "BOOLEAN", "regexes": [f"^({_YES}|{_NO})$"]}
    elif get_origin(kind) is Literal and all(isinstance(one, str) for one in get_args(kind)):
        options = [{"value": one, "label": one} for one in get_args(kind)]
        parameter |= {"paramType": "ENUM", "enumOptions": options}
    elif flag.name == "output":  # the workers of a template see no disk of ours
        parameter |= {"paramType": "GCS_WRITE_FOLDER", "regexes": ["^gs://[^/]+/.+$"]}
    return parameter


def command_line(arguments: Iterable[str], kinds: Iterable[type]) -> list[str]:
    """Converts the arguments of the launcher to a command line of the command.

        --input=gs://b/a.jsonl;gs://b/c.jsonl --resume=true --max_length=512 --runner=DataflowRunner
        -> --input=gs://b/a.jsonl --input=gs://b/c.jsonl --resume --max_length=512 --runner=...

    Raises:
      FieldError: a switch has a value other than true and false.
    """
    fields = fields_of(*kinds)
    return [word for one in arguments for word in _words(one, fields)]


def _words(argument: str, fields: Mapping[str, dataclasses.Field[Any]]) -> Iterator[str]:
    name, equals, value = argument.removeprefix("--").partition("=")
    field = fields.get(name.replace("-", "_"))
    if not equals or field is None:
        yield argument
    elif is_switch(field):
        if value.lower() not in (_YES, _NO):
            raise FieldError(name, value, f"give {_YES} or {_NO}")
        yield f"--{name}" if value.lower() == _YES else f"--no_{name}"
    elif _is_repeatable(field):
        yield from (f"--{name}={one}" for one in value.split(SEPARATOR) if one)
    else:
        yield argument


def _is_repeatable(field: dataclasses.Field[Any]) -> bool:
    return any("UseAppendAction" in str(hint) for hint in getattr(field.type, "__metadata__", ()))
