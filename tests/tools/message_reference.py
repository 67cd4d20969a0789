"""Writes the second half of docs/troubleshooting.md: every error and warning of the code.

    python -m tests.tools.message_reference

Errors are calls of DataError and the like in the sources. Warnings are calls of Caution, the type
that all code which prints warnings takes, and of loggers. Their texts end in the remedy. A warning
that a rule drops much ends in a cause of the rule's table CAUSES. A test fails if the page differs.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.tools.places import ROOT
from textmill.pipelines.corpus.filters import Filters
from textmill.schemas.errors import as_flags

PAGE = ROOT / "docs/troubleshooting.md"
MARK = "## All errors\n"
_HEAD = "| message | what to do |"
_OF_FIELDS = {"FieldError", "FieldDataError"}
_ERRORS = {"DataError", "LeftRunningError", "UsageError", *_OF_FIELDS}
_WARNINGS = {"Caution", "_log.warning"}
_LEAST_WORDS = 3  # of a text that is not from elsewhere
# What people do, and the beginnings of paths; the first that fits counts.
AREAS = {
    "Reading input": ("pipelines/readers", "pipelines/input_options", "pipelines/user_filter"),
    "Building a corpus": ("pipelines/corpus", "pipelines/quality", "pipelines/linear_model"),
    "Training and using a tokenizer": (
        *("pipelines/tokenizer", "pipelines/encoding", "schemas/tokenizers"),
        "trainers/models/set_tokenizer",
    ),
    "Building shards": ("pipelines/shards", "pipelines/tasks", "pipelines/rows"),
    "Runners and clusters": ("pipelines/runners", "pipelines/preflight"),
    "Checking, exporting and publishing": (
        *("pipelines/inspection", "pipelines/verify", "pipelines/publishing"),
        *("pipelines/description", "schemas/format"),
    ),
    "Reading a dataset": ("trainers/data", "trainers/on_torch", "trainers/metrics"),
    "Weights and models": ("trainers/models", "trainers/tasks"),
    "Training": ("trainers/flags", "trainers/run", "trainers/on_"),
    "Using a model": ("trainers/use", "trainers/trace"),
    "Files, buckets and flags of all commands": ("pipelines/", "schemas/", "trainers/"),
}
# Where the remedy of a text begins.
_REMEDY = re.compile(
    r"(?<!\.)[:;.] (?=(?:add|build|change|check|choose|close|convert|copy|correct|delete|do"
    r"|download|export|extract|fix|free|get|give|install|keep|leave|list|look"
    r"|lower|make|must|name|omit|pass|put|raise|read|rebuild|remove|rename"
    r"|replace|return|run|save|see|set|split|start|train|try|unpack|use|wait"
    r"|write)\b)",
    re.I,
)


class Message(NamedTuple):
    """An error as a page shows it: its area, its text, and what to do."""

    area: str
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"| `{self.text}` | {self.remedy} |"


def text_of(node: ast.expr) -> str:
    """The text of a string in the sources, with `...` for values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    value = node.value if isinstance(node, ast.FormattedValue) else None
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "flag":
        name, *given = value.args
        if isinstance(name, ast.Constant):
            typed = [arg.value if isinstance(arg, ast.Constant) else "..." for arg in given]
            return f"--{name.value}" + "".join(f"={word}" for word in typed if word is not True)
    return "..."


def texts_of_sources() -> Iterator[str]:
    """All texts of some words in the sources; their flags are those of commands."""
    for folder in ("pipelines", "schemas", "trainers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.BinOp | ast.Constant | ast.JoinedStr):
                    text = " ".join(text_of(node).split())
                    if _has_words(text, _LEAST_WORDS - 1):
                        yield text


def _has_words(text: str, least: int = _LEAST_WORDS) -> bool:
    return len(re.findall(r"(?<![-.=])\b[a-z]{2,}\b", text)) >= least


def messages(kinds: set[str]) -> Iterator[Message]:
    """The errors or warnings of all sources: calls of functions of these names."""
    for folder in ("pipelines", "schemas", "trainers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            area = next(name for name, paths in AREAS.items() if place.startswith(paths))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds and node.args:
                    text = _text_of_call(node)
                    if _has_words(text, _LEAST_WORDS - (kinds == _WARNINGS)):
                        yield split(area, text)


def _text_of_call(node: ast.Call) -> str:
    """The text of an error or a warning; FieldError puts the field in front."""
    name = ast.unparse(node.func)
    first = node.args[0]
    text = " ".join(text_of(first if name in _WARNINGS else node.args[-1]).split())
    text = re.sub(r"%[rs]", "...", text) if name in _WARNINGS else text
    if name in _OF_FIELDS and isinstance(first, ast.Constant):
        return f"--{first.value}=...: {text}" if first.value else f"...: {text}"
    return text


def split(area: str, text: str) -> Message:
    """A text before its remedy, and the remedy."""
    text = re.sub(r"\.{6,}", "...", text)
    text = text.replace("`", "'").replace("|", "\\|").replace("textmill has", "... has")
    found = _REMEDY.search(text)
    remedy = text[found.end() :] if found else ""
    before = text[: found.start()] if found else text
    if not re.search(r"[a-z]{2}", before):
        before, remedy = text, ""
    prose = re.sub(r"(?<!\S)(--\w[^\s,;:)]*|[^\s,]*[*_<>{}][^\s,]*)", r"`\1`", remedy)
    return Message(area, before, prose[:1].upper() + prose[1:])


def reference() -> str:
    """The tables of the page."""
    found = _sorted(messages(_ERRORS))
    lines = [MARK]
    for area in AREAS:
        rows = [str(message) for message in found if message.area == area]
        lines += [f"### {area}\n", _HEAD, "|---|---|", *rows, ""]
    lines += ["## All warnings\n", "Behind `warning:`. A run goes on after a warning.\n"]
    lines += [_HEAD, "|---|---|", *map(str, _sorted(messages(_WARNINGS))), ""]
    lines += [
        "### Rules that drop or cut more than half\n",
        "| reason | likely cause |",
        "|---|---|",
    ]
    return "\n".join([*lines, *causes()]).rstrip() + "\n"


def _sorted(some: Iterator[Message]) -> list[Message]:
    return sorted(set(some), key=lambda one: (re.sub(r"^[\W.]*", "", one.text).lower(), one))


def causes() -> Iterator[str]:
    """Rows of the rules' own tables of causes."""
    for name, group in Filters().groups():
        for reason, cause in group.CAUSES.items():
            shown = reason if reason in group.REASONS else f"{name}:{reason}".rstrip(":")
            prose = re.sub(r"(?<!\S)(--\w[^\s,;:)]*)", r"`\1`", as_flags(cause))
            yield f"| `{shown}` | {prose[:1].upper()}{prose[1:]} |"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.partition(MARK)[0] + reference(), encoding="utf-8")
