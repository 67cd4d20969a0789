"""The commands, and what --help prints."""

import functools
import io
from contextlib import redirect_stdout
from importlib import import_module
from unittest import mock

import pytest

from tests.tools.places import ROOT
from textmill.schemas.format.features import TASKS

ENTRIES = sorted(
    f"{folder}.{path.stem}"
    for folder in ("pipelines", "trainers")
    for path in (ROOT / folder).glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)
HELPED = [(entry,) for entry in ENTRIES]
"""Words of the commands whose helps differ: build_shards has one for each task."""
HELPED += [("pipelines.build_shards", f"--task={task}") for task in TASKS]


@functools.cache
def help_of(entry: str, *arguments: str) -> str:
    """The output of a command on 80 columns."""
    out = io.StringIO()
    with redirect_stdout(out), mock.patch.dict("os.environ", COLUMNS="80"):
        with pytest.raises(SystemExit, match="0"):
            import_module(entry).main([*arguments])
    return out.getvalue()
