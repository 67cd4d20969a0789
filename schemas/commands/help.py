"""`--help` of every command: the common flags on one screen, all flags in groups on request.

    --help          the flags that most runs need, and the names of the groups
    --help=all      every flag
    --help=GROUP    the flags of one group
    --help=flags    each flag as it is typed, for scripts

Flags are fields of dataclasses, and groups are dataclasses in them. The text of a flag is the
string under its field; the first screen shows its first sentence. Help adds the default, unless the
text ends with a sentence "Default: ...". Python 3.8 syntax.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import os
import re
import shutil
import sys
import textwrap
import typing
from abc import ABCMeta
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, NamedTuple, TypeVar

from textmill.schemas.commands.terminal import command_name, name_of, say
from textmill.schemas.commands.values import rule_of, text_of
from textmill.schemas.errors import FieldError, UsageError, as_typed, either, flag

_COLUMN = 24  # where texts begin
_WIDTHS = 80, 100  # of a screen, at least and at most
_SENTENCE = re.compile(r"(?<=[\w)\]\"'`][.!?])\s+(?=[A-Z\"(<-]|\w+: )")

CONFIG_NOTE = "--config=FILE.yaml reads flags from a file; those of the command line win."
BEAM_NOTE = "Beam's flags work too: --runner=DataflowRunner, --direct_num_workers=4."

_OF_WORDS = "--input", "--shards"  # the flag that a word without one most likely lacks
# Values that neither the type of a flag nor the last word of its name describes.
_VALUES = {
    **dict.fromkeys(("output", "shards", "export", "export_saved_model"), "DIR"),
    "init_from": "DIR|NAME",
    "report": "FILE",
    "search": "TEXT",
}


@dataclasses.dataclass(frozen=True)
class Help:
    """A command's help without its flags.

    Attributes:
      module: of the command: pipelines.build_shards.
      about: what the command does, in one or two sentences.
      usage: the flags that a command must have: "DIR --output=DIR".
      example: arguments of a typical command.
      page: of the documentation: docs/build_shards.md.
      common: names of the flags on the first screen, besides those of `usage`; "all" for all.
      groups: title ("Output: the corpus", whose first words name the group) to names of flags. A
        field that holds a dataclass stands for all of its flags. Each flag that is not named is in
        the group of its dataclass.
      note: what else the command accepts.
    """

    module: str
    about: str
    usage: str
    example: str
    page: str
    common: str = "all"
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""


class Flag(NamedTuple):
    """A flag as help shows it.

    Attributes:
      name: mask_rate.
      typed: the flag as a user types it: --mask_rate=X.
      describe: returns `sentences`; it parses the file of the dataclass, which takes 0.05 s.
      path: the fields that lead to it: ("settings", "mask_rate").
      group: title of the group that its dataclass is.
    """

    name: str
    typed: str
    describe: Callable[[], tuple[str, ...]]
    path: tuple[str, ...]
    group: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of its help; the last one may be its default."""
        return self.describe()


def show_help(argv: list[str], page: Help, options: Any, **stand_ins: type) -> None:
    """Prints the help that a command line requests and ends the process; else does nothing.

    Args:
      argv: of the command.
      page: what help shows besides flags.
      options: the dataclass of the command's flags.
      stand_ins: field to dataclass, where the type of a field is a variable.

    Raises:
      SystemExit: 0, after help.
      UsageError: there is no such group.
    """
    requests = [word for word in argv if word in ("-h", "--help") or word.startswith("--help=")]
    if requests:
        flags = list(flags_of(options, **stand_ins))
        say("\n".join(help_lines(requests[0].partition("=")[2], page, flags)))
        sys.exit(0)


def report_parse_errors(argv: list[str], options: Any, **stand_ins: type) -> None:
    """From now on, flags that tyro rejects raise UsageError; arguments as of `show_help`.

    Raises:
      UsageError: a word belongs to no flag, whose value it would be, or a switch has a value.
    """
    flags = list(flags_of(options, **stand_ins))
    switches = {one.name for one in flags if one.typed.startswith("--") and "=" not in one.typed}
    for word in argv:
        typed, equals, value = word.partition("=")
        name = typed[2:].replace("-", "_")
        switch = name if name in switches else name[3:] if name.startswith("no_") else ""
        if typed.startswith("--") and equals and switch in switches:
            on, off = flag(switch, True), flag(switch, False)
            raise FieldError(name, value, f"it takes no value: give {on} or {off}")
    if all(flag.typed.startswith("--") for flag in flags):  # no positional argument
        for before, word in zip(["", *argv], argv):
            if not word.startswith("-") and (not before.startswith("-") or "=" in before):
                raise UsageError(describe_unknown(word, [f"--{flag.name}" for flag in flags], ""))
    # tyro 1.0 has no public hook, and `console_outputs=False` only hides its errors. Without this
    # private module, wrong values are reported in tyro's own boxes.
    hook = getattr(sys.modules.get("tyro._errors"), "_parse_error_hook", None)
    if hook is not None:
        hook.set(lambda event: _raise_in_one_line(event, flags))


@contextmanager
def without_slow_parts() -> Iterator[None]:
    """Context in which tyro does without two things that take half of its time.

    tyro 1.0 parses the source of a dataclass for the texts of flags, which `show_help` has. And it
    imports typeguard, which imports unittest and asyncio, to check defaults of a few simple types.
    """
    with _replace("tyro._docstrings", "get_field_docstring", lambda _: lambda *_: None):
        with _replace("tyro._resolver", "is_instance", _check_simply):
            yield


@contextmanager
def _replace(module: str, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Context in which a function of a module is `make(function)`, if the module has it."""
    owner: Any = sys.modules.get(module)
    function = getattr(owner, name, None)
    if function is None:
        yield
        return
    setattr(owner, name, make(function))
    try:
        yield
    finally:
        setattr(owner, name, function)


def _check_simply(check: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def is_instance(kind: Any, value: Any) -> bool:
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if type(kind) is ABCMeta:
            return isinstance(value, kind)
        if origin is tuple and parts[1:] == (Ellipsis,):
            return isinstance(value, tuple) and all(is_instance(parts[0], part) for part in value)
        if getattr(origin, "__name__", "") == "UnionType":  # X | Y, since Python 3.10
            return any(is_instance(part, value) for part in parts)
        return check(kind, value)

    return is_instance


def _raise_in_one_line(event: Any, flags: list[Flag]) -> None:
    """Raises what tyro rejects as a line; returns for other events, which tyro reports itself.

    Raises:
      UsageError: a flag is missing, unknown, or has a value of a different type or none of its
        choices.
    """
    kind = type(event).__name__
    remedy = see_help(event.prog.split()[-1], f"{event.prog} --help shows the flags")
    error = sys.exc_info()[1]  # of the options, or of tyro after a value refused its text
    cause = error if isinstance(error, FieldError) else getattr(error, "__context__", None)
    if isinstance(cause, FieldError):
        name = event.argument.display_name() if event.argument else ""
        name = name.lstrip("-").rpartition(".")[2]
        raise FieldError(cause.field or name, cause.value, cause.reason) from cause
    typed = {f"--{flag.name}": flag.typed for flag in flags}
    if kind == "MissingArgs":
        missing: list[str] = [context.arg.display_name() for context in event.missing_arguments]
        for argument in event.unrecognized_tokens:
            if difflib.get_close_matches(argument.partition("=")[0], missing):
                raise UsageError(describe_unknown(argument, missing, remedy))
        named = ", ".join(as_typed(typed.get(name, name)) for name in missing)
        who = either(event.prog, event.prog.rpartition(".")[2])  # python -m pipelines.build_corpus
        raise UsageError(f"{who} needs {named}: {remedy}")
    if kind == "UnrecognizedArgs":
        raise UsageError(describe_unknown(event.tokens[0], list(typed), remedy))
    if kind == "BadValue":
        name = f"--{event.argument.display_name().lstrip('-').rpartition('.')[2]}"
        raise UsageError(f"{as_typed(typed.get(name, name))} has no value: {remedy}")
    if kind == "InvalidChoice":
        given = as_typed(f"{event.argument.display_name()}={event.value}")
        choices = [*event.choices]
        if "None" in choices:  # tyro has them as a set
            choices = sorted({*choices} - {"None"})
        raise UsageError(f"{given}: choose one of {', '.join(choices)}")
    if kind == "InstantiationFailure" and event.argument is not None:
        reason = re.sub(r"^Error parsing [^:]*: ", "", " ".join(event.message.split()))
        found = re.search(r"(literal for int|string to float)[^']*'([^']*)'$", reason)
        if found:
            what = "a whole number" if found.group(1).endswith("int") else "a number"
            name = event.argument.display_name().lstrip("-").rpartition(".")[2]
            raise FieldError(name, found.group(2), f"not {what}")
        raise UsageError(f"{as_typed(event.argument.display_name())}: {reason}; {remedy}")


def see_help(module: str, words: str) -> str:
    """The remedy of a command's help in a message.

    Args:
      module: pipelines.build_shards.
      words: for the user of the command.
    """
    return either(words, f"`textmill {name_of(module)} --help=all` lists the keywords")


def describe_unknown(argument: str, names: list[str], remedy: str) -> str:
    """The error for an argument that is not a flag, nor a value of one.

    Args:
      argument: --ouput=x, or a word such as the second file of `--input texts/*.txt`.
      names: the flags that there are: --output.
      remedy: shown if none of them is similar.
    """
    if not argument.startswith("-"):
        flag = next((name for name in _OF_WORDS if name in names), "")
        return f"{argument} belongs to no flag: " + (
            f"write {as_typed(f'{flag}={argument}')}; for several, repeat the flag or put a "
            f"pattern in quotes ({as_typed(flag)}='texts/*.txt')"
            if flag
            else "a flag takes one value; a text of several words needs quotes"
        )
    near = difflib.get_close_matches(argument.partition("=")[0], names, 1)
    unknown = f"{either('unknown flag', 'unknown keyword')} {as_typed(argument)}"
    return f"{unknown}: {f'did you mean {as_typed(near[0])}?' if near else remedy}"


def help_lines(request: str, page: Help, flags: list[Flag]) -> Iterator[str]:
    """The lines of a help.

    Args:
      request: "" for the first screen, all, the name of a group, or flags.
      page: what help shows besides flags.
      flags: all flags of the command.

    Raises:
      UsageError: there is no such group.
    """
    if request == "flags":
        yield from (flag.typed for flag in flags)
        return
    groups = _groups_of(page, flags)
    names = {title.partition(":")[0].lower().replace(" ", "-"): title for title in groups}
    if request not in ("", "all", *names):
        near = difflib.get_close_matches(request, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"the groups are {', '.join(names)}"
        raise UsageError(f"--help={request}: there is no such group; {hint}")
    command = command_name(page.module)
    yield from _wrap(f"usage: {command} {page.usage} [FLAGS]", more="    ")
    yield from ("", *_wrap(page.about))
    is_first, shown = not request and page.common != "all", 0
    for name, title in names.items():
        if request in ("", "all", name):
            of_group = [flag for flag in groups[title] if not is_first or _is_common(flag, page)]
            shown += len(of_group)
            yield from ("", *_wrap(title)) if of_group else ()
            for flag in of_group:
                yield from _show(flag, page, is_first)
    yield ""
    if shown < len(flags):
        yield from _wrap(f"--help=all shows every flag, --help=GROUP one of: {', '.join(names)}.")
    yield from _wrap(page.note)
    yield " \\\n".join(_wrap(f"Example: {command} {page.example}", more="    ", less=2))
    yield from docs_line(page.page)


def docs_line(page: str) -> list[str]:
    """The line that names a page of the documentation; none without it, as in a wheel."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", page)
    return [f"Docs: {os.path.relpath(path)}"] if os.path.exists(path) else []


def flags_of(options: Any, **stand_ins: type) -> Iterator[Flag]:
    """All flags of a dataclass and of those in it; arguments as of `show_help`."""
    yield from _walk(options, options, (), "Options", stand_ins)


def _walk(
    kind: Any, values: Any, path: tuple[str, ...], group: str, stand_ins: Mapping[str, type]
) -> Iterator[Flag]:
    """The flags of a dataclass whose defaults are the attributes of `values`."""
    for field in dataclasses.fields(kind):
        hints = getattr(field.type, "__metadata__", ())
        type_: Any = field.type.__origin__ if hints else field.type  # type: ignore
        type_ = stand_ins[field.name] if isinstance(type_, TypeVar) else type_
        if "Suppress" in map(str, hints):
            continue
        default, here = getattr(values, field.name, dataclasses.MISSING), (*path, field.name)
        default = text_of(field.type, default)
        if dataclasses.is_dataclass(type_) and rule_of(field.type) is None:
            inner = type_ if default is dataclasses.MISSING else default
            name = field.name.replace("_", " ").capitalize()
            title = f"{name}: {(type_.__doc__ or '').splitlines()[0].rstrip('.')}"
            yield from _walk(type_, inner, here, title, stand_ins)
        else:
            typed = _typed(field.name, type_, default, hints)
            describe = functools.partial(_sentences, kind, field, hints, default)
            yield Flag(field.name, typed, describe, here, group)


def _sentences(
    kind: Any, field: dataclasses.Field[Any], hints: tuple[Any, ...], default: Any
) -> tuple[str, ...]:
    texts = {name: text for cls in reversed(kind.__mro__) for name, text in _texts(cls).items()}
    text = _hinted(hints, "help") or texts.get(field.name, "")
    sentences = [s for s in _SENTENCE.split(" ".join(text.split())) if s]
    if not any(sentence.startswith("Default: ") for sentence in sentences):
        sentences += _default(field.metadata.get("default", default))
    return tuple(sentences)


@functools.lru_cache(maxsize=None)
@functools.lru_cache(maxsize=None)
def _texts(cls: type) -> dict[str, str]:
    """The strings under the fields of a class's own body."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    for node in _parse(file).body if file else ():
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {
                field.target.id: ast.literal_eval(below.value)
                for field, below in zip(node.body, node.body[1:])
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            }
    return {}


@functools.lru_cache(maxsize=None)
def _parse(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _hinted(hints: tuple[Any, ...], name: str) -> str:
    """An attribute of `tyro.conf.arg(...)` among the hints of an annotation."""
    return next((getattr(hint, name) for hint in hints if getattr(hint, name, None)), "")


def _typed(name: str, type_: Any, default: Any, hints: tuple[Any, ...]) -> str:
    """--resume, --batch_size=N, --document=line|paragraph|file."""
    if type_ is bool:
        return f"--{name}, --no_{name}" if default is True else f"--{name}"
    arguments = getattr(type_, "__args__", ())
    if type(None) in arguments:  # Optional[int] is typed as int
        type_, *_ = (argument for argument in arguments if argument is not type(None))
        arguments = getattr(type_, "__args__", ())
    by_type = {int: "N", float: "X", bool: "True|False"}
    value = by_type.get(type_) or _VALUES.get(name) or name.split("_")[-1].upper()
    if arguments and all(isinstance(argument, str) for argument in arguments):  # of Literal
        value = "|".join(arguments)
    value = _hinted(hints, "metavar") or value
    return value if "Positional" in map(str, hints) else f"--{name}={value}"


def _default(value: Any) -> list[str]:
    if value is dataclasses.MISSING or value is None or value is False or value in ("", ()):
        return []
    shown = "on" if value is True else f"{value:g}" if isinstance(value, float) else value
    return [f"Default: {shown}."]


def _groups_of(page: Help, flags: list[Flag]) -> dict[str, list[Flag]]:
    """Flags by the title of their group, in order."""
    titles = {name: title for title, names in page.groups.items() for name in names.split()}
    groups: dict[str, list[Flag]] = {title: [] for title in page.groups}
    for one in flags:
        of_page = [titles[field] for field in reversed(one.path) if field in titles]
        groups.setdefault((of_page or [one.group])[0], []).append(one)
    for title, names in page.groups.items():
        order = names.split()
        groups[title].sort(key=lambda flag: min(map(order.index, {*flag.path} & {*order})))
    return groups


def _is_required(flag: Flag, page: Help) -> bool:
    return flag.typed in page.usage.split()


def _is_common(flag: Flag, page: Help) -> bool:
    return _is_required(flag, page) or flag.name in page.common.split()


def _show(flag: Flag, page: Help, is_first: bool) -> Iterator[str]:
    """The lines of a flag; on the first screen without what follows its first sentence."""
    first, *more = flag.sentences or ("",)
    default = more[-1:] if more and more[-1].startswith("Default: ") else []
    words = " ".join([first, *(default if is_first else more)])
    words += " Required." if _is_required(flag, page) else ""
    start = f"  {flag.typed}"
    if len(start) > _COLUMN - 2:
        choices = start.replace("|", "| ").strip()  # a long list breaks after a bar
        yield from (line.replace("| ", "|") for line in _wrap(choices, "  ", " " * 8))
        start = ""
    yield from _wrap(words, start.ljust(_COLUMN), " " * _COLUMN)


def _wrap(text: str, first: str = "", more: str = "", *, less: int = 0) -> list[str]:
    width = min(max(shutil.get_terminal_size().columns, _WIDTHS[0]), _WIDTHS[1])
    return textwrap.wrap(
        text,
        width - less,
        initial_indent=first,
        subsequent_indent=more,
        break_long_words=False,
        break_on_hyphens=False,
    )
