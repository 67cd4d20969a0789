"""How loops are compiled: by numba, without the interpreter's lock, and kept on disk.

Import files that compile loops where the loops are run, not before: numba takes 0.2 s to import,
and the first loop 0.6 to load: numba then imports scipy.linalg and what else is installed for it.
"""

from collections.abc import Callable
from typing import Any

import numba


def entry(*signature: Any) -> Callable[[Callable], Any]:
    """Compiles a loop that Python calls; with a signature at once, else for whatever it is given.

    The machine code is kept on disk where some directory allows it, until the file changes that the
    loop is in: what it calls (`inner`) belongs into the same file.
    """

    def compile_entry(function: Callable) -> Any:
        try:
            return numba.njit(*signature, cache=True, nogil=True)(function)
        except RuntimeError:  # numba found no place it may write to
            return numba.njit(*signature, nogil=True)(function)

    return compile_entry


def inner(function: Callable) -> Any:
    """Compiles what entries call. It is kept as a part of them."""
    return numba.njit(nogil=True)(function)
