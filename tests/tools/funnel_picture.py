"""Draws docs/corpus_funnel.svg, the funnel of docs/build_corpus.md, from a run on the demo's text.

    python -m tests.tools.funnel_picture

takes ten seconds. Tests compare the picture with the page, and in the slow tests with a new run.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.tools.places import ROOT
from textmill.pipelines import build_corpus
from textmill.pipelines.corpus.filters import sort_reasons
from textmill.pipelines.demo import write_documents
from textmill.schemas.format.drops import spaced

PICTURE = ROOT / "docs/corpus_funnel.svg"
FLAGS = (
    "--min_words=10 --gopher_min_alphabetic=0.7 --gopher_min_stop_words=2 "
    "--near_duplicates=jaccard:0.7"
)
_WIDTH, _BAR, _LEFT, _ROW = 588, 300, 204, 36
_STYLE = """\
.back { fill: #ffffff; } text { fill: #1c1c1c; } .name { font-weight: bold; }
.count { text-anchor: end; }
.left { fill: #cfe3fa; } .removed { fill: #f0b95c; } .kept { fill: #cdebcf; }
@media (prefers-color-scheme: dark) {
.back { fill: #14171c; } text { fill: #eeeeee; }
.left { fill: #1f4a7a; } .removed { fill: #a8720f; } .kept { fill: #23582a; }
}"""


class Step(NamedTuple):
    """Documents that a reason removes, and those left after it: ("min words", 1363, 4792)."""

    reason: str
    removed: int
    left: int


def funnel_of_run(folder: Path) -> tuple[int, list[Step]]:
    """Builds a corpus from the demo's text; returns the documents read, and the steps in order."""
    write_documents(folder / "raw.jsonl")
    raw, corpus = folder / "raw.jsonl", folder / "corpus"
    build_corpus.main([f"--input={raw}", f"--output={corpus}", *shlex.split(FLAGS)])
    funnel = json.loads((corpus / "stats.json").read_text(encoding="utf-8"))["funnel"]
    left, steps = funnel["documents"], []
    for reason in sort_reasons(funnel["removed"]):
        removed = funnel["removed"][reason]["documents"]
        left -= removed
        steps.append(Step(spaced(reason), removed, left))
    return funnel["documents"], steps


def draw(read: int, steps: Sequence[Step]) -> str:
    """The SVG: a bar for each step, blue for documents that are left, orange for those removed."""
    kept = steps[-1].left
    rows = [("read", 0, read, "left"), *((*step, "left") for step in steps)]
    rows.append(("kept", 0, kept, "kept"))
    height = _ROW * len(rows) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="t d" '
        'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="16">',
        '<title id="t">The funnel of a corpus</title>',
        f'<desc id="d">{kept:,} of {read:,} documents are kept. Removed: '
        + ", ".join(f"{removed:,} by {reason}" for reason, removed, _ in steps)
        + ".</desc>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="back" width="{_WIDTH}" height="{height}" rx="6"/>',
        f'<text class="name" x="{_LEFT}" y="20">documents left</text>',
        f'<text class="name count" x="{_WIDTH - 8}" y="20">removed</text>',
    ]
    for number, (label, removed, left, color) in enumerate(rows):
        y = 30 + _ROW * number
        width = _BAR * left / read
        parts.append(f'<text x="8" y="{y + 20}">{label}</text>')
        parts.append(_bar(color, _LEFT, y, width))
        if removed:
            parts.append(_bar("removed", _LEFT + width, y, _BAR * removed / read))
        parts.append(f'<text x="{_LEFT + 6}" y="{y + 20}">{left:,}</text>')
        if removed:
            count = f'<text class="count" x="{_WIDTH - 8}" y="{y + 20}">{removed:,}</text>'
            parts.append(count)
    return "\n".join([*parts, "</svg>\n"])


def _bar(color: str, x: float, y: int, width: float) -> str:
    return f'<rect class="{color}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="30"/>'


def read_picture() -> tuple[int, list[Step]]:
    """The numbers in the picture, as `funnel_of_run` returns them."""
    elements = ElementTree.parse(PICTURE).iter()
    texts = ["".join(one.itertext()) for one in elements if one.tag.endswith("}text")][2:]
    counts = [int(text.replace(",", "")) for text in texts if re.fullmatch(r"[\d,]+", text)]
    labels = [text for text in texts if not re.fullmatch(r"[\d,]+", text)]
    lefts, removed = counts[1:-1:2], counts[2:-1:2]
    return counts[0], list(map(Step, labels[1:-1], removed, lefts))


def main() -> None:
    """Writes the picture of a new run."""
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(*funnel_of_run(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
