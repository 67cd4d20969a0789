"""What all benchmarks share: contestants take turns, medians count, a record says all of it.

A bench is a module with `Options` (its flags) and `measure(options)`, which yields records:

    contestants = {"ours": ..., "theirs": ...}  # each is called, and returns Seconds
    found = alternated(contestants, options.runs)
    yield Record("a row", Side.rate("ours", found["ours"], 110, "MB"), ..., reach=20, aim=35)

Run alone, it prints them: `python -m tests.benchmarks.bench_X`. run_all.py runs every one.
"""

import importlib.metadata
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import tyro

from tests.benchmarks.clock import Seconds
from tests.tools.places import ROOT

OFFLINE = {
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BAR": "1",
}
Found = TypeVar("Found")


class CannotRun(Exception):
    """Why something was not measured: data or a package is absent, or a command failed."""


class Runs(list[Found]):
    """What a contestant's runs gave, or why there is none."""

    reason = ""


def alternated(contestants: Mapping[str, Callable[[], Found]], runs: int) -> dict[str, Runs[Found]]:
    """Runs all in turn, every other round backwards (a b, b a, a b): other work falls on all alike.

    Who cannot run is left out from then on; its `reason` says why.
    """
    found: dict[str, Runs[Found]] = {name: Runs() for name in contestants}
    for number in range(runs):
        for name in list(contestants) if number % 2 == 0 else reversed(list(contestants)):
            if found[name].reason:
                continue
            try:
                found[name].append(contestants[name]())
            except CannotRun as error:
                found[name] = Runs()
                found[name].reason = str(error)
    return found


@dataclass(frozen=True)
class Side:
    """One of those compared.

    Attributes:
      name: what ran.
      unit: of the runs; "MB/s" and the like are rates, of which more is better.
      runs: a value each; none if it could not run.
      by_cpu: the same by processor time.
      bytes: handled in a run; 0 where that says nothing.
      memory: the most MB of all its processes together; 0 if it was not measured.
      workers: processes and threads at work.
      note: what else must be known, or why it could not run.
    """

    name: str
    unit: str
    runs: tuple[float, ...]
    by_cpu: tuple[float, ...] = ()
    bytes: int = 0
    workers: str = "1 process"
    note: str = ""
    memory: float = 0

    @classmethod
    def rate(cls, name: str, runs: Runs[Seconds], work: float, of: str, **more: Any) -> "Side":
        """So much work a second: `rate("ours", found["ours"], 110, "MB")`."""
        values = [(work / seconds.wall, work / seconds.cpu) for seconds in runs]
        return cls._of(name, f"{of}/s", runs, values, **more)

    @classmethod
    def time(cls, name: str, runs: Runs[Seconds], **more: Any) -> "Side":
        """Seconds of a run."""
        return cls._of(name, "s", runs, list(runs), **more)

    @classmethod
    def values(cls, name: str, unit: str, runs: Runs[float], **more: Any) -> "Side":
        """What has no processor time of its own."""
        return cls._of(name, unit, runs, [(value,) for value in runs], **more)

    @classmethod
    def _of(
        cls, name: str, unit: str, runs: Runs[Any], values: Sequence[tuple[float, ...]], **more: Any
    ) -> "Side":
        if runs.reason:
            return cls(name, unit, (), note=runs.reason)
        columns = [*zip(*values, strict=True), ()]
        return cls(name, unit, columns[0], columns[1], **more)

    @property
    def median(self) -> float:
        """Of the runs."""
        return statistics.median(self.runs)

    @property
    def shown(self) -> str:
        """5.6 s, or with memory: 5.6 s (6.9 CPU s, 812 MB)."""
        held = f"{figure(statistics.median(self.by_cpu))} CPU {self.unit}, " if self.by_cpu else ""
        more = f" ({held}{figure(self.memory)} MB)" if self.memory else ""
        return f"{figure(self.median)} {self.unit}{more}"


@dataclass(frozen=True)
class Record:
    """One row of the table.

    Attributes:
      name: what is compared.
      ours: Textmill.
      beside: the other; None where ours is held against a bound alone.
      reach: the threshold; None: measured to be known.
      aim: the wish.
      at_most: the ratio is ours to theirs, and less is better.
      versions: of the packages at work.
      command: that measures it again.
    """

    name: str
    ours: Side
    beside: Side | None = None
    reach: float | None = None
    aim: float | None = None
    at_most: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def reason(self) -> str:
        """Why it could not be measured; empty if it was."""
        absent = [side for side in self.sides if not side.runs]
        return "; ".join(f"{side.name}: {side.note}" for side in absent)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Ours first."""
        return (self.ours,) if self.beside is None else (self.ours, self.beside)

    @property
    def ratio(self) -> float:
        """How many times as good ours is; `at_most`: as much. Without another side, its value."""
        return self._ratio([side.median for side in self.sides])

    @property
    def ratio_by_cpu(self) -> float | None:
        """The same by processor time, where that is known of all."""
        if not all(side.by_cpu for side in self.sides):
            return None
        return self._ratio([statistics.median(side.by_cpu) for side in self.sides])

    def _ratio(self, medians: list[float]) -> float:
        if self.beside is None:
            return medians[0]
        rate = self.ours.unit.endswith("/s")
        return medians[0] / medians[1] if rate or self.at_most else medians[1] / medians[0]

    def meets(self, bound: float | None) -> bool | None:
        """Whether the ratio is as good as a bound; None where there is none, or no ratio."""
        if bound is None or self.reason:
            return None
        return self.ratio <= bound if self.at_most else self.ratio >= bound

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def told(self) -> str:
        """One line."""
        if self.reason:
            return f"{self.name}: not measured ({self.reason})"
        sides = " beside ".join(f"{side.name} {side.shown}" for side in self.sides)
        bounds = [(word, value) for word, value in (("reach", self.reach), ("aim", self.aim))]
        wanted = ", ".join(f"{word} {figure(value)}" for word, value in bounds if value is not None)
        ratio = "" if self.beside is None else f": {figure(self.ratio)} times"
        cpu = self.ratio_by_cpu if self.beside else None
        ratio += f" ({figure(cpu)} by processor time)" if cpu is not None else ""
        return f"{self.name}: {sides}{ratio}" + (f" [{wanted}]" if wanted else "")


def figure(value: float) -> str:
    """Three digits, or all before the point: 1,234 12.3 0.0123."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def versions(*packages: str) -> dict[str, str]:
    """Of installed packages, and of Python."""
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": ".".join(map(str, sys.version_info[:3])), **found}


def run_command(command: Sequence[str | Path]) -> tuple[Seconds, str]:
    """Runs a command from the repository's root: seconds of it and its children, and its stdout.

    Raises:
      CannotRun: it failed; with the end of what it said.
    """
    environment = os.environ | OFFLINE | {"PYTHONPATH": str(ROOT)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(arguments, env=environment, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise CannotRun(f"there is no {command[0]}") from error
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise CannotRun(f"{Path(command[0]).name} ended with {done.returncode}: {said}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(wall, cpu), done.stdout


def seconds_of(module: str, *arguments: str | Path, python: str = sys.executable) -> Seconds:
    """Runs `python -m module`, start-up included."""
    return run_command([python, "-m", module, *arguments])[0]


def reported(module: str, *arguments: str | Path, python: str = sys.executable) -> Any:
    """The JSON on the last line that `python -m module` prints: what it timed itself."""
    return json.loads(run_command([python, "-m", module, *arguments])[1].splitlines()[-1])


def needs(path: Path) -> Path:
    """The path, if something lies there.

    Raises:
      CannotRun: nothing does.
    """
    if not path.exists():
        raise CannotRun(f"there is no {os.path.relpath(path, ROOT)}")
    return path


@dataclass(frozen=True)
class Options:
    """Flags that every bench has."""

    runs: int = 3
    """Of each side, in turn; medians count."""
    records: str = ""
    """A file for the records as JSON."""


Chosen = TypeVar("Chosen", bound=Options)


def entry(measure: Callable[[Chosen], Iterator[Record]], options_class: type[Chosen]) -> None:
    """What `python -m tests.benchmarks.bench_X` does."""
    options = tyro.cli(options_class, use_underscores=True)
    module = Path(sys.argv[0]).stem
    flags = [flag for flag in sys.argv[1:] if not flag.startswith("--records")]
    command = shlex.join(["python", "-m", f"tests.benchmarks.{module}", *flags])
    found = []
    try:
        for record in measure(options):
            found.append(replace(record, command=command))
            print(found[-1].told(), flush=True)
    except CannotRun as error:
        absent = Side("textmill", "", (), note=str(error))
        found.append(Record(module.removeprefix("bench_"), absent, command=command))
        print(found[-1].told())
    if options.records:
        Path(options.records).write_text(json.dumps([record.to_dict() for record in found]))


def read_records(path: Path) -> list[Record]:
    """What `--records` wrote."""
    return [
        Record(
            **{**row, "ours": _side(row["ours"]), "beside": row["beside"] and _side(row["beside"])}
        )
        for row in json.loads(path.read_text())
    ]


def _side(values: dict[str, Any]) -> Side:
    """JSON has no tuples."""
    return Side(**{**values, "runs": tuple(values["runs"]), "by_cpu": tuple(values["by_cpu"])})
