"""Parts of a report: a head, and sections of paragraphs, figures and tables. Pure.

A paragraph is a str. parts.html.jinja has a macro for each class here, with the class's name in
small letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textmill.pipelines.inspection.report.flow_and_zipf import Curve, Flow
from textmill.pipelines.inspection.report.numbers import Bar


@dataclass(frozen=True)
class ReportHead:
    """The beginning of a report.

    Attributes:
      kind: the reported directory, such as "corpus".
      sentence: the most important counts.
      tiles: numbers by their titles, both short.
    """

    kind: str
    sentence: str
    tiles: Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """A chart or a table, with a caption above and an explanation of its axis below."""

    caption: str
    body: Shown
    axis: str = ""


@dataclass(frozen=True)
class Pair:
    """Figures beside each other where there is room; those of a tuple are below each other."""

    figures: Sequence[Figure | tuple[Figure, ...]]


@dataclass(frozen=True)
class ColumnChart:
    """Columns (label, count, title, CSS class), the highest as high as the chart.

    Attributes:
      room: letters of all labels above which they are turned.
      is_slim: whether columns have no labels.
      has_edges: whether a label is the lower bound of its column, and is at its left edge.
    """

    columns: Sequence[tuple[str, float, str, str]]
    room: int = 50
    is_slim: bool = False
    has_edges: bool = False


@dataclass(frozen=True)
class ShareBars:
    """Stacked bars (title, note, parts), each with a legend."""

    bars: Sequence[tuple[str, str, Bar]]


@dataclass(frozen=True)
class CellTable:
    """Rows of text, names (`CountName`), whole numbers, shares (float) and bars (`Bar`).

    Attributes:
      look: "tokens" for ids and spaced text, "sizes" for sizes in the last column.
    """

    rows: Sequence[Sequence[Any]]
    heads: Sequence[str] = ()
    look: str = ""


@dataclass(frozen=True)
class Excerpts:
    """Rows (name, text, note) of texts.

    Attributes:
      summary: a line to click for them; "" shows them at once.
    """

    rows: Sequence[tuple[str, str, str]]
    summary: str = ""


@dataclass(frozen=True)
class CodeLines:
    """Lines to copy; with a `summary`, they can be hidden."""

    lines: Sequence[str]
    summary: str = ""


@dataclass(frozen=True)
class FactList:
    """Facts by their names."""

    facts: Mapping[str, str]


@dataclass(frozen=True)
class Picture:
    """A PNG.

    Attributes:
      meaning: its text for those who do not see it.
      base64: its bytes.
    """

    meaning: str
    base64: str


@dataclass(frozen=True)
class SampleRows:
    """Rows of a dataset as text.

    Attributes:
      rows: heading, facts by name, and streams of tokens, see `sections.examples`.
      looks: CSS classes of spans, for the legend.
    """

    rows: Sequence[tuple[str, Mapping[str, str], Sequence[Mapping[str, Any]]]]
    looks: set[str]


Shown = (
    str | ReportHead | Figure | Pair | ColumnChart | ShareBars | CellTable | Excerpts | CodeLines
    | FactList | Picture | SampleRows | Flow | Curve
)  # fmt: skip
Section = tuple[str, Callable[[Any], Sequence[Shown]]]
"""Title, and a function from the content of a report to parts; without any, there is no section."""
