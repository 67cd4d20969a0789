"""Arrow's compute functions and Parquet, imported with the first call, for a fast --help.

pyarrow's type stubs lack the compute functions, so `pc` is typed Any.
"""

import importlib
from typing import Any


class _Lazy:
    """A module that is imported when an attribute is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


pc: Any = _Lazy("pyarrow.compute")
parquet: Any = _Lazy("pyarrow.parquet")
