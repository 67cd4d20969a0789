"""What a run wrote, and its flags with changes, for tests and benchmarks."""

from typing import Any, TypeVar

from trainers.flags.command_line import flag_values, make_flags
from trainers.run.journal import each_metrics

Group = TypeVar("Group")


def read_metrics(path: str) -> list[dict[str, Any]]:
    """All lines of a metrics file."""
    return list(each_metrics(path))


def change_flags(flags: Group, **changes: Any) -> Group:
    """The same flags with some of them changed."""
    return make_flags(type(flags), **{**flag_values(flags), **changes})
