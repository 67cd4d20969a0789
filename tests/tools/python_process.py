"""Another interpreter of Python."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.places import ROOT


def run_python(
    *arguments: str | Path, cwd: Path = ROOT, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python with our packages and these arguments; has its output and errors as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=check,
    )
