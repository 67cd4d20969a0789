"""Records as benchmarks.md, benchmarks.json and benchmarks.png."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import psutil

from tests.benchmarks.measure import Record, Side, figure
from textmill.schemas.version import VERSION

_REACHED, _MISSED, _FREE = "#2a7f4f", "#b3372f", "#5f6b7a"


def write_report(records: list[Record], folder: Path) -> None:
    """Writes all three."""
    folder.mkdir(parents=True, exist_ok=True)
    about = machine()
    rows = [_values(record) for record in records]
    content = json.dumps({"machine": about, "records": rows}, indent=1)
    (folder / "benchmarks.json").write_text(content + "\n")
    (folder / "benchmarks.md").write_text(markdown(records, about))
    plot(records, folder / "benchmarks.png")


def machine() -> dict[str, Any]:
    """What it was measured on."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {
        "textmill": VERSION,
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _values(record: Record) -> dict[str, Any]:
    """As JSON, with what follows from it."""
    medians = {} if record.reason else {"ratio": record.ratio, "ratio_by_cpu": record.ratio_by_cpu}
    verdict = {"reached": record.meets(record.reach), "aim_met": record.meets(record.aim)}
    return {**record.to_dict(), **medians, **verdict, "reason": record.reason}


def markdown(records: list[Record], about: dict[str, Any]) -> str:
    """The table, then each row's runs, versions and command."""
    said = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = ["# Benchmarks", "", f"{said}. Medians; every side ran in turn with the other.", ""]
    lines += ["| what | ours | beside | ratio | by processor time | reach | aim | |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    lines += [_row(record) for record in records]
    lines += ["", 'Where a row says "at most", less is better, and a ratio is ours to theirs.', ""]
    for record in records:
        lines += [f"## {record.name}", "", f"`{record.command}`", ""]
        lines += [_detail(side) for side in record.sides]
        used = ", ".join(f"{package} {version}" for package, version in record.versions.items())
        lines += [*([f"- {used}"] if used else []), ""]
    return "\n".join(lines)


def _row(record: Record) -> str:
    if record.reason:
        return f"| {record.name} | not measured: {_cell(record.reason)} | | | | | | |"
    bounds = [_bound(record, value) for value in (record.reach, record.aim)]
    beside, ratio, by_cpu = "", "", ""
    if record.beside is not None:
        beside, ratio = record.beside.shown, figure(record.ratio)
        by_cpu = "" if record.ratio_by_cpu is None else figure(record.ratio_by_cpu)
    verdict = {None: "", True: "reached", False: "**missed**"}[record.meets(record.reach)]
    if record.meets(record.aim):
        verdict = "aim met"
    cells = [record.name, record.ours.shown, beside, ratio, by_cpu, *bounds, verdict]
    return f"| {' | '.join(cells)} |"


def _bound(record: Record, value: float | None) -> str:
    if value is None:
        return ""
    return f"{'at most ' if record.at_most else ''}{figure(value)}"


def _detail(side: Side) -> str:
    if not side.runs:
        return f"- {side.name}: not measured: {_cell(side.note)}"
    runs = ", ".join(map(figure, side.runs))
    by_cpu = f" (by processor time {', '.join(map(figure, side.by_cpu))})" if side.by_cpu else ""
    size = f", {side.bytes:,} bytes" if side.bytes else ""
    size += f", {figure(side.memory)} MB of memory" if side.memory else ""
    note = f"; {side.note}" if side.note else ""
    return f"- {side.name}: {runs} {side.unit}{by_cpu}; {side.workers}{size}{note}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def plot(records: list[Record], path: Path) -> None:
    """Rows with a threshold, each as a share of it: right of the line is as asked, or better.

    Where less is better the share is turned over. A tick is the aim. Logarithmic.
    """
    shown = [record for record in records if not record.reason and _threshold(record)]
    height = 1.2 + 0.27 * len(shown)
    chart, axes = plt.subplots(figsize=(11, height), layout="constrained")
    for place, record in enumerate(shown):
        share, aim = margin(record, record.ratio), record.aim
        color = _REACHED if share >= 1 else _MISSED
        axes.plot([1, share], [place, place], color=color, linewidth=1.5)
        axes.plot(share, place, "o", color=color, markersize=6)
        if aim is not None and record.reach is not None:
            axes.plot(margin(record, aim), place, "|", color=_FREE, markersize=12)
        bound = f"{'at most' if record.at_most else 'at least'} {figure(_threshold(record) or 0)}"
        text, at = f"{figure(record.ratio)} ({bound})", (1.01, place)
        axes.annotate(text, at, xycoords=("axes fraction", "data"), va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [record.name for record in shown], fontsize=7)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("measured, as a share of what is asked (1: just reached; tick: the aim)")
    chart.savefig(path, dpi=130)
    plt.close(chart)


def margin(record: Record, value: float) -> float:
    """How many times better than asked a value is: above 1 is better."""
    asked = _threshold(record) or 1.0
    return asked / max(value, 1e-9) if record.at_most else value / asked


def _threshold(record: Record) -> float | None:
    return record.aim if record.reach is None else record.reach
