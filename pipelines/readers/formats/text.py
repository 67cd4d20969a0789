"""Text files -> documents; each is a line, a paragraph or a file."""

import os
from collections.abc import Iterator
from typing import BinaryIO

from pipelines.readers.documents import Documents, Role, text_documents, too_large
from pipelines.readers.formats.text_runs import ENDS, read_runs
from pipelines.readers.sources import Source
from pipelines.readers.stored import Part
from schemas.errors import UsageError


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Checks that roles need no field besides the text and the label.

    Raises:
      UsageError: a role needs a field; names it.
    """
    for role in roles[1:]:
        if not role.values.is_folder and not role.optional:
            raise UsageError(
                f"{path} is a text file, which has no field {role.field!r} for the {role.name}: "
                "give JSON Lines, CSV, Parquet or another format with fields, or the format of the "
                "file with --input_format"
            )


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents that start in a part.

    Raises:
      DataError: the file is too large for one document.
    """
    kind, label = source.document, folder_label(part.path)
    roles, longest = source.roles, source.max_document_bytes
    for run in read_runs(raw, part, source, ENDS[kind]()):
        if run.data is None:
            documents = run.refuse(part.path, source)
        else:
            documents = text_documents(
                run.data, kind, part.path, run.offset, roles=roles, label=label, longest=longest
            )
        if kind == "file" and not source.has_labels and "too_long" in documents.dropped:
            raise too_large(part.path, part.size, longest)
        yield run.account(documents)


def folder_label(path: str) -> str:
    """The label of a text file's documents: `a/pos/1.txt` -> `pos`."""
    return os.path.basename(os.path.dirname(os.path.abspath(path)))
