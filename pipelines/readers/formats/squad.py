"""SQuAD's JSON, v1.1 and v2.0 -> documents, one for each question.

A file is one JSON document of tens of megabytes, which is parsed as a whole, at 30 MB/s. A question
has its own fields, those of its paragraph (context) and of its article (title).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from textmill.pipelines.readers.documents import BOM, Documents, Role
from textmill.pipelines.readers.formats.role_columns import check_names
from textmill.pipelines.readers.formats.role_values import record_documents
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Chunks, Part, refuse_foreign
from textmill.schemas.errors import DataError, UsageError, flag

FIELDS = ("answers", "context", "id", "is_impossible", "question", "title")
_PEEK_BYTES = 1 << 16
_LARGEST = 512 << 20  # SQuAD has 30 MB; a parsed file takes several times its size
_SIMPLE = rb'(?:"[^"\\]*"|[-+.\w]+)'
# {"version": "1.1", "data": [{ ... with "data" after any number of simple values.
_SQUAD = re.compile(
    rb'\s*\{\s*(?:"[^"\\]*"\s*:\s*' + _SIMPLE + rb'\s*,\s*)*"data"\s*:\s*\[\s*(?:[{\]]|\Z)'
)


def peek(raw: BinaryIO, part: Part) -> bool:
    """Whether a .json file is in SQuAD's format, not JSON Lines.

    Raises:
      DataError: it is one JSON array.
    """
    head = next(iter(Chunks(raw, part, _PEEK_BYTES)), b"").removeprefix(BOM)
    refuse_foreign(head, part.path)
    if head.lstrip()[:1] == b"[":
        raise DataError(
            f"{part.path} is one JSON array, which cannot be read in pieces: convert it to JSON "
            "Lines, jq -c '.[]' FILE.json > FILE.jsonl"
        )
    return _SQUAD.match(head) is not None


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Checks that the fields of roles are those of SQuAD files: see `check_names`."""
    try:
        check_names(roles, path, FIELDS)
    except UsageError as error:
        raise UsageError(
            f"{error}; it begins like SQuAD's JSON: give {flag('input_format', 'jsonl')} if it is "
            "JSON Lines"
        ) from error


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The questions of a file, as one piece; offsets of rejects are numbers of questions.

    Raises:
      DataError: the file is damaged, no JSON, or not in SQuAD's format.
    """
    chunks = Chunks(raw, part, source.block_bytes)
    pieces, size = [], 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > _LARGEST:
            raise DataError(
                f"{part.path} is larger than {_LARGEST:,} bytes, but SQuAD's JSON is parsed as a "
                "whole: split it into several files, or convert it to JSON Lines"
            )
    data, path = b"".join(pieces), part.path
    try:
        content = json.loads(data.removeprefix(BOM))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start:,}: convert it") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not complete JSON ({error}): get the file again") from error
    records = ((n, question, None) for n, question in enumerate(_questions(content, path)))
    documents = record_documents(records, source.roles, path, source_bytes=len(data))
    yield replace(documents, stored_bytes=chunks.new_bytes(), digests=chunks.digests())


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
    """The objects of a list inside an object, and the path of each."""
    items = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(items, list):
        raise DataError(f"{path} is not in SQuAD's format: no list {key!r} at {where}")
    for i, item in enumerate(items):
        at = f"{key}[{i}]" if where == "the top" else f"{where}.{key}[{i}]"
        if not isinstance(item, dict):
            raise DataError(f"{path} is not in SQuAD's format: {at} is not an object")
        yield item, at
