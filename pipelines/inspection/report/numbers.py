"""How a report writes numbers, and the first of many names. Pure."""

from collections.abc import Mapping

Bar = list[tuple[str, str, float]]  # parts of one bar: name, CSS class, share


def number(value: float) -> str:
    """Writes a number with commas, and a minus as wide as a digit: -1234567 -> −1,234,567."""
    return f"{value:,.0f}".replace("-", "−")


def tile(count: int) -> str:
    """Writes a count exactly up to a billion, then in four digits: 5,983; 1.235G."""
    return number(count) if count < 1_000_000_000 else compact(count, 4)


def compact(number: float, digits: int = 2) -> str:
    """Writes a number with few digits and a unit: 950, 1.2k, 36k, 4.5M, 12G."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5:
            whole = len(f"{number:.0f}")
            text = f"{number:.{max(digits - whole, 0) if unit else 0}f}"
            return (text.rstrip("0").rstrip(".") if "." in text else text) + unit
        number /= 1000
    return f"{number:,.0f}P"


def percent(share: float) -> str:
    """0.9993 -> 99.93 %; only exactly 1 gives 100 %, and only exactly 0 gives 0 %."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    for digits in (1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text + " %"
    return "< 0.001 %" if share < 0.5 else "> 99.999 %"


def cut_text(text: str, longest: int = 300) -> str:
    """Returns the text, or its first `longest` characters and an ellipsis."""
    return text if len(text) <= longest else text[:longest] + "…"


def largest(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Returns the largest counts in order, and the rest as one: ("7 others", 30)."""
    ordered = sorted(((n, c) for n, c in counts.items() if c), key=lambda item: (-item[1], item[0]))
    if len(ordered) <= most:
        return ordered
    rest = ordered[most - 1 :]
    return [*ordered[: most - 1], (f"{len(rest):,} others", sum(count for _, count in rest))]


def meter(count: int, most: int) -> Bar:
    """Returns a bar that shows `count` as a share of `most`."""
    share = count / (most or 1)
    return [("", "blue", share), ("", "", 1 - share)]
