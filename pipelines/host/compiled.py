"""How loops are compiled: by numba, without the interpreter's lock, and kept on disk.

Import files that compile loops where the loops are run, not before: numba takes 0.2 s to import and
0.2 to load the first loop it kept.
"""

from collections.abc import Callable
from typing import Any

import numba
import numba.core.entrypoints as _entrypoints
import numba.np.linalg as _linalg


def _without_blas() -> None:
    raise ImportError


# numba asks for scipy.linalg, which takes 0.15 s, and does without it where it is not installed:
# only products of matrices need it, and no loop here has any. (Those of a user's filter are
# compiled before, when it is called.)
_ensure_blas, _linalg.ensure_blas = _linalg.ensure_blas, _without_blas
import numba.np.arraymath  # noqa: E402

_linalg.ensure_blas = _ensure_blas

# numba imports what else is installed to extend it (awkward: 0.25 s); no loop here takes any of
# that. (A user's filter that does says so: `awkward.numba.register()`.)
_entrypoints._already_initialized = True


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
