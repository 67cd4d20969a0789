"""Draws docs/near_duplicates.svg: bands, candidates, checked pairs, clusters of a run.

    python -m tests.tools.near_duplicates_picture

takes ten seconds, on the text of the demo. Tests draw it again from its numbers, and in the slow
tests compare these with a new run.
"""

import json
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.tools.places import ROOT
from textmill.pipelines import build_corpus
from textmill.pipelines.demo import write_documents

PICTURE = ROOT / "docs/near_duplicates.svg"
FLAG = "--near_duplicates=jaccard:0.7"
_WIDTH, _ROW, _LEFT = 588, 92, 268
_BANDS, _SHARED = 14, 5
_STYLE = """\
.back { fill: #ffffff; } text { fill: #1c1c1c; } .name { font-weight: bold; }
.line { stroke: #1c1c1c; } .mid { text-anchor: middle; }
.band { fill: #cfe3fa; } .same { fill: #f0b95c; } .pair { fill: #fbe3b4; }
.below { fill: #e4e4e4; } .kept { fill: #cdebcf; }
@media (prefers-color-scheme: dark) {
.back { fill: #14171c; } text { fill: #eeeeee; } .line { stroke: #eeeeee; }
.band { fill: #1f4a7a; } .same { fill: #a8720f; } .pair { fill: #6d4f10; }
.below { fill: #3a3d42; } .kept { fill: #23582a; }
}"""


class Counts(NamedTuple):
    """The numbers of a run, as in the picture from top to bottom."""

    documents: int
    verified: int
    below: int
    clusters: int
    removed: int


def counts_of_run(folder: Path) -> Counts:
    """Builds a corpus from the demo's text."""
    write_documents(folder / "raw.jsonl")
    build_corpus.main([f"--input={folder / 'raw.jsonl'}", f"--output={folder / 'corpus'}", FLAG])
    counted = json.loads((folder / "corpus/stats.json").read_text(encoding="utf-8"))["observed"]
    near = counted["near_duplicates"]
    clusters = sum(counted["near_duplicate_clusters"].values())
    return Counts(near["compared"], near["verified"], near["refuted"], clusters, near["removed"])


def draw(counts: Counts) -> str:
    """The SVG: a row for each step, its numbers on the left."""
    documents, verified, below, clusters, removed = counts
    pairs, height = verified + below, 4 * _ROW + 8
    rows = [
        ("1  Bands", f"{documents:,} documents,", "14 bands of 8 hashes each"),
        ("2  Candidates", f"{pairs:,} pairs of documents", "that agree in a band"),
        ("3  Check", f"{verified:,} pairs reach 0.7,", f"{below:,} stay below it"),
        ("4  Clusters", f"{clusters:,} clusters: one stays,", f"{removed:,} documents are removed"),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="t d" '
        'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="16">',
        '<title id="t">How near-duplicates are found</title>',
        f'<desc id="d">Each of {documents:,} documents has 14 bands of 8 hashes. {pairs:,} pairs '
        f"agree in a band and are candidates. The similarity of {verified:,} reaches 0.7, that of "
        f"{below:,} does not. In {clusters:,} clusters one document stays, and {removed:,} are "
        "removed.</desc>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="back" width="{_WIDTH}" height="{height}" rx="6"/>',
    ]
    for number, lines in enumerate(rows):
        top = number * _ROW
        for line, (text, look) in enumerate(zip(lines, ("name", "", ""), strict=True)):
            parts.append(_text(8, top + 28 + 22 * line, text, look))
    parts += [*_bands(0), *_candidates(_ROW), *_check(2 * _ROW, verified, below)]
    return "\n".join([*parts, *_clusters(3 * _ROW), "</svg>\n"])


def _bands(top: int) -> list[str]:
    """Two documents, of whose bands one agrees."""
    parts, side, gap = [], 18, 20
    for row, name in enumerate("AB"):
        y = top + 18 + row * 36
        parts.append(_text(_LEFT, y + 14, name, "name"))
        for band in range(_BANDS):
            look = "same" if band == _SHARED else "band"
            parts.append(_box(look, _LEFT + 22 + gap * band, y, side, side))
    x = _LEFT + 22 + gap * _SHARED + side / 2
    return [*parts, _line(x, top + 36, x, top + 54)]


def _candidates(top: int) -> list[str]:
    """Pairs of documents, each joined."""
    parts = []
    for number, pair in enumerate(("AB", "BC", "DE")):
        x = _LEFT + 22 + 100 * number
        parts.append(_line(x + 24, top + 45, x + 50, top + 45))
        for side, name in enumerate(pair):
            parts += _document("same", x + 50 * side, top + 33, name)
    return parts


def _check(top: int, verified: int, below: int) -> list[str]:
    """The shares of pairs that reach the threshold, and that do not."""
    width = 280
    reach = width * verified / (verified + below)
    x, y = _LEFT + 22, top + 30
    return [
        _box("same", x, y, reach, 30),
        _box("below", x + reach, y, width - reach, 30),
        _text(x + 6, y + 20, f"{verified:,}", ""),
        _text(x + reach + 6, y + 20, f"{below:,}", ""),
    ]


def _clusters(top: int) -> list[str]:
    """Two clusters: the documents that stay are green."""
    parts = []
    for x, names in ((_LEFT + 22, "ABC"), (_LEFT + 222, "DE")):
        for number, name in enumerate(names):
            at = x + 50 * number
            if number:
                parts.append(_line(at - 26, top + 45, at, top + 45))
            parts += _document("kept" if name in "BD" else "pair", at, top + 33, name)
    return parts


def _document(look: str, x: float, y: float, name: str) -> list[str]:
    return [_box(look, x, y, 24, 24), _text(x + 12, y + 17, name, "mid")]


def _box(look: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" '
        'rx="3"/>'
    )


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<line class="line" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
        'stroke-width="1.5"/>'
    )


def _text(x: float, y: float, text: str, look: str) -> str:
    look = f' class="{look}"' if look else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}">{text}</text>'


def read_picture() -> Counts:
    """The numbers in the picture."""
    elements = ElementTree.parse(PICTURE).iter()
    [description] = ["".join(one.itertext()) for one in elements if one.tag.endswith("}desc")]
    words = description.replace(",", "").split()
    numbers = [int(word) for word in words if word.isdigit()]
    documents, _, _, _, verified, below, clusters, removed = numbers
    return Counts(documents, verified, below, clusters, removed)


def main() -> None:
    """Writes the picture of a new run."""
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(counts_of_run(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
