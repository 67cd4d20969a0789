"""Textmill's modules in memory, each of which should be there once for its file.

Also a filter for build_corpus, which reports them from a worker. Needs no other module of `tests`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDERS = ("textmill", "pipelines", "schemas", "trainers", "tests")


def loaded_from() -> dict[str, list[str]]:
    """File -> the names of the modules that were loaded from it; of one module, the first name."""
    import textmill

    root = Path(textmill.__file__).parents[1].resolve()
    modules: dict[int, tuple[str, str]] = {}
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/").resolve()
        if file.is_relative_to(root) and file.relative_to(root).parts[0] in FOLDERS:
            modules.setdefault(id(module), (str(file), name))
    found: dict[str, list[str]] = {}
    for file, name in modules.values():
        found.setdefault(file, []).append(name)
    return found


def loaded_twice() -> list[list[str]]:
    """The names of modules that have their file in common."""
    return [names for names in loaded_from().values() if len(names) > 1]


def report() -> None:
    """Writes what this process has loaded into the folder that SEEN names."""
    main: Any = sys.modules["__main__"].__spec__
    seen = {"main": main.name if main else "", "twice": loaded_twice(), "files": [*loaded_from()]}
    path = Path(os.environ["SEEN"]) / f"{os.getpid()}.json"
    path.write_text(json.dumps(seen))


def keep(document: dict[str, Any]) -> None:
    """A filter that keeps all documents, and reports from the process that calls it."""
    report()
