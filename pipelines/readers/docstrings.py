"""The corpus of the demo: Python's own documentation, which every computer with Python has."""

import ast
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

_LEAST_CHARACTERS = 40  # shorter docstrings say what their name says


def write_corpus(path: Path) -> tuple[int, int]:
    """Writes JSON Lines with `text` and `name`; returns their number and the file's size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {f"topic {name}": text for name, text in sorted(topics.topics.items())}
    texts |= dict(docstrings(Path(sysconfig.get_path("stdlib"))))
    documents = [
        {"name": name, "text": text.strip()}
        for name, text in texts.items()
        if len(text) >= _LEAST_CHARACTERS
    ]
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
    return len(documents), os.path.getsize(path)


def docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """(dotted name, docstring) of all source files below, read without importing any."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if {"site-packages", "test", "tests", "idlelib"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # a template, or written for another Python
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield ".".join((*parts, getattr(node, "name", ""))), text
