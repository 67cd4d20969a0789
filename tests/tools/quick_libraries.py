"""Libraries that compute the same for every command of a process, which tests run by the hundred.

Each change here is a cache of a function without side effects. Where a library renames that
function, every test fails with an AttributeError.
"""

import functools
import weakref
from typing import Any

from tyro import _docstrings


def quicken_tyro() -> None:
    """It reads the source of a class of flags for each command line: half of parsing's 20 ms."""
    kind: Any = _docstrings._ClassTokenization
    kind.make = staticmethod(functools.cache(kind.make))


def quicken_beam() -> None:
    """It makes 260 parsers of flags for each pipeline: a quarter of 0.3 s."""
    # Beam takes a second, and tests of commands for tyro alone do not need it.
    from apache_beam.options import pipeline_options

    options_class: Any = pipeline_options.PipelineOptions
    views: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    view_as = options_class.view_as

    def view_once(options: Any, kind: type) -> Any:
        """Views of options share their values, however many there are."""
        known = views.setdefault(options, {})
        if kind not in known:
            known[kind] = view_as(options, kind)
        return known[kind]

    options_class.view_as = view_once
