"""How loops are compiled: by numba, without the interpreter's lock, and kept on disk.

A loop is compiled, or loaded, when it is first called, so that files of loops can be imported
anywhere: numba takes 0.3 s to import, and the first loop 0.15 to load.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

_inner: list[Callable] = []  # not yet known to numba
_lock = threading.Lock()


def entry(*signature: Any) -> Callable[[Callable], Callable]:
    """Compiles a loop that Python calls.

    The machine code is kept on disk where some directory allows it, until the file changes that the
    loop is in: what it calls (`inner`) belongs into the same file.

    Args:
      signature: of the loop, as numba writes it, or a function that makes it of `numba.types`; by
        default it is compiled for whatever it is given.
    """

    def make_lazy(function: Callable) -> Callable:
        compiled = functools.cache(lambda: _compile(function, signature))

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compiled()(*arguments)

        return call

    return make_lazy


def inner(function: Callable) -> Callable:
    """Compiles what entries call. It is kept as a part of them."""
    _inner.append(function)
    return function


@functools.cache
def _import_numba() -> Any:
    """Imports numba without what else is installed for it: 0.4 s of each process.

    It would import scipy.linalg, which only products of matrices need, and every package that
    extends it (awkward), none of which a loop here takes. A user's filter that wants awkward arrays
    in a compiled function of its own says so: `awkward.numba.register()`.
    """
    # Whoever calls no loop does without.
    import numba.core.entrypoints
    import numba.np.linalg

    def have_no_blas() -> None:
        raise ImportError

    numba.core.entrypoints._already_initialized = True
    ensure_blas, numba.np.linalg.ensure_blas = numba.np.linalg.ensure_blas, have_no_blas
    import numba.extending
    import numba.np.arraymath

    numba.np.linalg.ensure_blas = ensure_blas
    return numba


def _compile(function: Callable, signature: tuple[Any, ...]) -> Callable:
    with _lock:
        numba = _import_numba()
        while _inner:
            numba.extending.register_jitable(nogil=True)(_inner.pop())
        due: list[Any] = [part(numba.types) if callable(part) else part for part in signature]
        try:
            return numba.njit(*due, cache=True, nogil=True)(function)
        except RuntimeError:  # numba found no place it may write to
            return numba.njit(*due, nogil=True)(function)
