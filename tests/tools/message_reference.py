"""Writes the second half of docs/troubleshooting.md: every error of the code, by what people do.

    python -m tests.tools.message_reference

Errors are DataError, UsageError and FieldError in the sources; their texts end in the remedy.
A test fails if the page differs from the sources.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.tools.places import ROOT

PAGE = ROOT / "docs/troubleshooting.md"
MARK = "## All errors\n"
_ERRORS = {"DataError", "UsageError", "FieldError"}
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


def messages() -> Iterator[Message]:
    """The errors of all sources."""
    for folder in ("pipelines", "schemas", "trainers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            area = next(name for name, paths in AREAS.items() if place.startswith(paths))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in _ERRORS and node.args:
                    text = " ".join(text_of(node.args[-1]).split())
                    if ast.unparse(node.func) == "FieldError" and isinstance(
                        node.args[0], ast.Constant
                    ):
                        field = node.args[0].value
                        text = f"--{field}=...: {text}" if field else f"...: {text}"
                    if len(re.findall(r"(?<![-.=])\b[a-z]{2,}\b", text)) >= _LEAST_WORDS:
                        yield split(area, text)


def split(area: str, text: str) -> Message:
    """A text before its remedy, and the remedy."""
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
    found = sorted(set(messages()), key=lambda one: (re.sub(r"^[\W.]*", "", one.text).lower(), one))
    lines = [MARK]
    for area in AREAS:
        rows = [str(message) for message in found if message.area == area]
        lines += [f"### {area}\n", "| message | what to do |", "|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.partition(MARK)[0] + reference(), encoding="utf-8")
