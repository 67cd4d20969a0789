"""The metrics of a run, and its flags with changes, for tests and benchmarks."""

from pathlib import Path
from typing import Any, TypeVar

from textmill.trainers.flags.command_line import flag_values, make_flags
from textmill.trainers.run.journal import METRICS, each_metrics

Group = TypeVar("Group")
# Values of metrics.jsonl that differ from run to run.
TIMED = (
    *("seconds_per_step", "tokens_per_second", "tokens_per_second_per_device"),
    *("waiting", "mfu"),
)


def read_metrics(path: str) -> list[dict[str, Any]]:
    """All lines of a metrics file."""
    return list(each_metrics(path))


def untimed_lines(output: Path, kind: str = "") -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl without times: all, or those of one kind."""
    return [
        {name: value for name, value in line.items() if name not in TIMED}
        for line in read_metrics(str(output / METRICS))
        if kind in ("", line["kind"])
    ]


def change_flags(flags: Group, **changes: Any) -> Group:
    """The same flags with some of them changed."""
    return make_flags(type(flags), **{**flag_values(flags), **changes})
