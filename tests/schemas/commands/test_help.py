"""--help of every command: one screen, all flags on request, real defaults, words that wrap."""

import os
import re
from collections import UserDict
from dataclasses import MISSING, dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Literal

import pytest

from tests.tools.help_pages import HELPED, help_of
from tests.tools.places import ROOT
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.help import (
    Flag,
    Help,
    flags_of,
    help_lines,
    without_slow_parts,
)
from textmill.schemas.commands.options import fields_of, takes_list
from textmill.schemas.errors import UsageError

MOST_LINES = 60
KINDS = {
    "pipelines.build_corpus": "textmill.pipelines.corpus.options:CorpusOptions",
    "pipelines.build_shards": "textmill.pipelines.shards.options:BuildOptions",
    "pipelines.train_tokenizer": "textmill.pipelines.tokenizer.options:TokenizerOptions",
    "pipelines.verify": "textmill.pipelines.inspection.options:VerifyOptions",
    "pipelines.inspect_shards": "textmill.pipelines.inspection.options:InspectOptions",
    "pipelines.train_quality_model": "textmill.pipelines.quality.options:QualityOptions",
    "pipelines.publish": "textmill.pipelines.publishing.options:PublishOptions",
    "pipelines.export": "textmill.pipelines.inspection.options:ExportOptions",
    "pipelines.describe": "textmill.pipelines.description.options:DescribeOptions",
    "pipelines.demo": "textmill.pipelines.demo:DemoOptions",
    "pipelines.flex_template": "textmill.pipelines.templates.options:TemplateOptions",
    "trainers.trace": "textmill.trainers.use.trace_flags:TraceFlags",
    "trainers.evaluate": "textmill.trainers.use.verbs:EvaluateFlags",
    "trainers.generate": "textmill.trainers.use.verbs:GenerateFlags",
    "trainers.chat": "textmill.trainers.use.verbs:ChatFlags",
    "trainers.predict": "textmill.trainers.use.verbs:PredictFlags",
    "trainers.export_model": "textmill.trainers.use.verbs:ExportFlags",
}
UNSHOWN = {
    "directory",
    "directories",
    "run",
    "text",
    "message",
}  # have no dashes, or are set by Textmill


@dataclass(frozen=True)
class Model:
    """Which model"""

    layers: int = 12
    """Number of layers. More layers learn more, and cost
    more."""
    steps: int | None = None
    """Number of steps. Use fewer for a trial. Default: one epoch."""


@dataclass(frozen=True)
class Flags:
    output: str
    """Directory of the run."""
    kind: Literal["a", "b"] = "a"
    """Kind of thing. a: the first. b: the second."""
    names: tuple[str, ...] = ()
    """Names to keep."""
    verify: bool = True
    """Check files first."""
    rate: float = 5e-4
    """Share of tokens."""
    model: Model = Model(layers=6)


PAGE = Help(
    module="pipelines.thing",
    about="Makes things.",
    usage="--output=DIR",
    example="--output=run",
    page="docs/tasks.md",
    common="kind steps",
    groups={"Files: what is written": "output names", "Run": "verify kind rate"},
)


def lines(request):
    return list(help_lines(request, PAGE, list(flags_of(Flags))))


def test_the_first_screen_has_common_flags_and_first_sentences():
    assert lines("") == [
        "usage: python -m pipelines.thing --output=DIR [FLAGS]",
        "",
        "Makes things.",
        "",
        "Files: what is written",
        "  --output=DIR          Directory of the run. Required.",
        "",
        "Run",
        "  --kind=a|b            Kind of thing. Default: a.",
        "",
        "Model: Which model",
        "  --steps=N             Number of steps. Default: one epoch.",
        "",
        "--help=all shows every flag, --help=GROUP one of: files, run, model.",
        "Example: python -m pipelines.thing --output=run",
        f"Docs: {os.path.relpath(ROOT / 'docs/tasks.md')}",
    ]
    # A page that is not installed is not named.
    *_, last = help_lines("", replace(PAGE, page="docs/none.md"), list(flags_of(Flags)))
    assert last == "Example: python -m pipelines.thing --output=run"


def test_a_group_has_all_of_its_flags_with_their_whole_texts():
    assert lines("model")[4:-4] == [
        "Model: Which model",
        "  --layers=N            Number of layers. More layers learn more, and cost more.",
        "                        Default: 6.",
        "  --steps=N             Number of steps. Use fewer for a trial. Default: one",
        "                        epoch.",
    ]


def test_all_has_every_flag_in_the_order_of_the_page(monkeypatch):
    shown = [line.split("  ")[1] for line in lines("all") if line.startswith("  --")]
    assert shown == [
        *("--output=DIR", "--names=NAMES", "--verify, --no_verify", "--kind=a|b", "--rate=X"),
        *("--layers=N", "--steps=N"),
    ]
    assert "  --rate=X              Share of tokens. Default: 0.0005." in lines("all")
    monkeypatch.setenv("COLUMNS", "200")
    assert 80 < max(map(len, lines("all"))) <= 100


def test_an_unknown_group_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="--help=modl: there is no such group; did you mean model"):
        lines("modl")
    with pytest.raises(UsageError, match="the groups are files, run, model"):
        lines("x")


@pytest.fixture(scope="module", params=HELPED, ids=" ".join)
def helped(request):
    """A command, its first screen and its whole help."""
    command = request.param
    return command, help_of(*command, "--help"), help_of(*command, "--help=all")


def test_the_first_screen_fits_and_its_usage_its_example_and_its_page_exist(helped):
    command, first, whole = helped
    assert len(first.splitlines()) <= MOST_LINES
    assert max(map(len, first.splitlines())) <= 80
    for text in (first, whole):
        *_, last = text.splitlines()
        assert f"\nExample: python -m {command[0]}" in text
        assert last.startswith("Docs: ") and (ROOT / last.removeprefix("Docs: ")).exists()
        assert not re.search(r"\bNone\b|Default: \.|''|\{None", text), "a default of none"
    usage = first.partition("\n\n")[0].partition(f"-m {command[0]}")[2]
    for word in re.sub(r"\[(\w+)\]", r"\1", usage.replace("[FLAGS]", "")).split():
        assert re.search(rf"^  {re.escape(word)}\s", first, re.M), word


def test_every_flag_is_a_sentence(helped):
    """It begins with a capital, a number or a value, and ends with a stop."""
    _, _, text = helped
    flags = re.split(r"\n  (?=--|[A-Z]{3})", text.partition("\n\n--help")[0])[1:]
    for flag in (part.split("\n\n")[0] for part in flags):
        assert flag.rstrip().endswith("."), flag


@pytest.mark.parametrize("command", HELPED, ids=" ".join)
def test_a_default_in_help_is_the_default_that_is_used(command, monkeypatch):
    """A default that was written by hand names the value, which a subclass may have changed."""
    shown: list[Flag] = []
    lines = lambda request, page, flags: shown.extend(flags) or [""]  # noqa: E731
    monkeypatch.setattr("textmill.schemas.commands.help.help_lines", lines)
    with pytest.raises(SystemExit, match="0"):
        import_module(command[0]).main([*command[1:], "--help=all"])
    assert shown
    for flag in shown:
        *_, value = flag.describe.args  # type: ignore[attr-defined]
        if value is not None and value is not False and value not in (MISSING, "", ()):
            used = "on" if value is True else f"{value:g}" if isinstance(value, float) else value
            default = flag.sentences[-1]
            told = {default} | {f"Default: {word}." for word in re.split("[^\\w.]+", default)}
            assert f"Default: {used}." in told, f"--{flag.name} is {used}; {default}"


def test_all_names_every_flag(helped):
    (module, *task), _, text = helped
    name, _, kind = KINDS.get(module, f"{module}:").partition(":")
    kinds = [getattr(import_module(name), kind) if kind else import_module(name).TRAINER.flags]
    if task:
        kinds.append(task_class(task[0].partition("=")[2]))
    fields = fields_of(*kinds)
    for flag in {*fields} - UNSHOWN:
        found = re.search(rf"^  --{flag}\b(.|\n)*?(?=\n  -|\n\n)", text, re.M)
        assert found, flag
        # read_config refuses the second of such flags.
        assert takes_list(fields[flag]) or "separated by commas" not in " ".join(found[0].split())


PLACES = ("--input=x", "--output=s")


@pytest.mark.parametrize(
    ("entry", "argv", "line"),
    [
        ("pipelines.build_shards", [*PLACES], r"needs --tokenizer=PATH\|NAME: .* --help shows the"),
        ("pipelines.train_tokenizer", [*PLACES], "needs --vocab_size=N: "),
        (
            "pipelines.train_tokenizer",
            [*PLACES, "--vocab_size=many"],
            "=many: not a whole number",
        ),
        ("trainers.flax_clm", ["--shards=s", "--learning_rate=fast"], "_rate=fast: not a number"),
        ("pipelines.build_corpus", [*PLACES, "--document=page"], "=page: choose one of file, para"),
        ("pipelines.build_corpus", ["--input"], "^--input=PATH has no value: "),
        ("pipelines.build_corpus", ["--ouput=s"], "^unknown flag --ouput=s: did you mean --output"),
        (
            "pipelines.build_corpus",
            [*PLACES, "--dry-run=yes"],
            "^--dry_run=yes: it takes no value: give --dry_run or --no_dry_run$",
        ),
        (
            "trainers.flax_clm",
            ["--shards=s", "--no_tied=1"],
            "^--no_tied=1: it takes no value: give --tied or --no_tied$",
        ),
        ("pipelines.verify", ["s", "--folow_links"], "--folow_links: did you mean --follow_links"),
        (
            "pipelines.demo",
            ["more"],
            "^more belongs to no flag: a flag takes one value; a text of .* needs quotes$",
        ),
        ("trainers.evaluate", ["--foo"], r"^RUN\S* has no value: "),
        (
            "trainers.flax_clm",
            ["--shards=s", "more"],
            "^more .* write --shards=more; for ",
        ),
    ],
)
def test_what_tyro_rejects_is_one_line(entry, argv, line, capfd):
    with pytest.raises(UsageError, match=line) as found:
        import_module(entry).main(argv)
    assert "\n" not in str(found.value)
    assert "".join(capfd.readouterr()) == ""


class Words(UserDict):
    """A class whose metaclass is that of abstract classes."""


@pytest.mark.parametrize(
    "kind",
    [
        *(tuple[str, ...], tuple[int, ...], tuple[tuple[str, ...], ...], tuple[Words, ...]),
        *(Words, int | Words | None, tuple[str, ...] | None, Literal["a"], str, int, Any),
        *(list[str], tuple[str, int], Annotated[tuple[str, ...], 3]),
    ],
)
@pytest.mark.parametrize(
    "value", [(), ("a",), (3, 4), (("a",),), [], ["a"], None, 3, "a", Words(), (Words(),)]
)
def test_defaults_are_checked_as_typeguard_does(kind, value):
    """tyro's own check loads typeguard, which looks at the first element of a tuple."""
    resolver = import_module("tyro._resolver")
    with without_slow_parts():
        is_one = resolver.is_instance(kind, value)
    assert is_one == resolver.is_instance(kind, value)
