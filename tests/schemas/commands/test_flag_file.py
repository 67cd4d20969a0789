"""Files of flags: their values, those of the command line, and a clear error of every mistake."""

import dataclasses
from typing import Annotated, Generic, Literal, TypeVar

import pytest
import tyro

from textmill.schemas.commands.flag_file import config_bytes, kinds_of, with_config
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


def parse(argv):
    return tyro.cli(Options, args=argv, use_underscores=True)


@pytest.fixture
def expanded(tmp_path):
    """Writes a file and gives back what it makes of a command line."""

    def run(text, *argv):
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return with_config([f"--config={path}", *argv], "train", lambda: (Options,))

    return run


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Nested(Generic[T]):
    settings: tyro.conf.OmitArgPrefixes[T]
    options: Annotated[Options, tyro.conf.arg(name="")]
    seed: int = 0


def test_kinds_of_flags():
    kinds = kinds_of(Options)
    assert kinds_of(Nested) == {**kinds, "seed": "value"}
    assert kinds.pop("input") == "list" and kinds.pop("stop_words") == "names"
    assert {name for name, kind in kinds.items() if kind == "bool"} == {"resume", "verify"}


def test_every_kind_of_value(expanded):
    argv = expanded(
        "input: [a.txt, 'b c.txt']\nmax_length: 64\nrate: 1e-4\nnormalize: 'no'\nresume: true\n"
        "verify: false\nsplits: {train: 0.9, test: 0.1}\nname:\n"
    )
    assert argv == [
        "--input=a.txt",
        "--input=b c.txt",
        "--max_length=64",
        "--rate=1e-4",
        "--normalize=no",
        "--resume",
        "--no_verify",
        "--splits=train:0.9,test:0.1",
    ]
    options = parse(argv)
    assert options.input == ("a.txt", "b c.txt") and options.rate == 1e-4
    assert options.resume and not options.verify and options.name is None


@pytest.mark.parametrize("name", ["a\u0085b", "\u2028", "\ufeffé", "\\x85", "- a: #b", "null"])
def test_a_written_file_gives_the_same_values(expanded, name):
    options = Options(input=(name, "b"), splits=name, name=name)
    text = config_bytes("pipelines.command", options).decode()
    assert parse(expanded(text)) == options


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        (["--max_length=3"], ["--input=a", "--input=b", "--resume"]),
        (["--max-length", "3"], ["--input=a", "--input=b", "--resume"]),
        (["--no_resume"], ["--input=a", "--input=b", "--max_length=64"]),
        (["--no-resume"], ["--input=a", "--input=b", "--max_length=64"]),
        (["--input=c"], ["--max_length=64", "--resume"]),
    ],
)
def test_the_command_line_wins(expanded, typed, left):
    assert expanded("input: [a, b]\nmax_length: 64\nresume: true\n", *typed) == [*left, *typed]


@pytest.mark.parametrize(
    ("text", "typed", "expected"),
    [
        ("splits: [train:1, test:2]\n", [], ["--splits=train:1,test:2"]),  # of one value
        ("max-length: 64\n", [], ["--max_length=64"]),
        ("train: {max_length: 64}\nother: {depth: 3}\n", [], ["--max_length=64"]),
        ("train:\nother: {depth: 3}\n", ["--rate=1"], ["--rate=1"]),
        # A file whose only value is a mapping is no file of parts if that is a flag.
        ("splits: {train: 1}\n", [], ["--splits=train:1"]),
        (
            "other: &other {rate: 1, max_length: 64}\ntrain:\n  <<: *other\n  rate: 2\n",
            [],
            ["--rate=2", "--max_length=64"],
        ),
    ],
)
def test_lists_parts_and_merged_values(expanded, text, typed, expected):
    assert sorted(expanded(text, *typed)) == sorted(expected)


def test_the_two_ways_to_name_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("seed: 1\n")
    for argv in (["--config", str(path), "-v"], ["-v", f"--config={path}"]):
        assert with_config(argv, "train", lambda: (Nested,)) == ["--seed=1", "-v"]
    assert with_config(["--seed=2"], "train", lambda: ()) == ["--seed=2"]
    (tmp_path / "ready.yaml").write_text("seed: 3\n")
    ready = with_config(["--config=ready"], "train", lambda: (Nested,), folder=tmp_path)
    assert ready == ["--seed=3"]


def test_a_flag_of_names_is_given_once():
    argv = ["--stop-words", "a", "--seed=1", "--seed=2", "--input=a", "--input=b"]
    assert with_config(argv, "train", lambda: (Nested,)) == argv
    with pytest.raises(UsageError, match="--stop_words is given 2 times: separate"):
        with_config([*argv, "--stop_words=b"], "train", lambda: (Nested,))


def test_an_error_names_the_key_of_a_flag_that_is_off(tmp_path):
    def check(flags):
        raise UsageError(f"unknown flag {flags[0]}")

    (tmp_path / "job.yaml").write_text("depth: false\n")
    argv = [f"--config={tmp_path / 'job.yaml'}"]
    with pytest.raises(UsageError, match="job.yaml: unknown flag --depth$"):
        with_config(argv, "train", lambda: (Options,), check)


def _doubled(times, first, then):
    """v0 is `first`, and each value after it is the one before, twice."""
    lines = [f"v0: &v0 {first}"]
    lines += [f"v{n + 1}: &v{n + 1} {then.format(n)}" for n in range(times)]
    return "\n".join(lines) + "\n"


WRONG = {
    "unknown": ("max_lenght: 3\n", ["no flag 'max_lenght'", "did you mean max_length?"]),
    "nothing like it": ("xyz: 3\n", ["no flag 'xyz'", "there are input, max_length"]),
    "twice": ("rate: 1\nrate: 2\n", ["line 2", "rate is given twice"]),
    "twice in a part": ("train:\n  rate: 1\n  rate: 2\n", ["line 3", "twice"]),
    "twice in a list": ("input:\n  - {a: 1, a: 2}\n", ["line 2", "a is given twice"]),
    "other parts only": ("other: {a: 1}\nthird: {a: 1}\n", ["no part train", "other, third"]),
    "a part that is none": ("train: 3\n", ["train must be a mapping"]),
    "empty": ("", ["holds nothing"]),
    "a list": ("- a\n", ["holds list"]),
    "not YAML": ("a: [\n", ["cannot be read as YAML"]),
    "a key of keys": ("? {a: 1}\n: 2", ["cannot be read as YAML"]),
    "a date": ("max_length: 2020-01-01", ["max_length is "]),
    "an object": ("rate: !!python/object:os.system {}\n", ["cannot be read as YAML"]),
    "a word for a flag": ("resume: maybe\n", ["resume is 'maybe'", "true or false"]),
    "a bare no": ("normalize: no\n", ["normalize is False", "in quotes"]),
    "a list of lists": ("splits: [[1]]\n", ["splits is [[1]]"]),
    "a mapping of lists": ("splits: {a: [1]}\nrate: 1\n", ["splits is {'a': [1]}"]),
    "merge keys that multiply": (
        _doubled(40, "{a: 1}", "{{<<: [*v{0}, *v{0}]}}"),
        ["more than 20 aliases (*name)"],
    ),
    "aliases that multiply": (_doubled(40, "[a]", "[*v{0}, *v{0}]"), ["more than 20 aliases"]),
    "a value that holds itself": ("rate: &a [*a]\n", ["rate is [[[", "a value or a list of them"]),
    "deeper than any": ("a: " + "[" * 9999 + "]" * 9999, ["cannot be read as YAML"]),
    "a long number": ("rate: 1\nmax_length: 0x" + "f" * 9999, ["line 2: a number of 10,001"]),
    "base 60": ("rate: 1" + ":1" * 9999 + ".5\n", ["line 1: a number of 20,001 digits"]),
    "a list of all files": ("input: [" + "a.txt, " * 40_000 + "]", ["262,144", "@LIST.txt"]),
    "a list of bare words": ("input: [no]\n", ["input is [False]"]),
    "a home directory": ("input: [a, ~/b]\n", ["input is ['a', '~/b'], and ~ is not expanded"]),
    "a comma in a list": ("splits: ['a,b', c]\n", ["splits is ['a,b', 'c']", "as one text"]),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_clear_errors(expanded, text, said):
    with pytest.raises(UsageError) as error:
        expanded(text)
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
        with_config(argv, "train", lambda: (Nested,), folder=tmp_path)
