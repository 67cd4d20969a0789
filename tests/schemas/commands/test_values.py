"""Values with types of their own: the same refusal from argv, from YAML and from Python."""

import pickle
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import tyro

from textmill.schemas.commands.flag_file import config_bytes, read_config
from textmill.schemas.commands.help import Help, flags_of
from textmill.schemas.commands.options import fields_of, parse_options, takes_list
from textmill.schemas.commands.values import (
    join_list,
    spelled,
    spelled_list,
    split_list,
    take_values,
)
from textmill.schemas.errors import FieldError, UsageError


@dataclass(frozen=True)
class Share:
    """A share of documents, as a percentage: 20%."""

    share: float

    def __post_init__(self):
        if not 0 < self.share <= 1:
            raise FieldError("", self, "give 1% to 100%")

    @classmethod
    def parse(cls, text):
        if not text[:-1].isdecimal() or text[-1] != "%":
            raise FieldError("", text, "give a percentage such as 20%")
        return cls(int(text[:-1]) / 100)

    def __str__(self):
        return f"{self.share:.0%}"


@dataclass(frozen=True)
class Options:
    """A command."""

    share: Annotated[Share, spelled(Share, "N%")] = Share(0.2)
    """Share of documents."""
    limit: Annotated[Share | None, spelled(Share, "N%", none="None")] = None
    """Largest share."""
    files: Annotated[int | None, spelled(int, "N", none="auto", parse=int)] = None
    """Number of files."""
    words: Annotated[
        tuple[str, ...], spelled_list(str, "WORD,..."), tyro.conf.arg(help="Words to keep.")
    ] = ("a", "b")
    others: Annotated[
        tuple[str, ...] | None,
        spelled_list(str, "WORD,...", none="None"),
        tyro.conf.arg(help="Words to drop. Default: those of the kind."),
    ] = None
    kind: Literal["x", "y"] = "x"
    steps: int | None = None
    verify: bool = True
    rate: float = 0.5

    def __post_init__(self):
        take_values(self)
        if self.rate > 1:
            raise FieldError("rate", self.rate, "at most 1")


PAGE = Help("pipelines.thing", "Makes things.", "", "", "docs/thing.md")


def parse(*argv):
    argv, given = read_config(list(argv), "thing", lambda: (Options,))
    return parse_options(argv, PAGE, Options, given)


def from_yaml(tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return parse(f"--config={path}")


WRONG = {
    ("share", "200%"): "give 1% to 100%",
    ("share", "much"): "give a percentage such as 20%",
    ("limit", "0%"): "give 1% to 100%",
    ("kind", "z"): "choose one of x, y",
    ("steps", "ten"): "not a whole number",
    ("rate", "half"): "not a number",
    ("rate", 1.5): "at most 1",
    ("words", 'a,"b'): "put a part that holds a comma into double quotes",
}


@pytest.mark.parametrize("name, value", WRONG)
def test_one_refusal_from_everywhere(name, value, tmp_path):
    reason = f"{name}={value}: {WRONG[name, value]}"
    with pytest.raises(UsageError) as of_argv:
        parse(f"--{name}={value}")
    with pytest.raises(UsageError) as of_yaml:
        from_yaml(tmp_path, f"{name}: '{value}'")
    with pytest.raises(FieldError) as of_python:
        Options(**{name: value})
    assert str(of_argv.value) == f"--{reason}"
    assert str(of_yaml.value) == f"{tmp_path / 'job.yaml'}: {reason}"
    assert of_python.value.in_python() == reason


def test_values_that_are_given_as_text_lists_and_types(tmp_path):
    options = Options(share=Share(0.5), limit=Share(1), files=3, words=("x", "y, z"))
    made: Any = {"share": "50%", "limit": "100%", "files": "3", "words": ["x", "y, z"]}
    assert Options(**made) == options
    assert parse("--share=50%", "--limit=100%", "--files=3", '--words=x,"y, z"') == options
    text = "share: 50%\nlimit: 100%\nfiles: 3\nwords: [x, 'y, z']\n"
    assert from_yaml(tmp_path, text) == options
    assert from_yaml(tmp_path, "words: ['y, z']").words == ("y, z",)
    assert parse("--limit=None", "--files=auto", "--words=") == Options(words=())
    assert parse("--others=").others == () and parse("--others=None").others is None
    assert Options(others=["a", "b"]).others == ("a", "b")  # pyright: ignore[reportArgumentType]


def test_a_field_that_holds_no_text_refuses_other_types():
    wrongs: list[Any] = [{"verify": "yes"}, {"share": None}, {"share": True}, {"steps": 1.5}]
    for wrong in wrongs:
        with pytest.raises(FieldError):
            Options(**wrong)
    with pytest.raises(FieldError, match="^200%: give 1% to 100%$"):
        Share(2)


def test_config_yaml_and_help_show_texts(tmp_path):
    options = Options(share=Share(0.5), words=("x", "y, z"))
    text = config_bytes("pipelines.thing", options).decode().partition("\n")[2]
    assert text == ('share: 50%\nfiles: auto\nwords: x,"y, z"\nkind: x\nverify: true\nrate: 0.5\n')
    assert from_yaml(tmp_path, text) == options
    shown = {flag.name: (flag.typed, *flag.sentences) for flag in flags_of(Options)}
    assert shown["share"] == ("--share=N%", "Share of documents.", "Default: 20%.")
    assert shown["limit"] == ("--limit=N%", "Largest share.")
    assert shown["files"] == ("--files=N", "Number of files.", "Default: auto.")
    others = ("Words to drop.", "Default: those of the kind.")
    assert shown["others"] == ("--others=WORD,...", *others)
    assert shown["words"] == ("--words=WORD,...", "Words to keep.", "Default: a,b.")
    fields = fields_of(Options)
    assert {name for name, field in fields.items() if takes_list(field)} == {"words", "others"}


@pytest.mark.parametrize("parts", [(), ("a",), ("a", "b"), ("a, b", 'c"d', "e")])
def test_lists_of_texts_that_hold_commas_and_quotes(parts):
    assert split_list(join_list(parts)) == parts


def test_an_error_of_a_field_survives_pickling():
    error = pickle.loads(pickle.dumps(FieldError("near", "x", "give y")))
    assert str(error) == "--near=x: give y" and error.field == "near"
