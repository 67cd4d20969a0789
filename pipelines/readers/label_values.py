"""Finds the labels of documents before a run: names of folders, or values of a field.

The schema of a dataset lists the classes, so they must be known before the first row is written.
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.files import open_file
from textmill.pipelines.readers.formats.table import FORMATS
from textmill.pipelines.readers.formats.text import folder_label
from textmill.pipelines.readers.sources import Block, Source, read_block
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError, UsageError, flag

MOST = 1000
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SHOWN = 40  # characters shown of a label


def find_labels(
    blocks: list[Block], source: Source, role: Role, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Finds all labels, in the order of their numbers.

    Folders of text files are labels. Hugging Face files list their classes, which keep their
    numbers if all files have the same. For other files, the field is read in all documents.

    Raises:
      UsageError: there are more than MOST labels.
      DataError: no document has a label.
    """
    known: dict[str, tuple[str, ...] | None] = {}
    for part in (part for block in blocks for part in block.parts):
        if part.path not in known:
            known[part.path] = _find_known(part, role)
    named = {names for names in known.values() if names is not None}
    unread = [path for path, names in known.items() if names is None]
    if len(named) == 1 and not unread:
        return next(iter(named))
    labels = {name for names in named for name in names}
    if unread:
        say(
            f"reading field {role.field!r} of all documents to find the classes; "
            f"{flag('classes', 'a,b')} would save this"
        )
        to_read = [
            replace(block, parts=tuple(part for part in block.parts if known[part.path] is None))
            for block in blocks
        ]
        labels |= _read([block for block in to_read if block.parts], source, role)
    _refuse_many(labels, role)
    if not labels:
        raise DataError(f"no document has a label: field {role.field!r} is empty in all of them")
    classes = tuple(sort_labels(labels))
    say(f"{len(classes):,} classes: {', '.join(classes[:10])}{', ...' * (len(classes) > 10)}")
    return classes


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Sorts labels; numbers by value: ["neg", "pos"], and ["2", "10"]."""
    labels = list(labels)
    if all(_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _find_known(part: Part, role: Role) -> tuple[str, ...] | None:
    """All labels of a file's documents; None if the documents must be read."""
    row = FORMATS[part.format]
    if row.labels == "folder":
        return (folder_label(part.path),)
    if row.labels != "stored":
        return None
    with open_file(part.path) as raw:
        names = row.module.stored_classes(raw, part).get(role.field)
    return None if names is None else tuple(names)


def _read(blocks: list[Block], source: Source, role: Role) -> set[str]:
    source = replace(source, roles=(role,))

    def labels_of(block: Block) -> set[str]:
        own: set[str] = set()
        for documents in read_block(block, source):
            own.update(pc.unique(documents.columns[role.name]).to_pylist())
            _refuse_many(own, role)
        return own

    labels: set[str] = set()
    with ThreadPoolExecutor() as threads:
        try:
            for own in threads.map(labels_of, blocks):
                labels |= own
                _refuse_many(labels, role)
        except BaseException:  # includes Ctrl-C: do not read the rest
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return labels


def _refuse_many(labels: set[str], role: Role) -> None:
    if len(labels) > MOST:
        longest = max(sorted(labels), key=len)
        shown = longest if len(longest) <= _SHOWN else longest[:_SHOWN] + "..."
        raise UsageError(
            f"{flag(f'{role.name}_field', role.field)} is probably no label: it has more than "
            f"{MOST:,} different values, such as {shown!r}; name the field with the label, or "
            f"list all classes with {flag('classes', 'a,b')}"
        )
