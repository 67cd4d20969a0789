"""Bytes that wait in scratch files until another worker takes them.

A worker writes all that it has at a time into one new file, and only (path, offset, length) travels
on: where shuffles hold all in memory, the parent process then holds kilobytes instead of a corpus.
"""

import os
import uuid
from dataclasses import dataclass

from pipelines.storage.store import is_url, read, write_file


@dataclass(frozen=True)
class Pointer:
    """Where bytes lie in a scratch file."""

    path: str
    offset: int
    length: int


def write_scratch(directory: str, values: list[bytes]) -> list[Pointer]:
    """Writes values into a new file; a retried block writes another, none is overwritten."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.blocks")
    pointers, offset = [], 0
    for value in values:
        pointers.append(Pointer(path, offset, len(value)))
        offset += len(value)
    if is_url(path):
        write_file(path, b"".join(values))
    else:
        with open(path, "xb") as file:
            file.writelines(values)
    return pointers


def load(value: bytes | Pointer) -> bytes:
    """The bytes themselves, read where a pointer leads."""
    if isinstance(value, bytes):
        return value
    return read(value.path, value.offset, value.length)
