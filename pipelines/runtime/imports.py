"""Imports of large packages: late, for a fast --help, or without packages that a run does not use.

Beam imports cloud clients, pyarrow imports pandas, numba imports scipy: 0.6 s of CPU and 90 MB in
each run. All three work without these packages.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Packages that Beam imports and no run on one machine uses.
NOT_LOCAL = ("apache_beam.io.gcp.bigquery", "apitools", "boto3", "bson", "google.auth")
NOT_LOCAL += ("google.cloud", "pandas", "pymongo", "requests")


class _Lazy:
    """A module that is imported when an attribute is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


# Any, since pyarrow's type stubs lack the compute functions.
pc: Any = _Lazy("pyarrow.compute")
parquet: Any = _Lazy("pyarrow.parquet")


@contextmanager
def block_imports(*packages: str) -> Iterator[None]:
    """Context in which packages, unless imported before, cannot be imported."""
    names = {name for name in packages if name not in sys.modules}

    class Finder:
        """The first finder on sys.meta_path."""

        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name in names:
                raise ModuleNotFoundError(f"{name} is hidden", name=name)

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)


def block_pandas() -> None:
    """Keeps pyarrow from importing pandas at the first `Array.to_numpy`.

    pyarrow still imports pandas for data frames.
    """
    # Imported here, because users of `block_imports` may not need pyarrow.
    import pyarrow

    with block_imports("pandas"):
        pyarrow.array([0]).to_numpy()
