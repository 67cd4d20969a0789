"""WARC and WET -> documents: pages that a crawler fetched, or text that it extracted.

A record has its length, and the next record must follow; anything else is damage and an error,
where other readers skip to the next record that they recognize. Documents are responses with status
200 and a page or plain text, and conversions. Other responses are counted by reason; records of
other types are ignored. Offsets are numbers of records of any type, from 0.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from textmill.pipelines.readers.documents import Documents, too_long
from textmill.pipelines.readers.encodings import is_binary
from textmill.pipelines.readers.formats.role_columns import check_names
from textmill.pipelines.readers.formats.role_values import Refusal, record_documents
from textmill.pipelines.readers.html_text import Extraction, UnusablePageError, may_be_page
from textmill.pipelines.readers.http_body import BODY_CUT, RESPONSES, decode_body, find_head_end
from textmill.pipelines.readers.page_hosts import WebPage
from textmill.pipelines.readers.page_rights import LISTS, RIGHTS, rights_fields
from textmill.pipelines.readers.pages import convert_pages
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import PEEKED, Chunks, Part, refuse_foreign
from textmill.schemas.errors import DataError

FIELDS = ("content_type", "date", "id", "text", "title", "url", *RIGHTS)
check_roles = partial(check_names, names=FIELDS)
_MARK = b"WARC/"
_BREAK = b"\r\n"
_CHUNK_BYTES = 1 << 20  # a few records
_LONGEST_HEAD = 1 << 16  # maximum bytes of the headers of a record, and of a response
_FOLD = re.compile(rb"(?<!\r)\r*+\n[ \t]++")  # between the lines of a value
_STATUS = 64  # first bytes of a response, with its status

_BATCH_BYTES = 1 << 20  # of pages that are converted at once
_BATCH = 64  # records

Headers = dict[str, str]  # name in lower case -> value
# Number, fields and refusal of a record. Before its conversion, a page is the field "page".
Record = tuple[int, dict[str, Any], Refusal | None]


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents of a file, in pieces of about `source.block_bytes` of content.

    Raises:
      DataError: the file is damaged, or is not a WARC file.
    """
    chunks = Chunks(raw, part, min(source.block_bytes, _CHUNK_BYTES))
    content = _Content(chunks, part.path)
    if content.peek(len(_MARK)) != _MARK:
        refuse_foreign(content.peek(PEEKED), part.path)
    records: list[Record] = []
    batch: list[Record] = []
    unusable, began = Counter[str](), 0
    responses = content.responses
    judged: list[tuple[int, WebPage]] = []  # pages whose main text was extracted, by record

    def convert() -> None:
        pages, reasons = _convert(batch, source.extraction)
        records.extend(record for record in batch if "page" not in record[1])
        judged.extend(pages if source.extraction.html != "all" else ())
        unusable.update(reasons)
        batch.clear()

    def documents() -> Documents:
        convert()
        size = content.place - began
        found = record_documents(records, source.roles, part.path, source_bytes=size)
        numbers = dict(zip(found.offsets.tolist(), range(len(found.offsets)), strict=True))
        pages = (page._replace(document=numbers.get(place, -1)) for place, page in judged)
        observed = {RESPONSES: dict(responses)} if responses else {}
        counts = {"unusable": dict(unusable), "observed": observed, "pages": tuple(pages)}
        for done in (records, unusable, responses, judged):
            done.clear()
        return replace(found, stored_bytes=chunks.new_bytes(), **counts)

    waiting = 0  # bytes of pages in the batch
    for headers, length in _read_records(content):
        try:
            if record := _read_fields(headers, length, content, source):
                batch.append(record)
                waiting += len(record[1].get("page", b""))
        except UnusablePageError as error:
            unusable[error.reason] += 1
        if waiting >= _BATCH_BYTES or len(batch) == _BATCH:
            convert()
            waiting = 0
        if content.place - began >= source.block_bytes:
            yield documents()
            began = content.place
    yield replace(documents(), digests=chunks.digests())


def _convert(
    batch: list[Record], extraction: Extraction
) -> tuple[list[tuple[int, WebPage]], list[str]]:
    """Replaces pages in records by their texts.

    Returns the pages by record, and the reasons of those without text, which stay as they are.
    """
    pages = [(place, fields) for place, fields, _ in batch if "page" in fields]
    found, reasons = [], []
    contents = [(fields["page"], fields["content_type"]) for _, fields in pages]
    converted = convert_pages(contents, extraction)
    for (place, fields), page in zip(pages, converted, strict=True):
        if isinstance(page, UnusablePageError):
            reasons.append(page.reason)
        else:
            fields.update(text=page.text, title=page.title)
            if extraction.rights:
                fields.update(rights_fields(page.rights, fields["headers"]))
            found.append((place, WebPage.of(fields["url"], page)))
            del fields["page"], fields["headers"]
    return found, reasons


class _Content:
    """The content of a file, read from the start; holds only what callers request."""

    def __init__(self, chunks: Chunks, path: str):
        self._chunks, self.path = iter(chunks), path
        self._data, self._at = b"", 0
        self.place = 0  # offset of the next byte
        self.record = 0  # number of the current record
        self.responses = Counter[str]()  # read since the last piece of documents, by their flaw

    def peek(self, size: int) -> bytes:
        """The next bytes, without consuming them; fewer at the end of the file."""
        pieces, have = [], len(self._data) - self._at
        while have < size and (chunk := next(self._chunks, b"")):
            pieces.append(chunk)
            have += len(chunk)
        if pieces:
            self._data, self._at = b"".join((self._data[self._at :], *pieces)), 0
        return self._data[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Consumes the next bytes; raises DataError if the file ends too early."""
        data = self.peek(size)
        if len(data) < size:
            raise self.damage("is cut off by the end of the file")
        self._at += size
        self.place += size
        return data

    def skip(self, size: int) -> None:
        """Skips bytes without holding them."""
        while size > 0:
            size -= len(self.take(min(size, max(len(self._data) - self._at, 1))))

    def skip_breaks(self) -> None:
        """Skips line ends."""
        while (head := self.peek(64)) and (breaks := len(head) - len(head.lstrip(_BREAK))):
            self.take(breaks)

    def damage(self, what: str) -> DataError:
        """The error about the current record."""
        return DataError(
            f"{self.path}: record {self.record:,}, at byte {self.place:,} of the content, {what}: "
            "the file is damaged or cut off; get it again; nothing was published"
        )


def _read_records(content: _Content) -> Iterator[tuple[Headers, int]]:
    """Yields headers and length of each record, then skips the content that was not consumed."""
    content.skip_breaks()
    while head := content.peek(len(_MARK)):
        if head != _MARK:
            raise content.damage(f"begins with {head!r}, not with {_MARK!r}")
        head = content.peek(_LONGEST_HEAD)
        size = find_head_end(head)
        if not size:
            raise content.damage("has headers without an end")
        headers = _parse_headers(content.take(size))
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > 18:
            raise content.damage(f"has the Content-Length {length!r:.60}")
        if not headers.get("warc-type"):
            raise content.damage("has no WARC-Type")
        stop = content.place + int(length)
        yield headers, int(length)
        content.skip(stop - content.place)
        content.skip_breaks()
        content.record += 1


def _parse_headers(head: bytes) -> Headers:
    """Names and values after the first line; of a repeated name the first, or the list of all."""
    headers: Headers = {}
    for line in _FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, colon, value = _decode(line).partition(":")
        if colon:
            name, value = name.strip().lower(), value.strip()
            if name in LISTS and name in headers:
                value = f"{headers.pop(name)}, {value}"
            headers.setdefault(name, value)
    return headers


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _read_fields(record: Headers, length: int, content: _Content, source: Source) -> Record | None:
    """The record as a document or page; None if it is neither."""
    kind = record["warc-type"].lower()
    if kind == "response":
        fields = _read_response(record, length, content, source)
    elif kind == "conversion":
        fields = _read_conversion(record.get("content-type", ""), length, content, source)
    else:
        return None
    if isinstance(fields, tuple):
        return content.record, {}, fields
    fields["url"] = record.get("warc-target-uri", "").strip("<>")
    fields["date"] = record.get("warc-date", "")
    fields["id"] = record.get("warc-record-id", "")
    return content.record, fields, None


def _read_conversion(
    kind: str, length: int, content: _Content, source: Source
) -> dict[str, Any] | Refusal:
    """The text that a crawler extracted from a page."""
    if not kind.lower().startswith("text/plain"):
        raise UnusablePageError("not_html")
    if length > source.max_document_bytes:
        return _too_long(source)
    try:
        text = content.take(length).decode()
    except UnicodeDecodeError as error:
        return "not_utf8", f"byte {error.start} of the text: {error.reason}"
    if is_binary(text):
        raise UnusablePageError("not_html")
    return {"text": text, "content_type": kind, "title": ""}


def _read_response(
    record: Headers, length: int, content: _Content, source: Source
) -> dict[str, Any] | Refusal:
    """The bytes of a page; raises UnusablePageError if the response is none."""
    head = content.peek(min(length, _LONGEST_HEAD))
    size = find_head_end(head) or (length if len(head) == length else 0)
    if not head.startswith(b"HTTP/") or not size:
        raise UnusablePageError("not_http")
    if head[:_STATUS].split()[1:2] != [b"200"]:
        raise UnusablePageError("http_status")
    headers = _parse_headers(head[:size])
    kind = headers.get("content-type", "")
    if not may_be_page(kind):
        raise UnusablePageError("not_html")
    if length > source.max_document_bytes:
        return _too_long(source)
    stored = content.take(length)[size:]
    payload, is_cut = decode_body(stored, headers, source.max_document_bytes)
    if is_cut or "warc-truncated" in record:
        content.responses[BODY_CUT] += 1
    if len(payload) > source.max_document_bytes:
        return _too_long(source)
    return {"page": payload, "content_type": kind, "headers": headers}


def _too_long(source: Source) -> Refusal:
    reject = too_long("", 0, source.max_document_bytes)
    return reject.reason, reject.detail
