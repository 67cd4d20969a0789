"""Seconds of one core as text: a duration, or hours of a cluster."""

_WORKERS = (16, 64, 256, 1024)


def duration(seconds: float) -> str:
    """8.4 -> `8 s`, 100 -> `1.7 min`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{max(1, round(seconds))} s"


def cpu_hours(seconds: float, most: int) -> str:
    """7200 -> `about 2.0 CPU hours: 7.5 min on 16, ... workers of one core like this machine's`.

    `most` is how many workers can have something to do at once.
    """
    numbers = [number for number in _WORKERS if number <= most] or [1]
    each = ", ".join(f"{duration(seconds / number)} on {number:,}" for number in numbers)
    return (
        f"about {seconds / 3600:,.1f} CPU hours: {each} workers of one core like this machine's, "
        "without their start"
    )
