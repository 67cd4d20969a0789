"""Values of options: a type for each value that commands write as text. Python 3.8 syntax.

A type checks itself when it is made, reads its text by `parse`, and gives it back by `str`:

    @dataclass(frozen=True)
    class Jaccard:
        similarity: float

        def __post_init__(self): ...  # raises FieldError("", self, "give a similarity ...")

        @classmethod
        def parse(cls, text): ...  # "jaccard:0.8" -> Jaccard(0.8)

        def __str__(self): ...  # Jaccard(0.8) -> "jaccard:0.8"

    @dataclass(frozen=True)
    class Options:
        near: Annotated[Optional[Jaccard], spelled(Jaccard, "jaccard:S", none="None")] = None

        def __post_init__(self):
            take_values(self)
"""

from __future__ import annotations

import csv
import dataclasses
import os
from contextlib import suppress
from typing import Any, Callable, Iterable, Mapping, TypeVar

from textmill.schemas.errors import FieldError

T = TypeVar("T")
NONE = "None"  # on the command line
# Metadata of fields that say where one run writes, and how it runs; config.yaml leaves them out.
OF_THIS_RUN = {"of_this_run": True}


def spelled(
    kind: Any,
    metavar: str,
    *,
    none: str = "",
    parse: Callable[[str], Any] | None = None,
    write: Callable[[Any], str] = str,
    of_list: Callable[[Any], Any] | None = None,
    of_mapping: Callable[[Any], Any] | None = None,
) -> Any:
    """The rule of tyro by which a value is read from its text; for `Annotated[kind, ...]`.

    Args:
      kind: type of the value, or types.
      metavar: form of the text in help: jaccard:S.
      none: text of None: "None", or a word such as auto. Without it None is not a value.
      parse: reads a text. Default: `kind.parse`.
      write: gives the text of a value back.
      of_list: makes a value of a list that Python or a file gives. Default: reads `written(list)`.
      of_mapping: the same for a mapping.
    """
    read: Callable[[str], Any] = parse or kind.parse

    def from_words(words: list[Any]) -> Any:
        [given] = words
        if of_list is not None and isinstance(given, (list, tuple)):
            return of_list(given)
        if of_mapping is not None and isinstance(given, Mapping):
            return of_mapping(given)
        text = written(given)
        return None if none and text == none else _parse(read, text)

    def is_one(value: Any) -> bool:
        if value is None:
            return bool(none)
        return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))

    return _make_rule(
        metavar,
        from_words,
        is_one,
        lambda value: none if value is None else write(value),
    )


def spelled_list(
    kind: type, metavar: str, *, none: str = "", parse: Callable[[str], Any] | None = None
) -> Any:
    """The rule of a tuple of values, whose texts commas separate; arguments as of `spelled`.

    A text that holds a comma is in double quotes: `a,"b, c"`.
    """
    read: Callable[[str], Any] = parse or getattr(kind, "parse", kind)

    def from_words(words: list[Any]) -> Any:
        [given] = words
        text = written(given)
        if none and text == none:
            return None
        parts = given if isinstance(given, (list, tuple)) else split_list(text)
        own = () if kind is str else kind
        return tuple(
            part if isinstance(part, own) else _parse(read, written(part), text) for part in parts
        )

    def is_one(value: Any) -> bool:
        if value is None:
            return bool(none)
        return isinstance(value, tuple) and all(isinstance(part, kind) for part in value)

    return _make_rule(
        metavar, from_words, is_one, lambda value: none if value is None else join_list(value)
    )


def _make_rule(
    metavar: str,
    from_words: Callable[[list[str]], Any],
    is_one: Callable[[Any], bool],
    text_of: Callable[[Any], str],
) -> Any:
    # Options that use rules belong to commands, which import tyro; help and files of flags do not.
    from tyro.constructors import PrimitiveConstructorSpec

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=from_words,
        is_instance=is_one,
        str_from_instance=lambda value: [text_of(value)],
    )


def _parse(read: Callable[[str], T], text: str, whole: str | None = None) -> T:
    try:
        return read(text)
    except FieldError as error:
        raise FieldError("", text if whole is None else whole, error.reason) from error


def split_list(text: str) -> tuple[str, ...]:
    """The parts that commas separate: `a,"b, c"` -> ("a", "b, c"); of "" none."""
    if '"' not in text:
        return tuple(text.split(",")) if text else ()
    try:
        [parts] = csv.reader([text], strict=True)
    except (ValueError, csv.Error) as error:
        raise FieldError("", text, "put a part that holds a comma into double quotes") from error
    return tuple(parts)


def join_list(parts: Iterable[Any]) -> str:
    """The text that `split_list` reads: ("a", "b, c") -> `a,"b, c"`."""
    texts = [str(part) for part in parts]
    quoted = ('"{}"'.format(t.replace('"', '""')) if '"' in t or "," in t else t for t in texts)
    return ",".join(quoted)


def rule_of(hint: Any) -> Any:
    """The rule in an annotation that `spelled` made; None without one."""
    rules = (
        rule for rule in getattr(hint, "__metadata__", ()) if hasattr(rule, "str_from_instance")
    )
    return next(rules, None)


def text_of(hint: Any, value: Any) -> Any:
    """The text of a value that has a rule; None, and values without a rule, as they are."""
    rule = rule_of(hint)
    if rule is None or not rule.is_instance(value):
        return value
    [text] = rule.str_from_instance(value)
    return None if value is None and text == NONE else text


def written(value: Any) -> str:
    """The text of a value that Python or a file gives, as on the command line.

    3 -> "3", ["a", "b, c"] -> `a,"b, c"`, {"train": 0.9, "test": 0.1} -> "train:0.9,test:0.1".

    Raises:
      FieldError: it is neither a text, a number nor a list or a mapping of these.
    """
    if isinstance(value, Mapping):
        return ",".join(f"{_written(name)}:{_written(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)) and not hasattr(value, "parse"):
        return join_list(map(_written, value))
    return _written(value)


def _written(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, str) or is_number or hasattr(value, "parse"):
        return str(value)
    raise FieldError("", value, "give a text, a number, or a list of them")


def take_values(options: Any) -> None:
    """Checks the fields of a new dataclass, and gives them the types that their annotations name.

    Raises:
      FieldError: see `take`.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if is_group(field.type):
            continue  # it has checked itself
        try:
            taken = take(field.type, value)
        except FieldError as error:
            raise error.of(field.name) from error
        if taken is not value:
            object.__setattr__(options, field.name, taken)  # frozen, and not in use yet


def is_group(hint: Any) -> bool:
    """Whether an annotation names a dataclass whose fields are flags, or a variable for one."""
    kind = kind_of(hint)
    is_class = isinstance(kind, type) and dataclasses.is_dataclass(kind)
    return isinstance(kind, TypeVar) or (is_class and rule_of(hint) is None)


def kind_of(hint: Any) -> Any:
    """The type in an annotation: Annotated[int, ...] -> int."""
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def take(hint: Any, value: Any) -> Any:
    """A value of the type that an annotation names, of one that Python or a file gives.

    A text is read as on the command line: "3" -> 3, "jaccard:0.8" -> Jaccard(0.8). A list or a
    mapping stands for the text of its parts.

    Raises:
      FieldError: the value is of a different type, or is none of the choices. Its field is "".
    """
    rule = rule_of(hint)
    if rule is not None:
        if rule.is_instance(value):
            return value
        if value is None or isinstance(value, bool):
            raise FieldError("", value, f"give {rule.metavar}")
        return rule.instance_from_str([value])
    kind = kind_of(hint)
    arguments = getattr(kind, "__args__", ())
    if type(None) in arguments:
        if value is None or value == NONE:
            return None
        [kind] = (each for each in arguments if each is not type(None))
        arguments = getattr(kind, "__args__", ())
    if value is None:
        raise FieldError("", value, "give a value, or leave it out")
    if arguments and all(isinstance(each, str) for each in arguments):  # of Literal
        return _take_choice(arguments, value)
    if getattr(kind, "__origin__", None) is tuple:
        return _take_texts(value)
    return _TAKEN[kind](value) if kind in _TAKEN else value


def _take_choice(choices: tuple[str, ...], value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = str(value) if is_number else value
    if text not in choices:
        raise FieldError("", value, "choose one of " + ", ".join(choices))
    return text


def _take_texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, (list, tuple)) else (value,)
    try:
        texts = tuple(map(_written, values))
    except FieldError as error:
        raise FieldError("", value, "give a text, or a list of texts") from error
    return texts


def _take_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        if len(value) > 1 and any("," in _written(part) for part in value):
            reason = "commas separate its values: write all of them as one text"
            raise FieldError("", value, f"{reason}, as on the command line")
        return ",".join(map(_written, value))
    return written(value)


def _take_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldError("", value, "give True or False")
    return value


def _take_whole(value: Any) -> int:
    return _take_number(int, value, "not a whole number")


def _take_float(value: Any) -> float:
    return _take_number(float, value, "not a number")


def _take_number(kind: Any, value: Any, reason: str) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    # An integer for a float is read from its text, too: float(10**400) is an OverflowError.
    if isinstance(value, str) or type(value) is int:
        with suppress(ValueError):
            return kind(str(value))
    raise FieldError("", value, reason)


_TAKEN: dict[Any, Callable[[Any], Any]] = {
    bool: _take_flag,
    float: _take_float,
    int: _take_whole,
    str: _take_text,
}
