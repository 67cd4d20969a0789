"""Files of flags: their values, those of the command line, and a clear error of every mistake."""

import dataclasses
from typing import Annotated, Generic, Literal, TypeVar

import pytest
import tyro

from textmill.schemas.commands.flag_file import config_bytes, read_config
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import (
    Given,
    fields_of,
    is_switch,
    parse_known,
    parse_options,
    takes_list,
)
from textmill.schemas.commands.values import OF_THIS_RUN
from textmill.schemas.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Options:
    """A command."""

    input: Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
    max_length: int = 128
    rate: float = 0.5
    normalize: Literal["none", "nfc", "no"] = "none"
    resume: bool = False
    verify: bool = True
    splits: str = ""
    name: str | None = None
    stop_words: Annotated[str, tyro.conf.arg(metavar="WORD,...")] = ""


PAGE = Help("pipelines.train", "", "", "", "")
REQUIRED = "input: [a]\n"


def refuse(arguments, names):
    raise UsageError(f"refused {' '.join(arguments)}")


@pytest.fixture
def read(tmp_path):
    """Writes a file and gives back the options that it makes with a command line."""

    def run(text, *argv, check_others=refuse):
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        argv, given = read_config([f"--config={path}", *argv], "train", lambda: (Options,))
        options, _ = parse_known(argv, PAGE, Options, given, check_others=check_others)
        return options

    return run


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Nested(Generic[T]):
    settings: tyro.conf.OmitArgPrefixes[T]
    options: Annotated[Options, tyro.conf.arg(name="")]
    seed: int = 0


def test_fields_of_nested_dataclasses():
    fields = fields_of(Nested)
    assert {**fields_of(Options), "seed": fields["seed"]} == fields
    assert [name for name, field in fields.items() if takes_list(field)] == ["stop_words"]
    assert {name for name, field in fields.items() if is_switch(field)} == {"resume", "verify"}


def test_every_kind_of_value(read):
    assert read(
        "input: [a.txt, 'b c.txt']\nmax_length: 64\nrate: 1e-4\nnormalize: 'no'\nresume: true\n"
        "verify: false\nsplits: {train: 0.9, test: 0.1}\nname:\nstop_words: [a, b]\n"
    ) == Options(
        input=("a.txt", "b c.txt"),
        max_length=64,
        rate=1e-4,
        normalize="no",
        resume=True,
        verify=False,
        splits="train:0.9,test:0.1",
        stop_words="a,b",
    )


@pytest.mark.parametrize("name", ["a\u0085b", "\u2028", "\ufeffé", "\\x85", "- a: #b", "null"])
def test_a_written_file_gives_the_same_values(read, name):
    options = Options(input=(name, "b"), splits=name, name=name)
    assert read(config_bytes("pipelines.command", options).decode()) == options


def test_flags_of_one_run_are_not_written():
    @dataclasses.dataclass(frozen=True)
    class Run:
        seed: int = 3
        resume: bool = dataclasses.field(default=False, metadata=OF_THIS_RUN)

    [_, *lines] = config_bytes("pipelines.command", Run()).decode().splitlines()
    assert lines == ["seed: 3"]


@pytest.mark.parametrize(
    ("typed", "changes"),
    [
        (["--max_length=3"], {"max_length": 3}),
        (["--max-length", "3"], {"max_length": 3}),
        (["--no_resume"], {"resume": False}),
        (["--no-resume"], {"resume": False}),
        (["--input=c"], {"input": ("c",)}),
        (["--input=c", "--input=d"], {"input": ("c", "d")}),
    ],
)
def test_the_command_line_wins(read, typed, changes):
    of_file = Options(input=("a", "b"), max_length=64, resume=True)
    options = read("input: [a, b]\nmax_length: 64\nresume: true\n", *typed)
    assert options == dataclasses.replace(of_file, **changes)


@pytest.mark.parametrize(
    ("text", "typed", "expected"),
    [
        ("splits: [train:1, test:2]\n", [], {"splits": "train:1,test:2"}),  # of one value
        ("max-length: 64\n", [], {"max_length": 64}),
        ("train: {max_length: 64}\nother: {depth: 3}\n", [], {"max_length": 64}),
        ("train:\nother: {depth: 3}\n", ["--rate=1"], {"rate": 1.0}),
        # A file whose only value is a mapping is not a file of parts if that is a flag.
        ("splits: {train: 1}\n", [], {"splits": "train:1"}),
        (
            "other: &other {rate: 1, max_length: 64}\ntrain:\n  <<: *other\n  rate: 2\n",
            [],
            {"rate": 2.0, "max_length": 64},
        ),
    ],
)
def test_lists_parts_and_merged_values(read, text, typed, expected):
    assert read(text, "--input=a", *typed) == Options(input=("a",), **expected)


def test_a_required_flag_is_in_neither_place():
    @dataclasses.dataclass(frozen=True)
    class Run:
        output: str
        seed: int = 0

    def parse(argv, **values):
        given = {name: Given(value) for name, value in values.items()}
        return parse_options(argv, PAGE, Run, given)

    with pytest.raises(UsageError, match="^python -m pipelines.train needs --output=DIR: "):
        parse([], seed=3)
    assert parse(["--output=x"], seed=3) == parse([], output="x", seed=3) == Run("x", 3)


def test_the_two_ways_to_name_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("seed: 1\n")
    for argv in (["--config", str(path), "-v"], ["-v", f"--config={path}"]):
        found = read_config(argv, "train", lambda: (Nested,))
        assert found == (["-v"], {"seed": Given(1, str(path))})
    assert read_config(["--seed=2"], "train", lambda: ()) == (["--seed=2"], {})
    (tmp_path / "ready.yaml").write_text("seed: 3\n")
    _, ready = read_config(["--config=ready"], "train", lambda: (Nested,), folder=tmp_path)
    assert ready == {"seed": Given(3, str(tmp_path / "ready.yaml"))}


def test_a_flag_of_names_is_given_once():
    argv = ["--stop-words", "a", "--seed=1", "--seed=2", "--input=a", "--input=b"]
    assert read_config(argv, "train", lambda: (Nested,)) == (argv, {})
    with pytest.raises(UsageError, match="--stop_words is given 2 times: separate"):
        read_config([*argv, "--stop_words=b"], "train", lambda: (Nested,))


def test_other_flags_become_arguments(tmp_path):
    given = {
        "workers": Given(2),
        "extra": Given(["a", "b"]),
        "on": Given(True),
        "off": Given(False),
        "none": Given(None),
    }
    seen = []
    options, others = parse_known(
        ["--input=a", "--more"],
        PAGE,
        Options,
        given,
        check_others=lambda words, names: seen.append((words, [*names][:2])),
    )
    assert options == Options(input=("a",))
    assert others == ["--workers=2", "--extra=a", "--extra=b", "--on", "--no_off", "--more"]
    names = ["input", "max_length"]
    # The error names the key of `off: false`, not --no_off.
    alone = [["--workers=2"], ["--extra=a", "--extra=b"], ["--on"], ["--off"], ["--more"]]
    assert seen == [(words, names) for words in alone]


def _doubled(times, first, then):
    """v0 is `first`, and each value after it is the one before, twice."""
    lines = [f"v0: &v0 {first}"]
    lines += [f"v{n + 1}: &v{n + 1} {then.format(n)}" for n in range(times)]
    return "\n".join(lines) + "\n"


WRONG = {
    "unknown": ("max_lenght: 3\n", ["job.yaml: refused --max_lenght=3"]),
    "twice": ("rate: 1\nrate: 2\n", ["line 2", "rate is given twice"]),
    "twice in a part": ("train:\n  rate: 1\n  rate: 2\n", ["line 3", "twice"]),
    "twice in a list": ("input:\n  - {a: 1, a: 2}\n", ["line 2", "a is given twice"]),
    "other parts only": ("other: {a: 1}\nthird: {a: 1}\n", ["no part train", "other, third"]),
    "a part that is none": ("train: 3\n", ["train must be a mapping"]),
    "empty": ("", ["holds nothing"]),
    "a list": ("- a\n", ["holds list"]),
    "not YAML": ("a: [\n", ["cannot be read as YAML"]),
    "a key of keys": ("? {a: 1}\n: 2", ["cannot be read as YAML"]),
    "a date": ("max_length: 2020-01-01", ["max_length=2020-01-01: not a whole number"]),
    "an object": ("rate: !!python/object:os.system {}\n", ["cannot be read as YAML"]),
    "a word for a flag": ("resume: maybe\n", ["resume=maybe: give True or False"]),
    "a bare no": (
        "normalize: no\n",
        ["normalize=False: choose one of none, nfc, no; YAML reads"],
    ),
    "a list of lists": (
        "splits: [[1]]\n",
        ["splits=[1]: give a text, a number"],
    ),
    "a mapping of lists": ("splits: {a: [1]}\nrate: 1\n", ["splits=[1]: give a text, a number"]),
    "merge keys that multiply": (
        _doubled(40, "{a: 1}", "{{<<: [*v{0}, *v{0}]}}"),
        ["more than 20 aliases (*name)"],
    ),
    "aliases that multiply": (_doubled(40, "[a]", "[*v{0}, *v{0}]"), ["more than 20 aliases"]),
    "a value that holds itself": ("rate: &a [*a]\n", ["rate=[[...]]: not a number"]),
    "deeper than any": ("a: " + "[" * 9999 + "]" * 9999, ["cannot be read as YAML"]),
    "a long number": ("rate: 1\nmax_length: 0x" + "f" * 9999, ["line 2: a number of 10,001"]),
    "base 60": ("rate: 1" + ":1" * 9999 + ".5\n", ["line 1: a number of 20,001 digits"]),
    "a list of all files": ("input: [" + "a.txt, " * 40_000 + "]", ["262,144", "@LIST.txt"]),
    "a list of bare words": (
        "input: [no]\n",
        ["input=[False]: ", "; YAML reads a bare yes"],
    ),
    "a home directory": (
        "input: [a, ~/b]\n",
        ["input=~/b: ~ is not expanded: write "],
    ),
    "a comma in a list": (
        "splits: ['a,b', c]\n",
        ["splits=['a,b', 'c']: ", "as one text"],
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_clear_errors(read, text, said):
    with pytest.raises(UsageError) as error:
        read(text, *[] if "input" in text else ["--input=a"])
    for words in ("job.yaml", *said):
        assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--config=clasic"], "did you mean classic"),
        (["--config=nowhere/x.yaml"], "no such file"),
        (["--config="], "names no file"),
        (["--seed=1", "--config"], "names no file"),
        (["--config=a", "--config", "b"], "given 2 times"),
    ],
    ids=str,
)
def test_a_file_that_is_not_there(tmp_path, argv, said):
    (tmp_path / "classic.yaml").write_text("")
    with pytest.raises(UsageError, match=said):
        read_config(argv, "train", lambda: (Nested,), folder=tmp_path)
