"""Computes the geometry of two figures: flows (Sankey) and a rank-frequency curve (Zipf). Pure.

Horizontal lengths are percent, since figures are as wide as the page; vertical lengths are pixels.
Texts are HTML beside the curves, so that they stay legible on a phone.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import linear_regression
from typing import NamedTuple

import numpy as np

from textmill.pipelines.inspection.report.numbers import compact

_FLOW_HEIGHT = 190.0  # pixels of all that flows
_SLOT = 40.0  # pixels, at least, for a node: its name and its count are two lines
_CURVE_POINTS = 160
_FIT_FROM, _FIT_COUNT = 10, 10  # ranks, and the least count, that a Zipf line is fitted to


class Node(NamedTuple):
    """One end of a flow; `kind` is a CSS class, and the last three are pixels."""

    name: str
    count: int
    share: float  # of everything
    kind: str
    top: float  # of its bar
    height: float  # of its bar
    middle: float  # of its text


class Flow(NamedTuple):
    """Ribbons between two columns of nodes."""

    height: float
    left: tuple[Node, ...]
    right: tuple[Node, ...]
    ribbons: tuple[tuple[str, str], ...]  # (SVG path over 0..100 x height, class)


def flow(links: Sequence[tuple[str, str, int]], kinds: Mapping[str, str]) -> Flow | None:
    """Lays out links (left name, right name, count) from top to bottom; None if all counts are 0.

    Args:
      links: in the order in which they are drawn; links with a count of 0 are not drawn.
      kinds: CSS class by the name of a node; a ribbon has the class of its right node.
    """
    sides = Counter[str](), Counter[str]()
    for *names, count in links:
        for side, name in zip(sides, names, strict=True):
            side[str(name)] += count
    total = sides[0].total()
    if not total:
        return None
    scale = _FLOW_HEIGHT / total
    height = max(sum(_slot(count, scale) for count in (+side).values()) for side in sides)
    left, right = (_nodes(+side, height, scale, kinds) for side in sides)
    leaves, arrives = ({node.name: node.top for node in side} for side in (left, right))
    ribbons = []
    for source, target, count in links:
        if count:
            a, b, thick = leaves[source], arrives[target], count * scale
            c, d = (at + max(thick, 1.0) for at in (a, b))
            path = f"M0 {a:.1f}C50 {a:.1f} 50 {b:.1f} 100 {b:.1f}"
            path += f"V{d:.1f}C50 {d:.1f} 50 {c:.1f} 0 {c:.1f}Z"
            ribbons.append((path, kinds.get(target, "")))
            leaves[source], arrives[target] = a + thick, b + thick
    return Flow(height, left, right, tuple(ribbons))


def _slot(count: int, scale: float) -> float:
    """Returns the pixels that a node takes: its bar, or its two lines of text."""
    return max(count * scale + 6, _SLOT)


def _nodes(
    counts: Mapping[str, int], height: float, scale: float, kinds: Mapping[str, str]
) -> tuple[Node, ...]:
    """Returns nodes one below the other, centred in `height`."""
    slots = [_slot(count, scale) for count in counts.values()]
    total, top = sum(counts.values()), (height - sum(slots)) / 2
    nodes = []
    for (name, count), slot in zip(counts.items(), slots, strict=True):
        middle, thick = top + slot / 2, max(count * scale, 1.5)
        kind = kinds.get(name, "")
        nodes.append(Node(name, count, count / total, kind, middle - thick / 2, thick, middle))
        top += slot
    return tuple(nodes)


class Curve(NamedTuple):
    """Frequency by rank, both on logarithmic scales; positions are percent of the plot."""

    points: str  # of an SVG polyline over 0..100 x 0..100
    fit: str  # ends of the fitted line, possibly outside the plot; "" with too few points
    exponent: float  # s of frequency ~ rank ** -s
    fitted_to: int  # the last rank that was fitted
    across: tuple[tuple[float, str], ...]  # (position, label) at powers of ten of the rank
    down: tuple[tuple[float, str], ...]  # and of the count


def zipf(counts: np.ndarray) -> Curve | None:
    """Computes the rank-frequency curve of all counts above 0; None if there are none.

    The line is a least-squares fit in logarithms, over points spaced evenly in the logarithm of the
    rank, so that the many rare tokens do not outweigh the rest.
    """
    ranked = np.sort(counts[counts > 0])[::-1]
    if not len(ranked):
        return None
    wide, high = (max(math.log10(most), 0.3) for most in (len(ranked), int(ranked[0])))
    ranks = sorted({round(10 ** (wide * i / _CURVE_POINTS)) for i in range(_CURVE_POINTS + 1)})
    ranks = [rank for rank in ranks if rank <= len(ranked)]
    curve = [(math.log10(rank), math.log10(int(ranked[rank - 1]))) for rank in ranks]

    def draw(*points: tuple[float, float]) -> str:
        return " ".join(f"{100 * x / wide:.2f},{100 - 100 * y / high:.2f}" for x, y in points)

    fitted_to = int((ranked >= _FIT_COUNT).sum())
    chosen = [p for rank, p in zip(ranks, curve, strict=True) if _FIT_FROM <= rank <= fitted_to]
    fit, slope = "", 0.0
    if len(chosen) >= 10:
        # The standard library sums exactly, and so the page is the same on every machine.
        slope, level = linear_regression(*zip(*chosen, strict=True))
        fit = draw((0, level), (wide, level + slope * wide))
    return Curve(
        points=draw(*curve),
        fit=fit,
        exponent=-slope,
        fitted_to=fitted_to,
        across=tuple((100 * d / wide, compact(10**d)) for d in range(int(wide) + 1)),
        down=tuple((100 - 100 * d / high, compact(10**d)) for d in range(int(high) + 1)),
    )
