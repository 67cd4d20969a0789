"""Bytes that one worker leaves in a file for another, and the pointers that the runner carries."""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from textmill.schemas.files.store import is_url, read, write_file


@dataclass(frozen=True)
class Pointer:
    """The position of bytes in a scratch file, from which another worker reads them.

    Only pointers pass through the runner, which may hold a whole shuffle in memory.
    """

    path: str
    offset: int
    length: int


def write_scratch(directory: str, values: Sequence[bytes | pa.Buffer]) -> list[Pointer]:
    """Writes values into a new file; a retried block writes another file."""
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
    """The bytes of a value; reads them if it is a pointer."""
    if isinstance(value, bytes):
        return value
    return read(value.path, value.offset, value.length)
