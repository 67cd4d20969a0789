"""Says in words that memory is short, before and after the fact. Python 3.8 syntax.

Libraries meet it in many ways: MemoryError, an import that fails, a thread that cannot start; and
some in ways that nobody can catch: C++ aborts the process, or waits for a thread that never came.
Where the process may have few addresses only (`ulimit -v`), that is seen beforehand.
"""

import re
import resource
from typing import Optional, Set

from schemas.errors import DataError

_SIGNS = re.compile(
    r"MemoryError|failed to map segment|cannot allocate memory|can't start new thread|bad_alloc"
    r"|out of memory allocating|global thread pool has not been initialized",
    re.IGNORECASE,
)
_LONGEST = 200  # characters of what is said


def want_addresses(gigabytes: float, what: str) -> None:
    """Refuses to start where the process may not have as many addresses as it takes.

    Args:
      gigabytes: (1e9 bytes) that the smallest run takes: most are for code and for threads, and
        never become memory.
      what: starts.

    Raises:
      DataError: `ulimit -v` allows fewer.
    """
    limit = _limit()
    if limit is not None and limit < gigabytes * 1e9:
        raise DataError(
            f"{what} takes at least {gigabytes:g} GB of addresses, and `ulimit -v` allows "
            f"{limit / 1e9:.2f} GB: allow more (`ulimit -v unlimited`) and run again"
        )


def shortage_of(error: Optional[BaseException]) -> Optional[DataError]:
    """What is said of an exception that arose because memory is short; None of any other."""
    seen: Set[int] = set()
    while error is not None and id(error) not in seen:  # one may be raised from itself
        seen.add(id(error))
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        told = shortage_told(f"{kind}: {error}")
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def shortage_told(text: str) -> Optional[DataError]:
    """The same of the text of a traceback, which is all that comes from a worker."""
    signs = (line.strip(" :") for line in reversed(text.splitlines()) if _SIGNS.search(line))
    told = next(signs, None)
    if told is None:
        return None
    limit = _limit()
    allowed = "" if limit is None else f", of which `ulimit -v` allows {limit / 1e9:.2f} GB"
    return DataError(
        f"memory is short{allowed} ({told[:_LONGEST]}): give the process more, or less to do: "
        "fewer workers, smaller batches or shards; then run the same command again"
    )


def _limit() -> Optional[int]:
    """Bytes of addresses that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
