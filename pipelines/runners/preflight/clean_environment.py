"""An empty virtual environment, with nothing but what workers would install, to try a job in.

It is made by uv where there is one (seconds, if its cache is warm), else by venv and pip.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass

_INSTALL_SECONDS, _LOAD_SECONDS = 900, 300
# What installers say where no index answers.
_NO_INDEX = re.compile(
    r"dns error|name resolution|Name or service not known|Network is unreachable|timed out|"
    r"Connection (refused|reset|aborted)|NewConnectionError|error sending request|"
    r"Failed to fetch|Request failed|tunnel|certificate|Max retries|offline|network was disabled",
    re.I,
)
_LOADER = (
    "import sys; from pipelines.runners.preflight.unpickle_job import main; main(sys.argv[1:])"
)


@dataclass(frozen=True)
class Installed:
    """What came of installing.

    Attributes:
      python: of the environment; "" if it failed.
      problem: what the installer said.
      no_index: whether that was for want of an index, and says nothing of the packages.
    """

    python: str
    problem: str = ""
    no_index: bool = False


def install(folder: str, packages: list[str], requirements_file: str | None = None) -> Installed:
    """Makes an environment in a folder and installs packages there.

    Args:
      folder: a new one.
      packages: files, or folders with a setup.py.
      requirements_file: of requirements, besides.
    """
    python = os.path.join(folder, "bin", "python")
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    wanted = [*packages, *(["-r", requirements_file] if requirements_file else [])]
    if uv:
        steps = [
            [uv, "venv", "--quiet", "--python", sys.executable, folder],
            [uv, "pip", "install", "--quiet", "--python", python, *wanted],
        ]
    else:
        steps = [
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
        ]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for step in steps:
        try:
            done = subprocess.run(
                step,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Installed("", f"not done after {_INSTALL_SECONDS // 60} minutes", no_index=True)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            return Installed("", said, no_index=_NO_INDEX.search(said) is not None)
    return Installed(python)


def load_job(
    python: str, job: bytes, filter_name: str, package: str | None
) -> tuple[int, list[str]]:
    """Unpickles a job in a fresh interpreter, away from this folder and its modules.

    Args:
      python: that runs it.
      job: a serialized pipeline.
      filter_name: that has to be importable; "" for none.
      package: the workers' package, where it is not installed: its files come before all others.

    Returns:
      How many functions and coders there are, and what does not load.
    """
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path = os.path.join(folder, "job.pb")
        with open(path, "wb") as file:
            file.write(job)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if package:
            with zipfile.ZipFile(package) as wheel:
                wheel.extractall(os.path.join(folder, "package"))
            environment["PYTHONPATH"] = os.path.join(folder, "package")
        command = [python, "-c", _LOADER, path, *([filter_name] if filter_name else [])]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LOAD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return 0, [f"it is not loaded after {_LOAD_SECONDS // 60} minutes"]
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"]
        return 0, [said[-1]]
    found = json.loads(done.stdout.splitlines()[-1])
    return found["loaded"], found["problems"]
