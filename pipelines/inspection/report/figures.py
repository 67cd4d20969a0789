"""Numbers -> the geometry of figures: flows, columns, a rank-frequency curve. Pure.

Across, a figure is stretched to the width of the page, in percent; its texts are HTML beside the
curves, so that they stay legible on a phone. Down, lengths are pixels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_FLOW_HEIGHT = 190.0  # pixels of all that flows
_LABEL_HEIGHT = 40.0  # pixels that two lines of text need
_CURVE_POINTS = 160
_FIT_FROM, _FIT_COUNT = 10, 10  # ranks, and the least count, that a Zipf line is fitted to


@dataclass(frozen=True)
class Node:
    """One end of a flow.

    Attributes:
      name: of it.
      count: what flows.
      share: of everything.
      top: pixels to where its bar begins.
      height: of its bar, pixels.
      middle: pixels to the middle of its text.
      kind: a class of the style sheet.
    """

    name: str
    count: int
    share: float
    top: float
    height: float
    middle: float
    kind: str


@dataclass(frozen=True)
class Flow:
    """What came from where: ribbons between two columns of nodes."""

    height: float
    left: tuple[Node, ...]
    right: tuple[Node, ...]
    ribbons: tuple[tuple[str, str], ...]  # (SVG path over 0..100 x height, class)


def flow(links: Sequence[tuple[str, str, int]], kinds: Mapping[str, str]) -> Flow | None:
    """Lays out links (left name, right name, count) from top to bottom, in the order given.

    Args:
      links: what flows; counts of 0 are left out.
      kinds: name of a node to a class of the style sheet; ribbons have that of their right node.

    Returns:
      None if nothing flows.
    """
    links = [link for link in links if link[2] > 0]
    total = sum(link[2] for link in links)
    if not total:
        return None
    # Left, one sum may be the whole; shares are of the larger side, which are equal.
    scale = _FLOW_HEIGHT / total
    sides = []
    for end in (0, 1):
        counts: dict[str, int] = {}
        for link in links:
            counts[str(link[end])] = counts.get(str(link[end]), 0) + link[2]
        sides.append(counts)
    height = max(_stack(side, scale) for side in sides)
    left, right = (_nodes(side, scale, total, height, kinds) for side in sides)
    at = {("left", n.name): n.top for n in left} | {("right", n.name): n.top for n in right}
    ribbons = []
    for source, target, count in links:
        thick = count * scale
        a, b = at["left", source], at["right", target]
        at["left", source], at["right", target] = a + thick, b + thick
        c, d = a + max(thick, 1.0), b + max(thick, 1.0)
        path = (
            f"M0 {a:.1f}C50 {a:.1f} 50 {b:.1f} 100 {b:.1f}V{d:.1f}C50 {d:.1f} 50 {c:.1f} 0 {c:.1f}Z"
        )
        ribbons.append((path, kinds.get(target, "")))
    return Flow(height, left, right, tuple(ribbons))


def _slot(count: int, scale: float) -> float:
    return max(count * scale + 6, _LABEL_HEIGHT)


def _stack(counts: Mapping[str, int], scale: float) -> float:
    return sum(_slot(count, scale) for count in counts.values())


def _nodes(
    counts: Mapping[str, int], scale: float, total: int, height: float, kinds: Mapping[str, str]
) -> tuple[Node, ...]:
    nodes = []
    top = (height - _stack(counts, scale)) / 2
    for name, count in counts.items():
        slot, thick = _slot(count, scale), max(count * scale, 1.5)
        begin = top + (slot - thick) / 2
        middle = top + slot / 2
        nodes.append(Node(name, count, count / total, begin, thick, middle, kinds.get(name, "")))
        top += slot
    return tuple(nodes)


@dataclass(frozen=True)
class Column:
    """A bar of a histogram: height in percent of the highest."""

    label: str
    count: float
    height: float
    title: str
    kind: str = ""


def columns(bars: Sequence[tuple[str, float, str, str]]) -> tuple[Column, ...]:
    """(label, count, title, class) to bars, the highest of 100 %."""
    highest = max((count for _, count, _, _ in bars), default=0) or 1
    return tuple(
        Column(label, count, round(100 * count / highest, 2), title, kind)
        for label, count, title, kind in bars
    )


@dataclass(frozen=True)
class Curve:
    """Frequency by rank, both on logarithmic scales.

    Attributes:
      points: of an SVG polyline over 0..100 x 0..100.
      fit: two points of the fitted line; "" if there was too little to fit.
      exponent: s of frequency ~ rank ** -s.
      fitted_to: the last rank that was fitted.
      across: (percent, label) at powers of ten of the rank.
      down: (percent, label) at powers of ten of the count.
    """

    points: str
    fit: str
    exponent: float
    fitted_to: int
    across: tuple[tuple[float, str], ...]
    down: tuple[tuple[float, str], ...]


def zipf(counts: np.ndarray) -> Curve | None:
    """The rank-frequency curve of the counts that are not 0; None if there are none.

    The line is a least-squares fit in logarithms over points that stand evenly on the logarithm of
    the rank, so that the many rare tokens do not outweigh all others.
    """
    ranked = np.sort(counts[counts > 0])[::-1]
    if not len(ranked):
        return None
    wide = max(math.log10(len(ranked)), 0.3)
    high = max(math.log10(int(ranked[0])), 0.3)
    ranks = sorted({round(10 ** (wide * i / _CURVE_POINTS)) for i in range(_CURVE_POINTS + 1)})
    ranks = [rank for rank in ranks if rank <= len(ranked)]
    curve = [(math.log10(rank), math.log10(int(ranked[rank - 1]))) for rank in ranks]

    def place(x: float, y: float) -> str:
        return f"{100 * x / wide:.2f},{100 - 100 * y / high:.2f}"

    fitted_to = int((ranked >= _FIT_COUNT).sum())
    chosen = [p for rank, p in zip(ranks, curve, strict=True) if _FIT_FROM <= rank <= fitted_to]
    fit, slope = "", 0.0
    if len(chosen) >= 10:
        slope, level = _line(chosen)
        # Drawn where it is inside the figure.
        ends = [0.0, wide, (high - level) / slope, -level / slope] if slope else [0.0, wide]
        inside = [x for x in ends if 0 <= x <= wide and -1e-9 <= level + slope * x <= high + 1e-9]
        if inside:
            fit = " ".join(place(x, level + slope * x) for x in (min(inside), max(inside)))
    return Curve(
        points=" ".join(place(x, y) for x, y in curve),
        fit=fit,
        exponent=-slope,
        fitted_to=fitted_to,
        across=tuple((100 * d / wide, compact(10**d)) for d in range(int(wide) + 1)),
        down=tuple((100 - 100 * d / high, compact(10**d)) for d in range(int(high) + 1)),
    )


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and height at 0 of the least-squares line."""
    middle_x = math.fsum(x for x, _ in points) / len(points)
    middle_y = math.fsum(y for _, y in points) / len(points)
    together = math.fsum((x - middle_x) * (y - middle_y) for x, y in points)
    slope = together / math.fsum((x - middle_x) ** 2 for x, _ in points)
    return slope, middle_y - slope * middle_x


def compact(number: float, digits: int = 2) -> str:
    """A number in few characters, with so many digits: 950, 1.2k, 36k, 4.5M, 12G."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5:
            whole = len(f"{number:.0f}")
            text = f"{number:.{max(digits - whole, 0) if unit else 0}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
        number /= 1000
    return f"{number:,.0f}P"
