"""The names of commands: `python -m trainers.flax_mlm` runs textmill.trainers.flax_mlm.

The code is imported as textmill.pipelines, textmill.schemas and textmill.trainers only, so that a
user's own folders with these three names do no harm. Here the short names become other names of the
same modules: a file is never loaded twice.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import Any


def share_modules(package: str) -> None:
    """Makes a package that is imported by its short name, and its modules, those of textmill.

    `textmill.trainers` runs the same `__init__` file as `trainers`, and needs no other name.
    """
    if not package.startswith("textmill."):
        sys.meta_path.insert(0, _SharedModules(package))
        sys.modules[package] = importlib.import_module(f"textmill.{package}")
    # While Python looks for the module of `-m`; other programs and notebooks keep their traceback.
    if sys.argv[:1] == ["-m"]:
        from textmill.schemas.commands.entry import report_missing_packages, rest_idle_threads

        rest_idle_threads()
        report_missing_packages()


def is_hidden(package: str) -> bool:
    """Whether `python -m` finds another package of a short name before ours.

    A user's folder hides ours if it has an `__init__.py`. Without one it may be part of a namespace
    package, so Python looks on and finds ours.
    """
    found = PathFinder.find_spec(package, ["", *sys.path])
    if found is None or found.origin is None:
        return False
    ours = os.path.join(os.path.dirname(os.path.dirname(__file__)), package, "__init__.py")
    return os.path.realpath(found.origin) != os.path.realpath(ours)


class _SharedModules(MetaPathFinder, Loader):
    """Finds the modules of a short name; `trainers.reader` is `textmill.trainers.reader`."""

    def __init__(self, package: str):
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module that is in textmill's package, too."""
        if not fullname.startswith(self._prefix):
            return None
        found = importlib.util.find_spec(f"textmill.{fullname}")
        if found is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            found.origin,
            loader=self,
            submodule_search_locations=found.submodule_search_locations,
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Textmill's own module."""
        module = importlib.import_module(f"textmill.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Keeps the name of the module, which has run already."""
        spec: Any = module.__spec__
        module.__spec__ = spec.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that `python -m` runs as __main__."""
        spec = importlib.util.find_spec(f"textmill.{fullname}")
        loader: Any = spec and spec.loader
        return loader and loader.get_code(f"textmill.{fullname}")
