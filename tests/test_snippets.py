"""Commands and Python on pages run as shown, and print what the page shows.

`tests/tools/page_blocks.py` describes the marks of blocks: each block has one.

Each line that is shown must be printed: as it is by the demo, with numbers within `TOLERANCE` (or
`OTHER_TEXT` if this Python's documentation has another number of documents than the page's); with
any numbers in other directories. Seconds and digests are any; a line of `...` stands for others,
and a line that ends in `...` is the beginning of one.
"""

import contextlib
import importlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.message_reference import texts_of_sources
from tests.tools.page_blocks import KINDS, PAGES, Block, groups_of, read_blocks
from tests.tools.page_world import build_world, printed, train_models
from tests.tools.places import ROOT
from textmill.pipelines.demo import DemoOptions, _commands, write_documents

TOLERANCE, OTHER_TEXT = 0.02, 0.2
_COMMAND = re.compile(r"(\$ )?(python -m |textmill |cat [^>]*$)")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_OUTPUTS = ("--output=", "--export=", "--export_saved_model=", "--to=")
GROUPS = [group for page in PAGES for group in groups_of(page)]
BLOCKS = [block for group in GROUPS for block in group]


class Step(NamedTuple):
    """A command and the lines that a page shows of its output."""

    command: str
    shown: tuple[str, ...]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_has_a_mark(page):
    for block in read_blocks(page):
        assert block.kind in KINDS, f"{block.place}: no mark (tests/tools/page_blocks.py)"
        assert block.about or block.kind in ("run", "shown", "message"), f"{block.place}: why?"
        if block.kind == "tested by":
            test = (ROOT / block.about).read_text(encoding="utf-8")
            assert Path(block.place.split(":")[0]).name in test, block.place


def test_messages_on_pages_are_those_of_the_sources():
    texts = "\n".join(texts_of_sources())
    parts = [text.split("...") for text in texts.splitlines()]
    patterns = [re.compile(".+".join(map(re.escape, part)) + "( .+)?") for part in parts]
    blocks = [block for page in PAGES for block in read_blocks(page) if block.kind == "message"]
    for block in blocks:
        for message in re.split(r"^(?:error|warning|note): ", block.code, flags=re.M)[1:]:
            text = " ".join(message.split())
            assert any(pattern.fullmatch(text) for pattern in patterns), f"{block.place}: {text}"
    assert blocks


def chosen(*, language: str, slow: bool) -> list:
    """Groups of blocks as parameters of a test."""
    some = [g for g in GROUPS if "demo" not in g[0].words and g[0].language == language]
    return [pytest.param(g, id=g[0].place) for g in some if ("slow" in g[0].words) == slow]


def steps_of(code: str) -> list[Step]:
    """The commands of a block, each with the lines below it."""
    lines = code.replace("\\\n", " ").splitlines()
    starts = [n for n, line in enumerate(lines) if _COMMAND.match(line)]
    steps = []
    for start, stop in itertools.pairwise([*starts, len(lines)]):
        prompt = lines[start].startswith("$ ")
        below = [line for line in lines[start + 1 : stop] if prompt and line.strip()]
        steps.append(Step(lines[start].removeprefix("$ "), tuple(below)))
    return steps


def split_words(command: str) -> list[str]:
    """The words of a command as a shell reads them."""
    split = ["bash", "-c", f"printf '%s\\0' {command}"]
    return subprocess.run(split, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def run(command: str) -> str:
    """What a command prints, in this process."""
    words = split_words(command)
    if words[0] == "cat":
        return "".join(Path(word).read_text(encoding="utf-8") for word in words[1:])
    if words[0] == "textmill":
        from textmill.schemas.commands.textmill import COMMANDS

        del words[1 : 1 + (words[1] == "train")]
        words = ["python", "-m", COMMANDS[words[1]], *words[2:]]
    for word in words:
        for flag in _OUTPUTS:
            if word.startswith(flag):
                subprocess.run(["rm", "-rf", word.removeprefix(flag)], check=True)
    with printed() as out:
        importlib.import_module(f"textmill.{words[2]}").main(words[3:])
    return out.getvalue()


def plain(line: str) -> str:
    """A line without the borders of tables, and without seconds."""
    words = " ".join(re.sub("[│┃┌┐└┘├┤┬┴┼─━┏┓┗┛┡┩╇╈┳┻]", " ", line).split())
    return re.sub(r"\b[\d.]+ s\b", "N s", re.sub(r"\b[0-9a-f]{12,}\b", "DIGEST", words))


def missing(shown: tuple[str, ...], printed: str, tolerance: float) -> list[str]:
    """Lines that were not printed, with numbers within a share of those that are shown."""
    lines = [plain(line) for line in printed.splitlines()]

    def is_printed(line: str) -> bool:
        numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(line)]
        wanted = _NUMBER.sub("#", line)
        for candidate in lines:
            words = _NUMBER.sub("#", candidate)
            if words == wanted or (line.endswith("...") and words.startswith(wanted[:-3])):
                found = [float(n.replace(",", "")) for n in _NUMBER.findall(candidate)]
                found = found[: len(numbers)]
                if all(
                    abs(a - b) <= tolerance * max(abs(a), 1e-9)
                    for a, b in zip(numbers, found, strict=True)
                ):
                    return True
        return False

    wanted = (plain(line) for line in shown if line.strip() not in ("", "..."))
    return [line for line in wanted if not is_printed(line)]


@pytest.fixture(scope="module")
def world(topics, tmp_path_factory):
    """A directory with small versions of what pages name."""
    place = tmp_path_factory.mktemp("world")
    texts = [text for text in topics if len(text) > 100][:300]
    with contextlib.chdir(place):
        build_world(texts, run)
    return place


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """The same with trained models."""
    place = tmp_path_factory.mktemp("trained") / "world"
    shutil.copytree(world, place)
    with contextlib.chdir(place):
        train_models(run)
    return place


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """A copy of the directory, in which a block runs."""
    enter_copy(world, tmp_path, monkeypatch)


@pytest.fixture
def here_with_models(trained, tmp_path, monkeypatch):
    """A copy of the directory with models."""
    enter_copy(trained, tmp_path, monkeypatch)


def enter_copy(place: Path, to: Path, monkeypatch) -> None:
    shutil.copytree(place, to / "world")
    monkeypatch.chdir(to / "world")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(str(to / "world"))


def check_commands(group: list[Block]) -> None:
    for block in group:
        for name, content in block.files:
            Path(name).write_text(content, encoding="utf-8")
        printed = ""
        for step in steps_of(block.code):
            printed = run(step.command)
            assert missing(step.shown, printed, float("inf")) == [], printed
        assert printed and missing(block.shown, printed, float("inf")) == [], printed


@pytest.mark.parametrize("group", chosen(language="", slow=False))
def test_commands_run(group, here):
    check_commands(group)


@pytest.mark.slow
@pytest.mark.parametrize("group", chosen(language="", slow=True))
def test_commands_that_take_longer_run(group, here_with_models):
    check_commands(group)


LIMITED = """
import itertools, json, sys
from textmill import ShardSet
batches = ShardSet.batches  # never end
ShardSet.batches = lambda *of, **how: itertools.islice(batches(*of, **how), 30)
for block in json.load(open(sys.argv[1])):
    exec(compile(block, "snippet", "exec"), {"__name__": "snippet"})
    print("ran", flush=True)
"""


def run_python(groups: list[list[Block]]) -> str:
    """What blocks print, in one new process, in which `batches` end."""
    blocks = [block for group in groups for block in group]
    Path("blocks.json").write_text(json.dumps([block.code for block in blocks]))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "blocks.json"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": os.path.abspath("hf")},
        capture_output=True,
        text=True,
        check=False,
    )
    ran = len(re.findall(r"^ran$", done.stdout, re.M))
    assert ran == len(blocks), f"{blocks[ran].place}\n{blocks[ran].code}{done.stderr[-3000:]}"
    return done.stdout


def check_python(groups: list[list[Block]]) -> None:
    printed = run_python(groups)
    for [block] in groups:
        assert missing(block.shown, printed, float("inf")) == [], f"{block.place}: {printed}"


def test_python_runs(here):
    check_python([param.values[0] for param in chosen(language="python", slow=False)])


@pytest.mark.slow
def test_python_that_takes_longer_runs(here_with_models):
    groups = [param.values[0] for param in chosen(language="python", slow=True)]
    assert len(groups) > 9
    check_python(groups)


@pytest.mark.slow
def test_the_demo_prints_what_pages_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    documents, size = write_documents(Path("demo/raw.jsonl"))
    first = f"{documents:,} documents, {size / 1e6:.1f} MB of Python's own documentation"
    page = (ROOT / "docs/quick_start.md").read_text(encoding="utf-8")
    tolerance = TOLERANCE if f"\n{first}\n" in page else OTHER_TEXT
    [of_page] = re.findall("^.* documents, .* documentation$", page, re.M)
    assert missing((of_page,), first, tolerance) == []
    whole = {
        module: shlex.join(flags) for module, *flags in _commands(DemoOptions(), "demo/raw.jsonl")
    }
    printed: dict[str, str] = {}
    blocks = [block for block in BLOCKS if "demo" in block.words]
    assert len(blocks) >= 3
    for block in blocks:
        for step in steps_of(block.code):
            module, shown = step.command.split()[2], step.shown + block.shown
            flags = step.command.partition(module)[2].removesuffix("...").replace("demo/", "")
            wanted = shlex.split(whole[module].replace("demo/", ""))
            assert {*shlex.split(flags)} <= {*wanted}, f"{block.place}: {step.command}"
            if module.startswith("trainers.") and "CI" not in os.environ:
                continue  # 300 steps take two minutes of a processor
            for needed, typed in whole.items():  # a command reads what those before it wrote
                if module not in printed and needed not in printed:
                    printed[needed] = run(f"python -m {needed} {typed}")
            assert missing(shown, printed[module], tolerance) == [], printed[module]
