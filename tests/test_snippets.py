"""Commands and Python on pages run as shown, and print what the page shows.

A block that runs stands behind a comment:

    <!-- run -->                            in a directory with what pages name: texts, corpus, ...
    <!-- run: slow steps=2 model=tiny -->   in the slow tests, with other values for these names
    <!-- run: demo -->                      commands of the demo; `...` stands for the rest of one
    <!-- shown -->                          what the block above prints

Each line that is shown must be printed: as it is by the demo, with numbers within `TOLERANCE` (or
`OTHER_TEXT` if this Python's documentation has another number of documents than the README's); with
any numbers in other directories. Seconds are any; a line of `...` stands for others.
"""

import contextlib
import importlib
import io
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

from tests.tools.places import ROOT
from textmill.pipelines.demo import DemoOptions, _commands, write_documents

TOLERANCE, OTHER_TEXT = 0.02, 0.2
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^<!-- (?:run(?:: ([^>]*))?|(shown)) -->\n+```(\w*)\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_OUTPUTS = ("--output=", "--export=")


class Block(NamedTuple):
    """A block that runs.

    Attributes:
      place: README.md:57.
      words: of the comment, without `run`.
      language: python, or "" for commands.
      code: as it runs.
      shown: lines of a block behind <!-- shown -->.
    """

    place: str
    words: tuple[str, ...]
    language: str
    code: str
    shown: tuple[str, ...] = ()


class Step(NamedTuple):
    """A command and the lines that a page shows of its output."""

    command: str
    shown: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page that run."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(text):
        words, shown, language, code = match.groups()
        if shown:
            found[-1] = found[-1]._replace(shown=tuple(code.splitlines()))
            continue
        place = f"{page.name}:{text[: match.start()].count(chr(10)) + 2}"
        words = tuple(shlex.split(words or ""))
        for name, equals, value in (word.partition("=") for word in words):
            if equals:
                code, changed = re.subn(rf"\b{name}=('[^']*'|[^\s,)]+)", f"{name}={value}", code)
                assert changed, f"{place} has no {name}="
        found.append(Block(place, words, language, code))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def test_all_python_of_readers_runs():
    text = (ROOT / "docs/readers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    ours = [block for block in blocks if "import seqio" not in block]  # is not installed
    assert [block.code for block in blocks_of(ROOT / "docs/readers.md") if block.language] == ours


def chosen(*, language: str, slow: bool) -> list:
    """Blocks as parameters of a test."""
    some = [b for b in BLOCKS if "demo" not in b.words and b.language == language]
    return [pytest.param(b, id=b.place) for b in some if ("slow" in b.words) == slow]


def steps_of(code: str) -> list[Step]:
    """The commands of a block, each with the lines below it."""
    lines = code.replace("\\\n", " ").splitlines()
    starts = [n for n, line in enumerate(lines) if re.match(r"(\$ )?(python -m |textmill )", line)]
    steps = []
    for start, stop in itertools.pairwise([*starts, len(lines)]):
        prompt = lines[start].startswith("$ ")
        below = [line for line in lines[start + 1 : stop] if prompt and line.strip()]
        steps.append(Step(lines[start].removeprefix("$ "), tuple(below)))
    return steps


def run(command: str) -> str:
    """What a command prints, in this process."""
    words = shlex.split(command, comments=True)
    if words[0] == "textmill":
        from textmill.schemas.commands.textmill import COMMANDS

        words = ["python", "-m", COMMANDS[words[1]], *words[2:]]
    for word in words:
        for flag in _OUTPUTS:
            if word.startswith(flag):
                shutil.rmtree(word.removeprefix(flag), ignore_errors=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        importlib.import_module(f"textmill.{words[2]}").main(words[3:])
    return out.getvalue()


def plain(line: str) -> str:
    """A line without the borders of tables, and without seconds."""
    words = " ".join(re.sub("[│┃┌┐└┘├┤┬┴┼─━┏┓┗┛┡┩╇╈┳┻]", " ", line).split())
    return re.sub(r"\b[\d.]+ s\b", "N s", words)


def missing(shown: tuple[str, ...], printed: str, tolerance: float) -> list[str]:
    """Lines that were not printed, with numbers within a share of those that are shown."""
    lines = [plain(line) for line in printed.splitlines()]

    def is_printed(line: str) -> bool:
        numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(line)]
        for candidate in lines:
            if _NUMBER.sub("#", candidate) == _NUMBER.sub("#", line):
                found = [float(n.replace(",", "")) for n in _NUMBER.findall(candidate)]
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
        os.mkdir("texts")
        for number, text in enumerate(texts):
            Path(f"texts/{number}.txt").write_text(text, encoding="utf-8")
        lines = [json.dumps({"text": text, "lang": "en"}) + "\n" for text in texts]
        Path("pages.jsonl").write_text("".join(lines), encoding="utf-8")
        run(
            "python -m pipelines.build_corpus --input=texts --output=corpus --min_words=15 "
            "--gopher_min_alphabetic=0.8 --keep_rejects"
        )
        run(
            "python -m pipelines.train_tokenizer --input=corpus --output=tokenizer --vocab_size=600"
        )
        rows = "python -m pipelines.build_shards --tokenizer=tokenizer --input=corpus "
        run(
            f"{rows} --task=clm --max_length=64 --num_shards=1 --splits=train:0.9,validation:0.1 "
            "--file_format=both --output=shards"
        )
        for name in ("books", "web", "demo/shards"):
            shutil.copytree("shards", name)
        run(
            f"{rows} --task=tokens --num_shards=1 --file_format=npy,llmc,array_record "
            "--output=documents"
        )
        for to in ("parquet", "arrow"):
            run(f"python -m pipelines.export shards --to={to} --output=shards-{to}")
        run("python -m pipelines.export shards --to=parquet --layout=huggingface --output=rows")
    return place


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """A copy of the directory, in which a block runs."""
    shutil.copytree(world, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    monkeypatch.setenv("COLUMNS", "200")


def check_commands(block: Block) -> None:
    printed = ""
    for step in steps_of(block.code):
        printed = run(step.command)
        assert missing(step.shown, printed, float("inf")) == [], printed
    assert printed and missing(block.shown, printed, float("inf")) == [], printed


@pytest.mark.parametrize("block", chosen(language="", slow=False))
def test_commands_run(block, here):
    check_commands(block)


@pytest.mark.slow
@pytest.mark.parametrize("block", chosen(language="", slow=True))
def test_commands_that_take_longer_run(block, here):
    check_commands(block)


LIMITED = """
import itertools, json, sys
from textmill import ShardSet
batches = ShardSet.batches  # never end
ShardSet.batches = lambda *of, **how: itertools.islice(batches(*of, **how), 30)
for block in json.load(open(sys.argv[1])):
    exec(compile(block, "snippet", "exec"), {"__name__": "snippet"})
    print("ran", flush=True)
"""


def run_python(blocks: list[Block]) -> str:
    """What blocks print, in one new process, in which `batches` end."""
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


def test_python_runs(here):
    printed = run_python([param.values[0] for param in chosen(language="python", slow=False)])
    assert printed


@pytest.mark.slow
def test_python_that_takes_longer_runs(here):
    blocks = [param.values[0] for param in chosen(language="python", slow=True)]
    assert len(blocks) > 9
    printed = run_python(blocks)
    for block in blocks:
        assert missing(block.shown, printed, float("inf")) == [], block.place


@pytest.mark.slow
def test_the_demo_prints_what_pages_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    documents, size = write_documents(Path("demo/raw.jsonl"))
    first = f"{documents:,} documents, {size / 1e6:.1f} MB of Python's own documentation"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tolerance = TOLERANCE if f"\n{first}\n" in readme else OTHER_TEXT
    assert missing((re.findall(".* documentation$", readme, re.M)[0],), first, tolerance) == []
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
            if module not in printed:
                printed[module] = run(f"python -m {module} {whole[module]}")
            assert missing(shown, printed[module], tolerance) == [], printed[module]
