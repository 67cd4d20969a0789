"""Text files -> documents: a line, a paragraph or a file each."""

import os
from collections.abc import Iterator
from typing import BinaryIO

from pipelines.readers.documents import Documents, Role, text_documents
from pipelines.readers.formats import byte_ranges
from pipelines.readers.formats.byte_ranges import Parser
from pipelines.readers.source import Source
from pipelines.readers.stored import Part
from schemas.errors import UsageError


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Refuses roles that no text file has.

    Raises:
      UsageError: names the field.
    """
    for role in roles[1:]:
        if not role.values.is_folder and not role.optional:
            raise UsageError(
                f"{path} is a text file, which has no field {role.field!r} for the {role.name}: "
                "give JSON Lines, CSV, Parquet or another format with fields; if it is of one, say "
                "which with --input_format"
            )


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents that start in a part."""
    kind, label = source.text_document, folder_label(part.path)
    roles, longest = source.roles, source.max_document_bytes

    def parse(data: bytes | memoryview, offset: int) -> Documents:
        return text_documents(
            data, kind, part.path, offset, roles=roles, label=label, longest=longest
        )

    parser = Parser(kind, parse, roles, longest)
    return byte_ranges.read_bytes(raw, part, parser, source.block_bytes)


def folder_label(path: str) -> str:
    """What a text file's documents are labelled: `a/pos/1.txt` -> `pos`."""
    return os.path.basename(os.path.dirname(os.path.abspath(path)))
