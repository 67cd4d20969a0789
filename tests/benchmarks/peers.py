"""An environment of their own for the packages that Textmill is measured beside.

They are no dependencies, and pin versions of what Textmill uses too. The first call makes it in
benchmarks/peers, of peers.txt (mosaicml-streaming and litdata bring PyTorch: gigabytes, which uv
links to those it has already). Who wants other versions than these has a file of pins of its own.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.measure import CannotRun, run_command
from tests.tools.places import ROOT

Found = TypeVar("Found")


def with_peers(run: Callable[[str], Found], pins: str = "peers") -> Callable[[], Found]:
    """A contestant that is given the peers' interpreter; one that cannot run if there is none."""
    try:
        python = _interpreter(pins)
    except CannotRun as error:
        reason = str(error)

        def cannot() -> Found:
            raise CannotRun(reason)

        return cannot
    return lambda: run(python)


def peer_versions(*packages: str, pins: str = "peers") -> dict[str, str]:
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
        raise CannotRun("peers are installed with uv, which `make` installs, and there is none")
    print(f"installing {pinned.name} into {folder} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    _run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pinned)])
    done.write_bytes(pinned.read_bytes())
    return str(python)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotRun(f"peers could not be installed: {' '.join(done.stderr.split())[-300:]}")
