"""Keywords become options of commands, and messages of commands name keywords."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal, Optional

import pytest

from textmill.keywords import Keywords
from textmill.schemas.commands.flag_file import read_config
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import parse_known
from textmill.schemas.commands.terminal import command_in_message, say
from textmill.schemas.commands.values import spelled
from textmill.schemas.errors import DataError, FieldDataError, FieldError, UsageError, flag


@dataclasses.dataclass(frozen=True)
class Share:
    """A value with a text of its own."""

    number: float

    @classmethod
    def parse(cls, text: str) -> "Share":
        return cls(float(text.removesuffix("%")))

    def __str__(self) -> str:
        return f"{self.number:g}%"


@dataclasses.dataclass(frozen=True)
class Group:
    input: tuple[str, ...] = ()
    dropout: Optional[float] = 0.1  # noqa: UP045  as in trainers
    fast: bool = True


@dataclasses.dataclass(frozen=True)
class Options:
    output: str = ""
    splits: str = "train:1"
    share: str = ""
    most: int | None = None
    form: Literal["a", "b"] = "a"
    files: Annotated[int | None, spelled(int, "N", none="auto", parse=int)] = None
    group: Group = Group()


@pytest.fixture
def keywords():
    return Keywords("build_corpus", lambda: (Options,), "pipelines")


class Directory:
    """A result of an earlier call."""

    def __fspath__(self) -> str:
        return "corpus"

    def __repr__(self) -> str:  # the name of a test is the same in every process
        return "Directory()"


def options_of(keywords, values):
    """The options, and the arguments of Beam."""
    argv, given = keywords.given(values)
    argv, of_file = read_config(argv, "build_corpus", keywords.options)
    page = Help("pipelines.build_corpus", "", "", "", "")
    given = {**of_file, **given}
    return parse_known(argv, page, Options, given, check_others=lambda words, names: None)


@pytest.mark.parametrize(
    ("values", "expected", "others"),
    [
        ({"output": "a b", "most": 3}, Options(output="a b", most=3), []),
        ({"most": "3"}, Options(most=3), []),
        ({"dropout": 1}, Options(group=Group(dropout=1.0)), []),
        ({"output": Path("a/b"), "share": Share(0.5)}, Options("a/b", share="0.5%"), []),
        (
            {"input": ["x", Path("y"), Directory()]},
            Options(group=Group(input=("x", "y", "corpus"))),
            [],
        ),
        ({"input": Directory()}, Options(group=Group(input=("corpus",))), []),
        ({"splits": {"train": 0.9, "test": 0.1}}, Options(splits="train:0.9,test:0.1"), []),
        (
            {"fast": False, "direct_num_workers": 2},
            Options(group=Group(fast=False)),
            ["--direct_num_workers=2"],
        ),
        (
            {"extra_package": ["a.gz", Path("b.gz")], "profile_cpu": True},
            Options(),
            ["--extra_package=a.gz", "--extra_package=b.gz", "--profile_cpu"],
        ),
        ({"most": None, "dropout": None}, Options(group=Group(dropout=None)), []),
        ({"files": None, "runner": None}, Options(), []),
    ],
    ids=str,
)
def test_values_become_options(keywords, values, expected, others):
    assert options_of(keywords, values) == (expected, others)


def test_keywords_win_over_a_file(keywords, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("most: 3\noutput: x\n")
    options, _ = options_of(keywords, {"config": path, "most": 4})
    assert options == Options(output="x", most=4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output": None}, "--output=None: give a value, or leave it out"),
        ({"fast": "no"}, "--fast=no: give True or False"),
        ({"most": True}, "--most=True: not a whole number"),
        ({"most": object}, "--most=<class 'object'>: not a whole number"),
        ({"output": object}, "--output=<class 'object'>: give a text, a number, or a list of them"),
        ({"output": "~/x"}, "--output=~/x: ~ is not expanded"),
        ({"output": "gs:/x"}, "--output=gs:/x: write --output=gs://x"),
        ({"output": "\udcff"}, "is not UTF-8"),
        ({"help": True}, "unknown keyword help: `textmill build-corpus --help=all` lists"),
    ],
    ids=lambda value: ascii(value),
)
def test_what_is_no_value_is_refused(keywords, values, message):
    with pytest.raises(UsageError) as refused:
        options_of(keywords, values)
    assert message in str(refused.value)


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (UsageError(f"{flag('most', 0)}: no"), UsageError, "most=0: no"),
        (UsageError(f"use {flag('fast', False)}"), UsageError, "use fast=False"),
        (FieldError("most", -1, "give more"), UsageError, "most=-1: give more"),
        (
            FieldDataError("input", "a", f"add {flag('fast', True)}"),
            DataError,
            "input=a: add fast=T",
        ),
        (DataError("a--b -- c --most=3"), DataError, "a--b -- c --most=3"),
        (
            UsageError(f"use {command_in_message('pipelines.verify')}"),
            UsageError,
            "textmill.verify",
        ),
        (DataError("x is damaged"), DataError, "x is damaged"),
        (PermissionError(13, "Permission denied", "x"), DataError, "x: Permission denied; ask"),
        (MemoryError("no room"), DataError, "memory is short"),
        (
            ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam"),
            ModuleNotFoundError,
            "needs the package apache_beam, which is not installed here: pip install "
            "'/path/to/textmill[pipelines]'",
        ),
        (SystemExit(130), KeyboardInterrupt, "resume=True continues from the newest checkpoint"),
        (KeyboardInterrupt("nothing is kept"), KeyboardInterrupt, "nothing is kept"),
        (ZeroDivisionError("a defect"), ZeroDivisionError, "a defect"),
    ],
    ids=str,
)
def test_errors_are_those_of_a_user(keywords, error, kind, message):
    with pytest.raises(BaseException) as raised:
        keywords.call(raising(error))
    assert raised.type is kind and message in str(raised.value)


def test_lines_of_a_function_name_keywords(keywords, capsys):
    text = f"give {flag('most', 3)}"
    keywords.call(lambda: say(text))
    say(text)
    assert capsys.readouterr().out == "give most=3\ngive --most=3\n"
