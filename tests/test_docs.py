"""README and docs/: short, without dead links or orphans; flags, files and numbers that exist.

A number on a page that the code determines stands behind a comment that names it, and
`test_numbers_are_those_of_the_code` compares the two:

    the suite has <!-- checked: benches -->25 benches
"""

import ast
import itertools
import math
import re
import shlex
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.tools import (
    funnel_picture,
    message_reference,
    near_duplicates_picture,
    speed_picture,
)
from tests.tools.command_reference import PAGE, reference
from tests.tools.help_pages import ENTRIES, HELPED, help_of
from tests.tools.places import ROOT
from tests.tools.report_picture import PICTURE
from textmill.schemas.commands.textmill import COMMANDS as NAMES
from textmill.schemas.commands.textmill import TRAINING

README = ROOT / "README.md"
QUICK_START = ROOT / "docs/quick_start.md"
PAGES = [
    README,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
README_BYTES = 8_192
TO_BEAM = {"pipelines.build_corpus", "pipelines.build_shards", "pipelines.train_tokenizer"}
# Flags of Flink's job server, which reports them only when it runs, and of other programs.
OF_JOB_SERVER = {"max_bundle_size"}
# "long" is zstd's, "local" the beginning of hf's --local-dir, "nproc_per_node" torchrun's.
OF_OTHERS = {"worker_pool", "service_port", "xla_gpu_deterministic_ops"}
OF_OTHERS |= {"long", "local", "nproc_per_node"}
NO_FLAGS = {"append", "whole_word_masking"}  # why there is none
CHECKED = re.compile(r"<!-- checked: ([^>]*?) -->\s*")
DEFAULT = re.compile(r"Default: ([^.]\S*?)(?: with --quality)?\.$")
DEFAULTS = re.compile(
    r"^\| flags? \| (?:default|value with `--quality`) \|.*\n\|[-| ]+\n((?:\|.*\n)+)", re.M
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--([a-z]\w*)")
COMMAND = re.compile(r"^(?:\$ )?(?:python -m ([\w.]+)|textmill ((?:train )?[a-z][\w-]*))(.*)")
# By who follows docs/extending.md.
MADE_BY_READER = {
    "pipelines/tasks/prefix_lm.py",
    "pipelines/readers/formats/endoftext.py",
    "pipelines/corpus/rules/shouting.py",
}
TRAINER_PAGES = ("trainers", "flax_", "tf_", "poptorch_")
FLAGS_BY_READER = {"prefix_share", "max_capitals"}


def fences(text: str) -> list[str]:
    """The blocks of code of a page."""
    return re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.M | re.S)


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```\w*\n.*?^ *```$", "", text, flags=re.M | re.S)


def inline_code(text: str) -> list[str]:
    """Code between backticks in a page's prose, on one line each."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))]


def commands(text: str) -> list[tuple[str, str]]:
    """(module, arguments) of each `python -m ...` and `textmill ...` that a page shows."""
    lines = [line for code in fences(text) for line in code.replace("\\\n", " ").split("\n")]
    found = [COMMAND.match(line.strip()) for line in [*lines, *inline_code(text)]]
    return [
        (match[1] or NAMES.get(match[2].removeprefix("train "), match[2]), match[3].split(" #")[0])
        for match in found
        if match
    ]


def anchors(text: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """(file, anchor) of each relative link of a page."""
    targets = LINK.findall(prose(page.read_text(encoding="utf-8")))
    relative = (target.partition("#") for target in targets if "://" not in target)
    return [((page.parent / path).resolve() if path else page, tag) for path, _, tag in relative]


def helps() -> list[tuple[str, str]]:
    """(entry, its --help=all); of build_shards for each task."""
    return [(command[0], help_of(*command, "--help=all")) for command in HELPED]


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """Flags of each entry."""
    known: dict[str, set[str]] = {entry: {"help"} for entry in ENTRIES}
    for entry, text in helps():
        known[entry] |= set(FLAG.findall(text))
    known["pipelines.build_shards"] |= FLAGS_BY_READER
    known["pipelines.build_corpus"] |= FLAGS_BY_READER
    return known


def defaults(text: str) -> dict[str, str]:
    """{flag: default} of a --help."""
    found = {}
    for part in re.split(r"^  (?=--)", text, flags=re.M)[1:]:
        words = " ".join(re.split(r"\n(?=\S)|\n\n", part)[0].split())
        if match := DEFAULT.search(words):
            found |= dict.fromkeys(FLAG.findall(words.split(" ")[0]), match[1])
    return found


def flags_of_program(module: str) -> set[str]:
    """Flags of a program in tests/: fields of its classes and of their bases in another file."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    sources = {
        alias.name: node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            found |= {ast.unparse(field) for field in fields}
            bases = (sources.get(ast.unparse(base)) or "" for base in node.bases)
            found = found.union(*(flags_of_program(b) for b in bases if b.startswith("tests.")))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
            found |= {ast.unparse(argument).strip("'-") for argument in node.args}
    return found


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
                known = flags_of_program(module)
            else:
                others = ("apache_beam", "completion", "pytest", "textmill")
                assert module.split(".")[0] in others, f"{page.name}: {module}"
                continue
            assert shown <= known, f"{page.name}: {module} has no {sorted(shown - known)}"


def test_flags_that_are_named_exist(flags):
    known = set.union(*flags.values()) | flags_of_beam() | OF_OTHERS | NO_FLAGS
    for script in (ROOT / "examples").rglob("*.py"):
        known |= set(FLAG.findall(script.read_text(encoding="utf-8")))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name.startswith("coming_from_"):
            text = re.sub(r"^\|[^|]*", "", text, flags=re.M)  # options of the other tool
        for code in inline_code(text):
            if COMMAND.match(code) or code.startswith(("pip ", "jq ", "pytest ", "hf ", "zstd ")):
                continue
            unknown = set(FLAG.findall(code)) - known
            assert not unknown, f"{page.name}: `{code}` names {sorted(unknown)}"


def test_make_targets_extras_and_scripts_that_are_named_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    extras = re.findall(r"'(\w+)':", setup_keyword("extras_require"))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [*"\n".join(fences(text)).splitlines(), *inline_code(text)]
        for line in (line.strip().removeprefix("$ ") for line in lines):
            if match := re.match(r"make ([\w-]+)", line):
                assert match[1] in targets, f"{page.name}: {line}"
            for match in re.finditer(r"(?:textmill|\.)\[([\w,]+)\]", line):
                assert {*match[1].split(",")} <= {*extras}, f"{page.name}: {line}"
            if match := re.match(r"python ((?:examples|tests)/[\w/]+\.py)", line):
                assert (ROOT / match[1]).exists(), f"{page.name}: {line}"


def test_python_on_pages_compiles():
    """Other tests run the blocks of extending.md, which are parts of files, and of readers.md."""
    for page in (page for page in PAGES if page.name != "extending.md"):
        for code in re.findall(r"^ *```python\n(.*?)^ *```$", page.read_text("utf-8"), re.M | re.S):
            compile(textwrap.dedent(code), page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def numbers() -> dict[str, str]:
    """The number that the code determines, by the key of `<!-- checked: KEY -->` on a page."""
    from tests.benchmarks.run_all import SUITE  # each of these imports a package of its own
    from tests.benchmarks.simulate_scale import Rates, costs
    from tests.pipelines.runners.test_costs import REVIEWS
    from tests.pipelines.shards import test_bad_commands, test_bad_input

    scale = costs(REVIEWS, Rates())
    least, beyond = re.findall(r"3\.(\d+)", setup_keyword("python_requires"))
    return {
        "bad inputs": str(len(test_bad_input.CASES) + len(test_bad_commands.CASES)),
        "benches": str(len(SUITE)),
        "python": f"3.{least} to 3.{int(beyond) - 1}",
        "scale: blocks": f"{scale.blocks:,}",
        "scale: elements": f"{scale.elements / 1e9:.1f}e9",
        "scale: largest shard": f"{scale.largest:.3f}",
        "scale: shuffle": f"{scale.shuffle_bytes / 1e12:.2f} TB",
        "scale: key": f"{scale.key_memory / 1e6:.0f} MB",
        "scale: CPU hours": f"{scale.cpu_hours:.0f}",
        "parameters: tiny": f"{parameters('tiny', 4_000, 256) / 1e6:.1f} million",
        "parameters: small, 8,000": f"{parameters('small', 8_000, 512) / 1e6:.0f} million",
        "parameters: small, 16,000": f"{parameters('small', 16_000, 1024) / 1e6:.0f} million",
        "parameters: smollm_135m": f"{parameters('smollm_135m', 32_000, 1024) / 1e6:.0f} million",
        "parameters: llama_1b": f"{parameters('llama_1b', 50_000, 2048) / 1e9:.2f} billion",
        "parameters: llama_8b": f"{parameters('llama_8b', 64_000, 2048) / 1e9:.1f} billion",
    }


def parameters(model: str, vocab_size: int, max_positions: int) -> int:
    """Weights of a new decoder of this --model, by default a GPT-2."""
    from tests.tools.clm_factory import clm_schema
    from textmill.trainers.flags.command_line import make_flags
    from textmill.trainers.flax_clm import FlaxClmFlags
    from textmill.trainers.models.plan_model import plan_model
    from textmill.trainers.models.weights import shapes

    schema = clm_schema(vocab_size=vocab_size, max_length=max_positions)
    config = plan_model(make_flags(FlaxClmFlags, model=model), schema).config
    return sum(math.prod(shape) for shape in shapes(config).values())


def setup_keyword(name: str) -> str:
    """The source of an argument of setup()."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    call = next(
        n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "setup"
    )
    return next(ast.unparse(item.value) for item in call.keywords if item.arg == name)


def test_numbers_are_those_of_the_code():
    known, used = numbers(), set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in CHECKED.finditer(text):
            used.add(match[1])
            assert match[1] in known, f"{page.name} names {match[1]!r}, which no test computes"
            number = known[match[1]]
            rest = text[match.end() :]
            there = rest.startswith(number) and not re.match(r"[\d.,]*\d", rest[len(number) :])
            assert there, f"{page.name}: {match[1]} is {number}, not {rest[: len(number) + 10]!r}"
    assert used == set(known)


def test_pages_list_every_extra_and_every_trainer():
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    extras = re.findall(r"'(\w+)':", setup_keyword("extras_require"))
    trainers = [entry.split(".")[1] for entry in TRAINING]
    assert [name for name in extras if f"`{name}`" not in text] == []
    readme = README.read_text(encoding="utf-8")
    assert [name for name in trainers if name not in readme] == []


def test_ready_made_settings_are_listed():
    names = [path.stem for path in (ROOT / "pipelines/configs").glob("*.yaml")]
    text = (ROOT / "docs/inputs.md").read_text(encoding="utf-8")
    assert len(names) > 5
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_picture_of_a_row_follows_the_format():
    from textmill.schemas.format.features import positions_from_segments

    texts = [
        "".join(element.itertext())
        for element in ElementTree.parse(ROOT / "docs/packed_row.svg").iter()
        if element.tag.endswith("}text")
    ]
    tokens, *rest = [texts[4 + 16 * row : 20 + 16 * row] for row in range(4)]
    segments, positions, weights = [np.array(row, np.int64) for row in rest]
    assert positions_from_segments(segments[None]).tolist() == [positions.tolist()]
    first = np.diff(segments, prepend=0) != 0
    assert weights.tolist() == (~first & (segments > 0)).astype(int).tolist()
    assert [token == "<pad>" for token in tokens] == (segments == 0).tolist()
    ends = np.append(segments[1:], 0) != segments
    assert [token == "</s>" for token in tokens] == (ends & (segments > 0)).tolist()


def test_the_reference_of_commands_is_that_of_their_help():
    is_current = PAGE.read_text(encoding="utf-8") == reference()
    assert is_current, "run `python -m tests.tools.command_reference`"


def test_every_warning_is_a_caution():
    """Troubleshooting lists Cautions: no other text begins as a warning does."""
    found = []
    for folder in ("pipelines", "schemas", "trainers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and str(node.value).startswith("warning: "):
                    found.append(path.relative_to(ROOT).as_posix())
    assert found == ["schemas/errors.py"]


def test_troubleshooting_has_every_error_and_warning():
    page = message_reference.PAGE.read_text(encoding="utf-8")
    is_current = page.endswith(message_reference.reference())
    assert is_current, "run `python -m tests.tools.message_reference`"


def test_the_picture_of_the_report_is_of_the_run_in_the_quick_start():
    """`python -m tests.tools.report_picture demo/shards` takes it again."""
    page = QUICK_START.read_text(encoding="utf-8")
    [counts] = re.findall(r"([\d,]+ documents), ([\d,]+ rows), ", page)
    [length] = re.findall(r"positions in (rows of \d+) ", page)
    documents, rows = counts
    title = Image.open(PICTURE).text["Title"]  # type: ignore[attr-defined]
    assert title == f"{documents} in {rows.replace('rows', length)} tokens"


def test_the_picture_of_a_funnel_is_of_the_command_on_the_page():
    """`python -m tests.tools.funnel_picture` draws it again."""
    read, steps = funnel_picture.read_picture()
    drawn = funnel_picture.PICTURE.read_text(encoding="utf-8")
    assert funnel_picture.draw(read, steps) == drawn
    before = [read, *(step.left for step in steps)]
    assert [step.removed for step in steps] == [a - b for a, b in itertools.pairwise(before)]
    page = (ROOT / "docs/build_corpus.md").read_text(encoding="utf-8")
    assert f"{read:,} documents read, {steps[-1].left:,} kept" in page
    of_page = [shlex.split(given) for _, given in commands(page) if "--output=demo/strict" in given]
    assert of_page == [
        ["--input=demo/raw.jsonl", "--output=demo/strict", *shlex.split(funnel_picture.FLAGS)]
    ]


@pytest.mark.slow
def test_the_picture_of_a_funnel_is_of_a_run(tmp_path):
    read, steps = funnel_picture.read_picture()
    read_now, steps_now = funnel_picture.funnel_of_run(tmp_path)
    if read_now == read:  # the documentation of this Python
        assert steps_now == steps
    shares, of_picture = [
        {step.reason: step.left / total for step in some}
        for total, some in ((read_now, steps_now), (read, steps))
    ]
    assert shares == pytest.approx(of_picture, abs=0.05)


def test_the_picture_of_near_duplicates_is_drawn_from_its_numbers():
    """`python -m tests.tools.near_duplicates_picture` draws it again."""
    counts = near_duplicates_picture.read_picture()
    drawn = near_duplicates_picture.PICTURE.read_text(encoding="utf-8")
    assert near_duplicates_picture.draw(counts) == drawn
    page = (ROOT / "docs/near_duplicates.md").read_text(encoding="utf-8")
    assert f"`{near_duplicates_picture.FLAG}`" in page
    assert f"{counts.documents:,} documents, {counts.removed:,} of them removed" in page


@pytest.mark.slow
def test_the_picture_of_near_duplicates_is_of_a_run(tmp_path):
    counts = near_duplicates_picture.read_picture()
    now = near_duplicates_picture.counts_of_run(tmp_path)
    if now.documents == counts.documents:  # the documentation of this Python
        assert now == counts
    assert now.removed / now.documents == pytest.approx(counts.removed / counts.documents, abs=0.05)


def test_the_chart_of_speed_is_of_the_numbers_on_the_page():
    """`python -m tests.tools.speed_picture` draws it again."""
    readme = README.read_text(encoding="utf-8")
    groups = speed_picture.groups_of(speed_picture.numbers_of_page())
    assert [len(group.bars) for group in groups] == [2, 3, 4]
    for name, picture in speed_picture.PICTURES.items():
        drawn = speed_picture.draw(groups, speed_picture.COLORS[name])
        assert picture.read_text(encoding="utf-8") == drawn, name
        assert f'"docs/{picture.name}"' in readme


def test_the_readme_names_the_tools_of_the_chart():
    [alt] = re.findall(r'alt="Speed beside ([^"]*)"', README.read_text(encoding="utf-8"))
    groups = speed_picture.groups_of(speed_picture.numbers_of_page())
    tools = " ".join(bar.tool for group in groups for bar in group.bars)
    assert [tool for tool in re.split(", | and ", alt) if tool not in tools] == []


OF_ANY_SCHEME = sorted({*(ROOT / "docs").glob("*.svg")} - {*speed_picture.PICTURES.values()})


@pytest.mark.parametrize("picture", OF_ANY_SCHEME, ids=lambda p: p.name)
def test_pictures_are_dark_on_dark_pages_and_have_a_description(picture):
    names = {element.tag.rpartition("}")[2] for element in ElementTree.parse(picture).iter()}
    assert {"title", "desc", "style"} <= names
    style = picture.read_text(encoding="utf-8").partition("<style>")[2].partition("</style>")[0]
    light, dark_mode, dark = style.partition("@media (prefers-color-scheme: dark)")
    fills = [dict(re.findall(r"([.#]?\w+) \{ fill: (#\w+)", part)) for part in (light, dark)]
    assert fills[0].keys() - fills[1].keys() <= {".off"} and dark_mode
    assert [name for name in fills[1] if fills[0].get(name) == fills[1][name]] == []


def test_defaults_in_tables_are_those_of_help():
    known: dict[tuple[str, str], set[str]] = {}
    for entry, text in helps():
        for flag, value in defaults(text).items():
            known.setdefault((entry.split(".")[0], flag), set()).add(value)
    compared = 0
    for page in PAGES:
        package = "trainers" if page.stem.startswith(TRAINER_PAGES) else "pipelines"
        for table in DEFAULTS.findall(page.read_text(encoding="utf-8")):
            for row in table.splitlines():
                named, shown = re.split(r"(?<!\\)\|", row)[1:3]
                flags = FLAG.findall(named)
                values = [plain_value(item) for item in shown.strip().split(", ")]
                for flag, value in zip(flags, values * len(flags), strict=False):
                    of_help = known.get((package, flag))
                    if value and of_help:
                        compared += 1
                        assert value in of_help, f"{page.name}: --{flag} has {of_help}, not {value}"
    assert compared > 20


def plain_value(shown: str) -> str:
    """A default as a command takes it: `best_fit` or 1,000 or 128 MiB; "" for words about one."""
    if match := re.fullmatch(r"([\d,]+) MiB", shown):
        return str(int(match[1].replace(",", "")) << 20)
    number = re.fullmatch(r"[\d,]*\.?\d+", shown)
    code = re.fullmatch(r"`([^`]+)`", shown)
    return shown.replace(",", "") if number else code[1] if code else ""


def test_the_site_has_every_page():
    """Once in `nav` of mkdocs.yml."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"(?:^| )([\w/]+\.md)$", nav, re.M)
    assert len(named) == len({*named})
    docs = ROOT / "docs"
    pages = {page.relative_to(docs if docs in page.parents else ROOT).as_posix() for page in PAGES}
    assert {name for name in named if not name.startswith("api/")} == {
        *(pages - {"README.md"}),
        "index.md",
    }
