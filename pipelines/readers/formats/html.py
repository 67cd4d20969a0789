"""HTML files -> documents, one for each page."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from textmill.pipelines.readers.compression import inner_extension
from textmill.pipelines.readers.documents import Documents, no_documents, too_long
from textmill.pipelines.readers.formats.role_columns import check_names
from textmill.pipelines.readers.formats.role_values import record_documents
from textmill.pipelines.readers.html_text import UnusablePageError, has_xml_declaration
from textmill.pipelines.readers.page_hosts import WebPage
from textmill.pipelines.readers.page_rights import RIGHTS, rights_fields
from textmill.pipelines.readers.pages import convert_pages
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Chunks, Part

_XML = (".xhtml", ".xht")
check_roles = partial(check_names, names=("text", "title", "url", *RIGHTS))


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The page of a file: its text, title, canonical URL and rights; "" if it has none.

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
    documents = no_documents(source.roles)
    if size > source.max_document_bytes:
        long = too_long(part.path, 0, source.max_document_bytes)
        documents = replace(documents, rejects=(long,))
    else:
        data = b"".join(pieces)
        is_xml = inner_extension(part.path) in _XML or has_xml_declaration(data)
        content_type = "application/xhtml+xml" if is_xml else "text/html"
        [page] = convert_pages([(data, content_type)], source.extraction)
        if isinstance(page, UnusablePageError):
            documents = replace(documents, unusable={page.reason: 1})
        else:
            fields = {"text": page.text, "title": page.title, "url": page.url}
            fields |= rights_fields(page.rights)
            records = [(0, fields, None)]
            documents = record_documents(records, source.roles, part.path, source_bytes=size)
            if source.extraction.html != "all":
                pages = (WebPage.of(page.url, page, 0 if len(documents.columns) else -1),)
                documents = replace(documents, pages=pages)
    counts = {"source_bytes": size, "stored_bytes": chunks.new_bytes()}
    yield replace(documents, **counts, digests=chunks.digests())
