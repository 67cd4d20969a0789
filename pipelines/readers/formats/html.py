"""HTML files -> documents, one for each page."""

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from pipelines.readers.documents import Documents, Role, no_documents, too_long
from pipelines.readers.formats.role_columns import check_names
from pipelines.readers.formats.role_values import record_documents
from pipelines.readers.html_text import UnusablePageError, read_page
from pipelines.readers.sources import Source
from pipelines.readers.stored import Chunks, Part

FIELDS = ("text", "title", "url")
_TYPE = "text/html"


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Checks that the fields of roles are those of HTML files: see `check_names`."""
    check_names(roles, path, FIELDS)


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The page of a file: its text, title and canonical URL; "" if it has none.

    Raises:
      DataError: the file is damaged.
    """
    chunks = Chunks(raw, part, source.block_bytes)
    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size <= source.max_document_bytes:  # the rest is only hashed
            pieces.append(chunk)
        else:
            pieces = []
    yield replace(
        _read_documents(b"".join(pieces), size, part.path, source),
        source_bytes=size,
        stored_bytes=chunks.new_bytes(),
        digests=chunks.digests(),
    )


def _read_documents(data: bytes, size: int, path: str, source: Source) -> Documents:
    nothing = no_documents(source.roles)
    if size > source.max_document_bytes:
        return replace(nothing, rejects=(too_long(path, 0, source.max_document_bytes),))
    try:
        page = read_page(data, _TYPE, source.html)
    except UnusablePageError as error:
        return replace(nothing, unusable={error.reason: 1})
    fields = {"text": page.text, "title": page.title, "url": page.url}
    return record_documents([(0, fields, None)], source.roles, path, source_bytes=size)
