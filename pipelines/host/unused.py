"""Packages that a run does not use, although libraries import them where they are installed.

Beam imports clients of clouds, pyarrow imports pandas, numba imports scipy: 0.6 s of CPU and 90 MB
of each run. All three work without these packages.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What Beam imports and no run on this machine uses.
NOT_LOCAL = ("apitools", "boto3", "google.auth", "google.cloud", "pandas", "pymongo", "requests")


@contextmanager
def leave_out(*packages: str) -> Iterator[None]:
    """Within it, packages that are not imported yet cannot be: as if they were not installed."""
    names = {name for name in packages if name not in sys.modules}

    class Finder:
        """Is asked first for each module that is imported."""

        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name in names:
                raise ModuleNotFoundError(f"{name} is left out", name=name)

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)


def leave_out_pandas() -> None:
    """Has pyarrow not import pandas at its first `pyarrow.array`.

    It still imports pandas when it is asked for a data frame.
    """
    # What imports Beam alone does without.
    import pyarrow

    with leave_out("pandas"):
        pyarrow.array([], pyarrow.null())
