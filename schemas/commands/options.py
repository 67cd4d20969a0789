"""The options of a command: a dataclass of a command line, a file of flags and keywords of Python.

A file or Python gives values; they have the types of the fields when tyro gets them as defaults, so
that flags of the command line win. The dataclass then checks all values together, once.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple

from textmill.schemas.commands.entry import refuse_odd_paths
from textmill.schemas.commands.help import (
    Help,
    describe_unknown,
    report_parse_errors,
    see_help,
    show_help,
    without_slow_parts,
)
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.commands.values import is_group, kind_of, take, written
from textmill.schemas.errors import FieldError, UsageError

Check = Callable[[List[str], Iterable[str]], object]
_QUOTES = "; YAML reads a bare yes, no, on and off as true and false: put them in quotes"


class Given(NamedTuple):
    """A value that does not come from the command line.

    Attributes:
      value: as Python or YAML has it.
      path: of the file; "" for a keyword of Python.
    """

    value: Any
    path: str = ""

    def error(self, error: UsageError, name: str = "") -> UsageError:
        """The error of this value: names the field, and a file and its key."""
        message = error.marked
        if isinstance(error, FieldError):
            error = FieldError(error.field or name, error.value, error.reason)
            message = error.in_python()
        return UsageError(f"{self.path}: {message}") if self.path else error


def fields_of(*options: Any) -> dict[str, dataclasses.Field[Any]]:
    """The flags of dataclasses, nested ones too, to their fields."""
    fields: dict[str, dataclasses.Field[Any]] = {}
    for field in (field for one in options for field in dataclasses.fields(one)):
        kind = kind_of(field.type)
        if not is_group(field.type):
            fields[field.name] = field
        elif isinstance(kind, type):  # no variable, which stands for a dataclass given beside
            fields.update(fields_of(kind))
    return fields


def takes_list(field: dataclasses.Field[Any]) -> bool:
    """Whether commas separate the values of a flag: its metavar ends with ",..."."""
    hints = getattr(field.type, "__metadata__", ())
    return any((getattr(hint, "metavar", None) or "").endswith(",...") for hint in hints)


def is_positional(field: dataclasses.Field[Any]) -> bool:
    """Whether a value stands without the name of a flag: RUN."""
    return "Positional" in map(str, getattr(field.type, "__metadata__", ()))


def is_switch(field: dataclasses.Field[Any]) -> bool:
    """Whether a flag has no value: --resume, --no_resume."""
    return kind_of(field.type) is bool


def parse_options(
    argv: list[str],
    page: Help,
    options: Any,
    given: Mapping[str, Given] | None = None,
) -> Any:
    """The options of a command line, or its help; arguments and errors as of `parse_known`."""
    return _parse(argv, page, options, given or {}, None, {})[0]


def parse_known(
    argv: list[str],
    page: Help,
    options: Any,
    given: Mapping[str, Given] | None = None,
    *,
    check_others: Check,
    **stand_ins: type,
) -> tuple[Any, list[str]]:
    """The options of a command line that may have other flags, too, such as Beam's; or its help.

    Args:
      argv: of the command.
      page: what help shows besides flags.
      options: the dataclass of the command's flags.
      given: values by name of the flag; flags of `argv` win.
      check_others: takes arguments that are none of these flags, and the names of these flags;
        raises UsageError for arguments that are wrong.
      stand_ins: field to dataclass, where the type of a field is a variable.

    Returns:
      The options, and the other arguments.

    Raises:
      SystemExit: 0, after help.
      UsageError: a flag or a value is wrong; names the flag, or the file and its key.
    """
    return _parse(argv, page, options, given or {}, check_others, stand_ins)


def _parse(
    argv: list[str],
    page: Help,
    options: Any,
    given: Mapping[str, Given],
    check_others: Check | None,
    stand_ins: Mapping[str, type],
) -> tuple[Any, list[str]]:
    # Python code imports this module without the packages of a command.
    import tyro

    show_help(argv, page, options, **stand_ins)
    report_parse_errors(argv, options, **stand_ins)
    own, prog = fields_of(options, *stand_ins.values()), command_name(page.module)
    flags = [name for name, field in own.items() if not is_positional(field)]

    def refuse(arguments: list[str], names: Iterable[str]) -> None:
        remedy = see_help(page.module, f"{prog} --help shows the flags")
        raise UsageError(describe_unknown(arguments[0], [f"--{name}" for name in names], remedy))

    check: Check = check_others or refuse
    others: list[str] = []
    for name in [name for name in given if name not in own]:
        others += _other_arguments(name, given[name], lambda words: check(words, flags))
    values = {name: _take(own[name], one) for name, one in given.items() if name in own}
    default = {"default": _filled(options, options, values, stand_ins)} if values else {}
    try:
        with without_slow_parts():
            result: Any = tyro.cli(
                options[tuple(stand_ins.values())] if stand_ins else options,
                prog=prog,
                args=argv,
                return_unknown_args=check_others is not None,
                use_underscores=True,
                config=(tyro.conf.OmitArgPrefixes,),
                **default,
            )
    except FieldError as error:
        if error.field in given:
            raise given[error.field].error(error) from error
        raise
    made, unknown = (result, []) if check_others is None else result
    if unknown:
        check(unknown, flags)
    return made, [*others, *unknown]


def _other_arguments(name: str, given: Given, check: Callable[[list[str]], object]) -> list[str]:
    """The arguments of a value for none of Textmill's flags: x and [1, 2] -> --x=1 --x=2."""
    value = given.value
    if value is None:
        return []
    try:
        _refuse_odd_paths(name, value)
        if isinstance(value, bool):
            words = [f"--{name}" if value else f"--no_{name}"]
        else:  # a list is repeated, as Beam's are
            values = value if isinstance(value, (list, tuple)) else [value]
            words = [f"--{name}={written(each)}" for each in values]
        # The error names the key of `resume: false`, not --no_resume.
        check([f"--{name}"] if value is False else words)
    except UsageError as error:
        raise given.error(error, name) from error
    return words


def _take(field: dataclasses.Field[Any], given: Given) -> Any:
    """The value of a field."""
    try:
        _refuse_odd_paths(field.name, given.value)
        return take(field.type, given.value)
    except UsageError as error:
        has_switch = any(isinstance(part, bool) for part in _parts(given.value))
        if isinstance(error, FieldError) and given.path and has_switch and not is_switch(field):
            error = FieldError(error.field, error.value, error.reason + _QUOTES)
        raise given.error(error, field.name) from error


def _refuse_odd_paths(name: str, value: Any) -> None:
    for part in _parts(value):
        if isinstance(part, (str, os.PathLike)):
            text = os.fspath(part)
            if text == "~" or text.startswith("~/"):
                home = os.path.expanduser("~")
                reason = f"~ is not expanded: write the home directory as {home}"
                raise FieldError(name, text, reason)
            refuse_odd_paths(f"--{name}={text}")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _filled(kind: type, base: Any, values: Mapping[str, Any], stand_ins: Mapping[str, type]) -> Any:
    """A dataclass with these values, and the defaults of `base`; it has not checked itself.

    Fields without a value are `tyro.MISSING`, which the command line must give.
    """
    import tyro  # see `parse_options`

    filled = object.__new__(kind)
    for field in dataclasses.fields(kind):
        value = getattr(base, field.name, tyro.MISSING)
        if is_group(field.type):  # which may have the name of a flag
            group = stand_ins.get(field.name) or kind_of(field.type)
            value = _filled(group, group if value is tyro.MISSING else value, values, stand_ins)
        else:
            value = values.get(field.name, value)
        object.__setattr__(filled, field.name, value)
    return filled
