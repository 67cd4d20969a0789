"""README and docs/: short, without dead links or orphans, only flags and files that exist."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tools.places import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
README_BYTES = 12_000
ENTRIES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("pipelines", "trainers")
    for path in (ROOT / package).glob("*.py")
    if "run_entry(main)" in path.read_text(encoding="utf-8")
)
TO_BEAM = {"pipelines.build_corpus", "pipelines.build_shards", "pipelines.train_tokenizer"}
# Of Flink's job server, which is asked for its flags, and of other programs than ours.
OF_JOB_SERVER = {"max_bundle_size"}
OF_OTHERS = {"worker_pool", "service_port"}
NO_FLAGS = {"append", "whole_word_masking"}  # why there is none
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--([a-z]\w*)")
COMMAND = re.compile(r"^(?:\$ )?python -m ([\w.]+)(.*)")
# By who follows docs/extending.md.
MADE_BY_READER = {"pipelines/tasks/prefix_lm.py", "pipelines/readers/formats/endoftext.py"}
FLAGS_BY_READER = {"prefix_share"}


def fences(text: str) -> list[str]:
    """The blocks of code of a page."""
    return re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.M | re.S)


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.M | re.S)


def inline_code(text: str) -> list[str]:
    """What stands between backticks in a page's prose, on one line each."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))]


def commands(text: str) -> list[tuple[str, str]]:
    """(module, arguments) of each `python -m ...` that a page shows."""
    lines = [line for code in fences(text) for line in code.replace("\\\n", " ").split("\n")]
    found = [COMMAND.match(line.strip()) for line in [*lines, *inline_code(text)]]
    return [(match[1], match[2].split(" #")[0]) for match in found if match]


def anchors(text: str) -> set[str]:
    """What can stand behind # in a link to a page: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """(file, anchor) of each relative link of a page."""
    targets = LINK.findall(prose(page.read_text(encoding="utf-8")))
    relative = (target.partition("#") for target in targets if "://" not in target)
    return [((page.parent / path).resolve() if path else page, tag) for path, _, tag in relative]


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """Flags of each entry, as its --help has them; of build_shards with those of all tasks."""
    asked = [(entry, "--help") for entry in ENTRIES]
    tasks = ("clm", "chat", "classification", "qa", "span_corruption", "tokens")
    asked += [("pipelines.build_shards", f"--task={task} --help") for task in tasks]
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda words: show_help(*words), asked))
    known: dict[str, set[str]] = {entry: {"config"} for entry in ENTRIES}
    for (entry, _), text in zip(asked, texts, strict=True):
        known[entry] |= set(FLAG.findall(text))
    known["pipelines.build_shards"] |= FLAGS_BY_READER
    return known


def show_help(entry: str, arguments: str) -> str:
    command = [sys.executable, "-m", entry, *arguments.split()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def flags_of_beam() -> set[str]:
    from apache_beam.options import pipeline_options  # takes a second, and two tests want it

    parser = pipeline_options._BeamArgumentParser(add_help=False, conflict_handler="resolve")
    for kind in pipeline_options.PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    options = (name for action in parser._actions for name in action.option_strings)
    return {name.lstrip("-") for name in options} | OF_JOB_SERVER


def test_the_readme_is_a_front_door():
    assert README.stat().st_size <= README_BYTES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for path, anchor in links(page):
        assert path.exists(), f"{page.name} links to {path}, which does not exist"
        if anchor:
            there = anchors(path.read_text(encoding="utf-8"))
            assert anchor in there, f"{page.name} links to #{anchor} of {path.name}"


def test_every_page_is_reached_from_the_readme():
    reached, waiting = {README}, [README]
    while waiting:
        for path, _ in links(waiting.pop()):
            if path.suffix == ".md" and path not in reached:
                reached.add(path)
                waiting.append(path)
    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    named = re.compile(r"(?:pipelines|schemas|trainers|tests|deploy|docs)/[\w/.]*(?:/|\.\w+)")
    codes = inline_code(page.read_text(encoding="utf-8"))
    words = {word for code in codes for word in code.split()}
    paths = {word for word in words if named.fullmatch(word)} - MADE_BY_READER
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_commands_have_the_flags_that_are_shown(flags):
    beam = flags_of_beam()
    for page in PAGES:
        for module, arguments in commands(page.read_text(encoding="utf-8")):
            shown = set(FLAG.findall(arguments))
            if module in flags:
                known = flags[module] | (beam if module in TO_BEAM else set())
            elif module.startswith("tests."):
                source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
                known = set(re.findall(r"\w+", source))
            else:
                assert module.split(".")[0] in ("pytest", "apache_beam"), f"{page.name}: {module}"
                continue
            assert shown <= known, f"{page.name}: {module} has no {sorted(shown - known)}"


def test_flags_that_are_named_exist(flags):
    known = set.union(*flags.values()) | flags_of_beam() | OF_OTHERS | NO_FLAGS
    for page in PAGES:
        for code in inline_code(page.read_text(encoding="utf-8")):
            if COMMAND.match(code) or code.startswith(("pip ", "jq ", "pytest ")):
                continue
            unknown = set(FLAG.findall(code)) - known
            assert not unknown, f"{page.name}: `{code}` names {sorted(unknown)}"
