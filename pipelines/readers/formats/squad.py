"""SQuAD's JSON, v1.1 and v2.0 -> documents, a question each.

A file is one JSON document of tens of megabytes, which is parsed as a whole: 30 MB a second. A
question's fields are its own, its paragraph's (context) and its article's (title).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from pipelines.readers.documents import BOM, Documents, Role
from pipelines.readers.formats.role_columns import check_names
from pipelines.readers.formats.role_values import record_documents
from pipelines.readers.sources import Source
from pipelines.readers.stored import PEEKED, Chunks, Part, is_compressed, refuse_foreign
from schemas.errors import DataError

FIELDS = ("answers", "context", "id", "is_impossible", "question", "title")
_PEEK_BYTES = 1 << 16
_LARGEST = 512 << 20  # SQuAD has 30 MB; parsed, a file takes some times its size
_SIMPLE = rb'(?:"[^"\\]*"|[-+.\w]+)'
# {"version": "1.1", "data": [{ ... with "data" after any number of simple values.
_SQUAD = re.compile(
    rb'\s*\{\s*(?:"[^"\\]*"\s*:\s*' + _SIMPLE + rb'\s*,\s*)*"data"\s*:\s*\[\s*(?:[{\]]|\Z)'
)


def peek(raw: BinaryIO, part: Part) -> bool:
    """Whether a .json file is SQuAD's and not JSON Lines.

    Raises:
      DataError: it is one array.
    """
    head = next(iter(Chunks(raw, part, _PEEK_BYTES)), b"").removeprefix(BOM)
    refuse_foreign(head[:PEEKED], part.path, unpacked=is_compressed(part.path))
    if head.lstrip()[:1] == b"[":
        raise DataError(
            f"{part.path} is one JSON array, which cannot be read in pieces. Make JSON Lines of "
            f"it: jq -c '.[]' FILE.json > FILE.jsonl"
        )
    return _SQUAD.match(head) is not None


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Refuses roles whose fields no SQuAD file has.

    Raises:
      UsageError: names the field and those that are there.
    """
    check_names(roles, path, FIELDS)


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The questions of a file, as one piece; a refused one's place is its number in the file.

    Raises:
      DataError: it is damaged, no JSON, or not built as SQuAD is.
    """
    roles, chunk_bytes = source.roles, source.block_bytes
    chunks = Chunks(raw, part, chunk_bytes)
    pieces, size = [], 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > _LARGEST:
            raise DataError(
                f"{part.path} is larger than {_LARGEST:,} bytes, and SQuAD's JSON is parsed as a "
                "whole: cut it into several, or make JSON Lines of it"
            )
    data = b"".join(pieces)
    yield replace(
        _documents(data.removeprefix(BOM), roles, part.path),
        source_bytes=len(data),
        stored_bytes=chunks.new_bytes(),
        digests=chunks.digests(),
    )


def _documents(data: bytes, roles: tuple[Role, ...], path: str) -> Documents:
    """The documents of a file, with a reason for each question that is refused."""
    try:
        content = json.loads(data)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start:,}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not whole JSON ({error}): get the file again") from error
    records = (
        (number, question, None) for number, question in enumerate(_questions(content, path))
    )
    return record_documents(records, roles, path, source_bytes=len(data))


def _questions(content: Any, path: str) -> Iterator[dict[str, Any]]:
    for article, at in _objects(content, "data", path, "the top"):
        outer = {key: value for key, value in article.items() if key != "paragraphs"}
        for paragraph, at_paragraph in _objects(article, "paragraphs", path, at):
            inner = {key: value for key, value in paragraph.items() if key != "qas"}
            for question, _ in _objects(paragraph, "qas", path, at_paragraph):
                record = {**outer, **inner, **question}
                if record.get("is_impossible") is True:
                    record["answers"] = []
                yield record


def _objects(parent: Any, key: str, path: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a list inside an object, and where each is."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, list):
        raise DataError(f"{path} is not built as SQuAD is: no list {key!r} at {where}")
    for i, item in enumerate(found):
        at = f"{key}[{i}]" if where == "the top" else f"{where}.{key}[{i}]"
        if not isinstance(item, dict):
            raise DataError(f"{path} is not built as SQuAD is: {at} is no object")
        yield item, at
