"""Arrow's compute functions and Parquet, loaded with the first call: --help does without them.

Its types do not know the functions either, so one alias stands for a comment at each call.
"""

import importlib
from typing import Any


class _Lazy:
    """A module that is imported when something of it is used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


pc: Any = _Lazy("pyarrow.compute")
parquet: Any = _Lazy("pyarrow.parquet")
