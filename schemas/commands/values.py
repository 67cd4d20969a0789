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
from typing import Any, Callable, Iterable, Mapping, TypeVar

from textmill.schemas.errors import FieldError

T = TypeVar("T")
NONE = "None"  # on the command line


def spelled(
    kind: Any,
    metavar: str,
    *,
    none: str = "",
    parse: Callable[[str], Any] | None = None,
    write: Callable[[Any], str] = str,
) -> Any:
    """The rule of tyro by which a value is read from its text; for `Annotated[kind, ...]`.

    Args:
      kind: type of the value, or types.
      metavar: form of the text in help: jaccard:S.
      none: text of None: "None", or a word such as auto. Without it None is no value.
      parse: reads a text. Default: `kind.parse`.
      write: gives the text of a value back.
    """
    read: Callable[[str], Any] = parse or kind.parse

    def from_words(words: list[str]) -> Any:
        [text] = words
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

    def from_words(words: list[str]) -> Any:
        [text] = words
        if none and text == none:
            return None
        return tuple(_parse(read, part, text) for part in split_list(text))

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


def take_values(options: Any, **kinds: type) -> None:
    """Checks the fields of a new dataclass, and gives them the types that their annotations name.

    Commands parse text before; Python code may give text or a list in place of a value: "url",
    ["url", "date"]. Fields of other dataclasses check themselves.

    Args:
      options: the dataclass.
      **kinds: field to a type that is also made of a mapping or of a list.

    Raises:
      FieldError: a value is of another type, or is none of the choices.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        try:
            kind = kinds.get(field.name)
            if kind and isinstance(value, (Mapping, list, tuple)):
                taken = value if isinstance(value, kind) else kind(value)
            else:
                taken = _take(field.type, value)
        except FieldError as error:
            raise FieldError(field.name, error.value, error.reason) from error
        if taken is not value:
            object.__setattr__(options, field.name, taken)  # frozen, and not in use yet


def _take(hint: Any, value: Any) -> Any:
    rule = rule_of(hint)
    if rule is not None:
        if rule.is_instance(value):
            return value
        if isinstance(value, (list, tuple)) and rule.is_instance(()):
            value = join_list(value)
        if isinstance(value, dict):
            value = ",".join("{}:{}".format(*item) for item in value.items())
        if value is None or isinstance(value, (bool, list, tuple)):
            raise FieldError("", value, f"give {rule.metavar}")
        return rule.instance_from_str([str(value)])
    kind = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
    arguments = getattr(kind, "__args__", ())
    if type(None) in arguments:
        if value is None:
            return None
        [kind] = (each for each in arguments if each is not type(None))
        arguments = getattr(kind, "__args__", ())
    if arguments and all(isinstance(each, str) for each in arguments):  # of Literal
        if value not in arguments:
            raise FieldError("", value, "choose one of " + ", ".join(arguments))
    elif getattr(kind, "__origin__", None) is tuple:
        values = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(each, (str, os.PathLike)) for each in values):
            raise FieldError("", value, "give a text, or a list of texts")
        if not (isinstance(value, tuple) and all(isinstance(each, str) for each in value)):
            return tuple(os.fspath(each) for each in values)
    elif kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    elif kind in _WORDS:
        kinds = (int, float) if kind is float else kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise FieldError("", value, _WORDS[kind])
    return value


_WORDS = {
    int: "not a whole number",
    float: "not a number",
    bool: "give True or False",
    str: "not a text",
}
