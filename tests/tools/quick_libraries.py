"""Libraries that compute the same for every command of a process, which tests run by the hundred.

Each change here is a cache of a function without side effects. Where a library renames that
function, every test fails with an AttributeError.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

from tyro import _docstrings


def quicken_tyro() -> None:
    """It reads the source of a class of flags for each command line: half of parsing's 20 ms."""
    kind: Any = _docstrings._ClassTokenization
    kind.make = staticmethod(functools.cache(kind.make))


def quicken_beam() -> None:
    """It makes 260 parsers of flags and 3,700 signatures for each pipeline: a third of 0.3 s."""
    # Beam takes a second, and tests of commands for tyro alone do not need it.
    from apache_beam.options import pipeline_options
    from apache_beam.transforms import core
    from apache_beam.typehints import decorators

    options_class: Any = pipeline_options.PipelineOptions
    users: Any = (core, decorators)
    views: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    view_as = options_class.view_as

    def view_once(options: Any, kind: type) -> Any:
        """Views of options share their values, however many there are."""
        known = views.setdefault(options, {})
        if kind not in known:
            known[kind] = view_as(options, kind)
        return known[kind]

    options_class.view_as = view_once
    remembered = _once_a_function(decorators.get_signature)
    for user in users:
        assert hasattr(user, "get_signature")
        user.get_signature = remembered


def _once_a_function(signature_of: Callable) -> Callable:
    """Keeps the signatures of functions, and those of methods that are bound."""
    plain, bound = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()

    def signature_once(function: Any) -> inspect.Signature:
        known, key = plain, function
        if inspect.ismethod(function):
            known, key = bound, function.__func__
        try:
            return known[key]
        except (KeyError, TypeError):  # C's functions have no weak references
            signature = signature_of(function)
        if inspect.isfunction(key):
            known[key] = signature
        return signature

    return signature_once
