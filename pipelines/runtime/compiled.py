"""Compiles loops by numba, without the GIL, and caches machine code on disk.

A loop is compiled, or loaded, when it is first called, so importing its module costs nothing: numba
takes 0.3 s to import, and the first loop 0.15 s to load.
"""

import functools
import hashlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from textmill.pipelines.runtime.imports import block_imports

_KNOWN_BY_NAME = {"math", "numba", "numpy"}  # packages that Textmill does not edit
_inner: list[Callable] = []  # functions not yet registered with numba
_intrinsics: list[Callable] = []  # likewise
_lock = threading.Lock()


def entry(*signature: Any) -> Callable[[Callable], Callable]:
    """Compiles a loop that Python calls.

    Machine code is cached on disk, if a cache directory is writable, until the loop changes or
    anything that it names: a function that it calls (`inner`), a constant, an array.

    Args:
      signature: numba signature of the loop, or a function of `numba.types` that returns it; by
        default numba compiles for the types of the arguments.
    """

    def make_lazy(function: Callable) -> Callable:
        compiled = functools.cache(lambda: _compile(function, signature))

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return compiled()(*arguments)

        return call

    return make_lazy


def inner(function: Callable) -> Callable:
    """Marks a function that entries call; it is compiled and cached as a part of them."""
    _inner.append(function)
    return function


def intrinsic(function: Callable) -> Callable:
    """Marks a function that writes LLVM code, as `numba.extending.intrinsic` describes it.

    Entries call it by its name in its module, where numba's object replaces it.
    """
    _intrinsics.append(function)
    return function


def overlapping_eights(data: np.ndarray) -> np.ndarray:
    """The eight bytes from each byte on, as overlapping int64; empty if there are fewer than 8."""
    return np.ndarray(max(len(data) - 7, 0), "<i8", data.data, 0, 1)


@functools.cache
def _import_numba() -> Any:
    """Imports numba without scipy.linalg and without its extensions, which saves 0.4 s.

    Loops here need neither: scipy.linalg is for products of matrices, and extensions are for other
    packages (awkward). A user's filter with awkward arrays in a compiled function must call
    `awkward.numba.register()`.
    """
    # Imported here, so that a process that calls no loop does not pay for it.
    import numba.core.entrypoints

    numba.core.entrypoints._already_initialized = True
    with block_imports("scipy.linalg"):
        # Imported here, while scipy.linalg is hidden.
        import numba.core.caching
        import numba.core.runtime._nrt_python as runtime
        import numba.np.arraymath
        from llvmlite import binding

    for name, address in runtime.c_helpers.items():  # which machine code calls
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
    setattr(numba.core.caching.FunctionCache, "load_overload", _load_overload)  # noqa: B010
    return numba


def _load_overload(cache: Any, signature: Any, context: Any) -> Any:
    """Loads cached code as numba does, without what only compiling needs, which saves 0.15 s.

    numba first refreshes its context: it imports all that it can compile. It does so again before
    it compiles.
    """
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)


def _parts(value: Any, names: set[str], seen: set[int]) -> Iterator[bytes]:
    """Yields the content that decides machine code: bytecode, and all values that it names.

    Args:
      value: a loop, or a value that a loop names.
      names: names in the code, some of which may be attributes of a module.
      seen: ids of functions visited already, since loops call each other.

    Raises:
      TypeError: a value has no content that is equal in every process.
    """
    value = getattr(value, "_defn", getattr(value, "py_func", value))  # of an intrinsic; of njit
    yield type(value).__name__.encode()
    module = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    is_known = module.partition(".")[0] in _KNOWN_BY_NAME
    if isinstance(value, types.FunctionType) and not is_known:
        if id(value) in seen:
            return
        seen.add(id(value))
        yield module.encode()  # numba imports it when it loads cached code
        yield from _parts(value.__code__, names, seen)
        yield from _parts([cell.cell_contents for cell in value.__closure__ or ()], names, seen)
        own = _names(value.__code__)
        for name in sorted(own & value.__globals__.keys()):
            yield name.encode()
            yield from _parts(value.__globals__[name], own, seen)
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
            f"a compiled loop names {value!r}, a {type(value)}: use constants of its numbers"
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
        # numba finds cached code by this name and by the loop's file.
        function.__qualname__ = f"{function.__name__}-{_digest(function)}"
        while _inner:
            numba.extending.register_jitable(nogil=True)(_inner.pop())
        while _intrinsics:
            made = _intrinsics.pop()
            made.__globals__[made.__name__] = numba.extending.intrinsic(made)
        types_: list[Any] = [part(numba.types) if callable(part) else part for part in signature]
        try:
            return numba.njit(*types_, cache=True, nogil=True)(function)
        except RuntimeError:  # no cache directory is writable
            return numba.njit(*types_, nogil=True)(function)
