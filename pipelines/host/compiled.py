"""How loops are compiled: by numba, without the interpreter's lock, and kept on disk.

A loop is compiled, or loaded, when it is first called, so that files of loops can be imported
anywhere: numba takes 0.3 s to import, and the first loop 0.15 to load.
"""

import functools
import hashlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipelines.host.unused import leave_out

_KNOWN_BY_NAME = {"math", "numba", "numpy"}  # packages that no edit of a loop changes
_inner: list[Callable] = []  # not yet known to numba
_lock = threading.Lock()


def entry(*signature: Any) -> Callable[[Callable], Callable]:
    """Compiles a loop that Python calls.

    The machine code is kept on disk where some directory allows it, until the loop's file changes
    or what the loop names in another: a function that it calls (`inner`), a constant, an array.

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

    numba.core.entrypoints._already_initialized = True
    with leave_out("scipy.linalg"):
        # Named here, while the package that it would import is left out.
        import numba.np.arraymath
    return numba


def _parts(value: Any, names: set[str], seen: set[int]) -> Iterator[bytes]:
    """What machine code is made of: code, and what its names stand for, whatever file that is in.

    Args:
      value: a loop, or what a loop names.
      names: that the code holds, of which some may be attributes of a module.
      seen: ids of the functions that are on the way or done: loops call each other.

    Raises:
      TypeError: a value has no content that would be equal in the next process.
    """
    value = getattr(value, "_defn", getattr(value, "py_func", value))  # of an intrinsic; of njit
    yield type(value).__name__.encode()
    module = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    is_known = module.partition(".")[0] in _KNOWN_BY_NAME
    if isinstance(value, types.FunctionType) and not is_known:
        if id(value) in seen:
            return
        seen.add(id(value))
        yield module.encode()  # which numba imports when it loads what it kept
        yield from _parts(value.__code__, names, seen)
        yield from _parts([cell.cell_contents for cell in value.__closure__ or ()], names, seen)
        held = _names(value.__code__)
        for name in sorted(held & value.__globals__.keys()):
            yield name.encode()
            yield from _parts(value.__globals__[name], held, seen)
    elif isinstance(value, types.ModuleType) and not is_known:
        for name in sorted(names & vars(value).keys()):
            yield name.encode()
            yield from _parts(vars(value)[name], names, seen)
    elif isinstance(value, types.CodeType):
        yield value.co_code + repr((value.co_names, value.co_varnames)).encode()
        yield from _parts(value.co_consts, names, seen)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _parts(item, names, seen)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        yield repr(value).encode()
    elif isinstance(value, (type, types.BuiltinFunctionType)) or is_known:
        yield f"{module}.{getattr(value, '__qualname__', value)}".encode()
    else:
        raise TypeError(
            f"a loop names {value!r}, of {type(value)}: take its numbers into constants"
        )


def _names(code: types.CodeType) -> set[str]:
    inside = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*map(_names, inside))


def _digest(function: Callable) -> str:
    digest = hashlib.sha256()
    for part in _parts(function, set(), set()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


def _compile(function: Callable, signature: tuple[Any, ...]) -> Callable:
    with _lock:
        numba = _import_numba()
        # numba finds what it kept by this name and by the file that the loop is in.
        function.__qualname__ = f"{function.__name__}-{_digest(function)}"
        while _inner:
            numba.extending.register_jitable(nogil=True)(_inner.pop())
        due: list[Any] = [part(numba.types) if callable(part) else part for part in signature]
        try:
            return numba.njit(*due, cache=True, nogil=True)(function)
        except RuntimeError:  # numba found no place it may write to
            return numba.njit(*due, nogil=True)(function)
