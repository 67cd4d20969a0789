"""Draws docs/speed_light.svg and docs/speed_dark.svg, the chart of README.

    python -m tests.tools.speed_picture

The numbers are those of docs/performance.md that stand behind `<!-- drawn: NAME -->`. A test
compares the chart with the page.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.tools.places import ROOT

PAGE = ROOT / "docs/performance.md"
PICTURES = {name: ROOT / f"docs/speed_{name}.svg" for name in ("light", "dark")}
COLORS = {
    "light": {"back": "#ffffff", "text": "#1c1c1c", "ours": "#1f6fc4", "theirs": "#b9bec6"},
    "dark": {"back": "#0d1117", "text": "#eeeeee", "ours": "#4a9bee", "theirs": "#565c66"},
}
_DRAWN = re.compile(r"<!-- drawn: ([^>]*?) -->\s*([\d,]+(?:\.\d+)?)")
_WIDTH, _LEFT, _BAR, _ROW, _HEAD, _GAP = 588, 206, 316, 24, 28, 14


class Bar(NamedTuple):
    """A tool and its speed: ("Textmill", 10.7). A part is a tool that does less than the others."""

    tool: str
    speed: float
    is_part: bool = False


class Group(NamedTuple):
    """Bars of one unit."""

    title: str
    unit: str
    bars: Sequence[Bar]


def numbers_of_page() -> dict[str, float]:
    """The numbers that are drawn, by name."""
    found = _DRAWN.findall(PAGE.read_text(encoding="utf-8"))
    return {name: float(number.replace(",", "")) for name, number in found}


def groups_of(numbers: Mapping[str, float]) -> list[Group]:
    """The chart, as numbers: seconds become MB/s, and rows/s thousands of them."""
    megabytes = numbers["reviews, MB"]

    def rows(tool: str) -> Bar:
        return Bar(tool, numbers[f"rows/s, {tool}"] / 1000)

    return [
        Group(
            "Web pages to a clean corpus",
            "MB/s a core",
            [
                Bar("Textmill", numbers["pages, Textmill"]),
                Bar("datatrove, trafilatura", numbers["pages, datatrove"]),
            ],
        ),
        Group(
            "Text to packed rows, each text once",
            "MB/s, 2 cores",
            [
                Bar("Textmill", megabytes / numbers["seconds, Textmill"]),
                Bar("script with datasets", megabytes / numbers["seconds, datasets"]),
                Bar(
                    "ids alone, tokenizers 1.0", megabytes / numbers["seconds, lean"], is_part=True
                ),
            ],
        ),
        Group(
            "Rows to a training loop, shuffled",
            "1,000 rows/s",
            [rows(tool) for tool in ("Textmill", "tf.data", "litdata", "mosaicml-streaming")],
        ),
    ]


def draw(groups: Sequence[Group], colors: Mapping[str, str]) -> str:
    """The SVG. The bars of a group share a scale; the outline marks a tool that does less."""
    height = sum(_HEAD + _ROW * len(group.bars) + _GAP for group in groups)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="t d" '
        'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="15">',
        '<title id="t">Speed of Textmill and of other tools; longer bars are faster</title>',
        '<desc id="d">' + " ".join(map(_sentence, groups)) + "</desc>",
        f"<style>\ntext {{ fill: {colors['text']}; }} .name {{ font-weight: bold; }} "
        f".unit {{ text-anchor: end; }}\n.back {{ fill: {colors['back']}; }} "
        f".ours {{ fill: {colors['ours']}; }} .theirs {{ fill: {colors['theirs']}; }}\n"
        f".part {{ fill: none; stroke: {colors['theirs']}; stroke-width: 2; "
        "stroke-dasharray: 5 3; }\n</style>",
        f'<rect class="back" width="{_WIDTH}" height="{height}" rx="6"/>',
    ]
    y = 0
    for group in groups:
        parts.append(f'<text class="name" x="8" y="{y + 20}">{group.title}</text>')
        parts.append(f'<text class="unit" x="{_WIDTH - 8}" y="{y + 20}">{group.unit}</text>')
        y += _HEAD
        fastest = max(bar.speed for bar in group.bars)
        for bar in group.bars:
            width = _BAR * bar.speed / fastest
            kind = "ours" if bar.tool == "Textmill" else "part" if bar.is_part else "theirs"
            bold = ' class="name"' if kind == "ours" else ""
            parts += [
                f'<text{bold} x="8" y="{y + 16}">{bar.tool}</text>',
                f'<rect class="{kind}" x="{_LEFT}" y="{y + 2}" width="{width:.1f}" height="18"/>',
                f'<text{bold} x="{_LEFT + width + 8:.1f}" y="{y + 16}">{_shown(bar.speed)}</text>',
            ]
            y += _ROW
        y += _GAP
    return "\n".join([*parts, "</svg>\n"])


def _shown(speed: float) -> str:
    """625, 10.7 or 0.93."""
    return f"{speed:.0f}" if speed >= 20 else f"{speed:.2g}" if speed < 10 else f"{speed:.1f}"


def _sentence(group: Group) -> str:
    bars = ", ".join(f"{bar.tool} {_shown(bar.speed)}" for bar in group.bars)
    return f"{group.title}, in {group.unit}: {bars}."


def main() -> None:
    """Writes the chart for both colour schemes."""
    groups = groups_of(numbers_of_page())
    for name, picture in PICTURES.items():
        picture.write_text(draw(groups, COLORS[name]), encoding="utf-8")


if __name__ == "__main__":
    main()
