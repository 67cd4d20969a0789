"""Installs the packages that Textmill is compared with into an environment of their own.

They are not dependencies, and some pin versions of packages that Textmill uses too. The first call
installs baselines.txt into benchmarks/baselines (gigabytes, since mosaicml-streaming and litdata
need PyTorch; uv links what it already has). A package that needs other versions gets its own file.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from tests.benchmarks.measure import CannotRun, run_command
from tests.tools.places import ROOT

Found = TypeVar("Found")
PYTHONS = {"megatron": "3.12"}  # of those that this Python may be too old for


def with_baselines(run: Callable[[str], Found], pins: str = "baselines") -> Callable[[], Found]:
    """A contestant that gets the interpreter of the baselines, or cannot run without one."""
    try:
        python = _interpreter(pins)
    except CannotRun as error:
        reason = str(error)

        def cannot() -> Found:
            raise CannotRun(reason)

        return cannot
    return lambda: run(python)


def baseline_versions(*packages: str, pins: str = "baselines") -> dict[str, str]:
    """Of packages there; empty if there is no such environment."""
    code = "import importlib.metadata as m, json; print(json.dumps({p: m.version(p) for p in %r}))"
    try:
        return json.loads(run_command([_interpreter(pins), "-c", code % (packages,)])[1])
    except CannotRun:
        return {}


@cache
def _interpreter(pins: str) -> str:
    folder, pinned = ROOT / "benchmarks" / pins, Path(__file__).with_name(f"{pins}.txt")
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if done.exists() and done.read_bytes() == pinned.read_bytes():
        return str(python)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise CannotRun("baselines are installed with uv, which `make` installs, and there is none")
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):  # of several test processes, one installs
        if not (done.exists() and done.read_bytes() == pinned.read_bytes()):
            print(f"installing {pinned.name} into {folder} ...", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            chosen = PYTHONS.get(pins, sys.executable)
            _run([uv, "venv", "--quiet", "--python", chosen, str(folder)])
            _run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pinned)])
            done.write_bytes(pinned.read_bytes())
    return str(python)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotRun(f"baselines could not be installed: {' '.join(done.stderr.split())[-300:]}")
