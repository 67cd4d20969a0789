"""Libraries that compute the same for every command of a process, which tests run by the hundred.

Each change here is a cache of a function without side effects. Where a library renames that
function, every test fails with an AttributeError.
"""

import functools
from typing import Any

from tyro import _docstrings


def quicken_tyro() -> None:
    """It reads the source of a class of flags for each command line: half of parsing's 20 ms."""
    kind: Any = _docstrings._ClassTokenization
    kind.make = staticmethod(functools.cache(kind.make))
