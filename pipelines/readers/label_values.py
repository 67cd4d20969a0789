"""The labels that documents have, found before a run: the folders' names, or read from the inputs.

A set's class numbers stand in its contract, so they must be known before the first row is made.
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pipelines.host.arrow import pc
from pipelines.readers.documents import Role
from pipelines.readers.files import open_file
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.formats.text import folder_label
from pipelines.readers.sources import Block, Source, read_block
from pipelines.readers.stored import Part
from schemas.errors import DataError, UsageError

MOST = 1000
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SHOWN = 40  # characters of a label in an error


def find_labels(
    blocks: list[Block], source: Source, role: Role, say: Callable[[str], None]
) -> tuple[str, ...]:
    """All labels, in the order of their numbers.

    A folder of text files is a label; Hugging Face's files name theirs, which keep their numbers if
    all files have the same; of others the column of labels is read, which it says.

    Args:
      blocks: all inputs.
      source: how they are read.
      role: of kind label.
      say: prints a line.

    Raises:
      UsageError: there are more than MOST, which no label has.
      DataError: there are none.
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
            f"the classes are not given (--classes=a,b): reading field {role.field!r} of all "
            f"documents first"
        )
        to_read = [_only(block, known) for block in blocks]
        labels |= _read([block for block in to_read if block.parts], source, role)
    if len(labels) > MOST:
        raise _too_many(labels, role)
    if not labels:
        raise DataError(f"no document has a label: field {role.field!r} is empty in all of them")
    found = tuple(in_order(labels))
    say(f"{len(found):,} classes: {', '.join(found[:10])}{', ...' * (len(found) > 10)}")
    return found


def in_order(labels: Iterable[str]) -> list[str]:
    """Sorted, numbers by their value: ["neg", "pos"], and ["2", "10"]."""
    labels = list(labels)
    if all(_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _find_known(part: Part, role: Role) -> tuple[str, ...] | None:
    """All labels that a file's documents can have, if that is known without reading them."""
    row = FORMATS[part.format]
    if row.labels == "folder":
        return (folder_label(part.path),)
    if row.labels != "stored":
        return None
    with open_file(part.path) as raw:
        names = row.module.stored_classes(raw, part).get(role.field)
    return None if names is None else tuple(names)


def _only(block: Block, known: dict[str, tuple[str, ...] | None]) -> Block:
    return replace(block, parts=tuple(part for part in block.parts if known[part.path] is None))


def _read(blocks: list[Block], source: Source, role: Role) -> set[str]:
    source = replace(source, roles=(role,))

    def labels_of(block: Block) -> set[str]:
        found: set[str] = set()
        for documents in read_block(block, source):
            values = pc.unique(documents.columns[role.name])
            found.update(values.to_pylist())
            if len(found) > MOST:
                raise _too_many(found, role)
        return found

    labels: set[str] = set()
    with ThreadPoolExecutor() as threads:
        try:
            for found in threads.map(labels_of, blocks):
                labels |= found
                if len(labels) > MOST:
                    raise _too_many(labels, role)
        except BaseException:  # a mistake of the user's, or Ctrl-C: the rest need not be read
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return labels


def _too_many(labels: set[str], role: Role) -> UsageError:
    longest = max(sorted(labels), key=len)
    shown = longest if len(longest) <= _SHOWN else longest[:_SHOWN] + "..."
    return UsageError(
        f"--{role.name}_field={role.field} looks like no label: it has more than {MOST:,} "
        f"different values, such as {shown!r}. Name the field that holds the label, or give all "
        "classes with --classes=a,b"
    )
