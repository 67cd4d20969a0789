"""Packages that are not installed: one line that names the extra, in place of a traceback.

Python 3.8 syntax, and nothing but the standard library: it is there where all else may not be.
"""

import os
import sys
from types import TracebackType
from typing import Optional, Type

from schemas.commands.terminal import say

_OURS = ("pipelines", "schemas", "tests", "trainers")


def name_missing_packages() -> None:
    """Has `python -m` of a command end in one line where a package of its extra is missing.

    While Python looks for the module of `-m`, the first argument is "-m": nobody else's programs,
    and nobody's notebooks, are touched.
    """
    if sys.argv[:1] == ["-m"]:
        sys.excepthook = _tell


def line_of(error: BaseException) -> Optional[str]:
    """What to install, if a package is missing that is not ours; else None."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package or package in _OURS:
        return None
    command = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    extra = command.partition("_")[0]
    if extra not in ("flax", "tf", "poptorch"):
        extra = "pipelines"
    return (
        f"error: {command} takes the package {package}, which is not installed here: pip install "
        f"'/path/to/textmill[{extra}]'"
    )


def _tell(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    line = line_of(error)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        say(line, sys.stderr)
