"""SQuAD's JSON, v1.1 and v2.0 -> documents, a question each.

A file is one JSON document of tens of megabytes, which is parsed as a whole. A question's fields
are its own, its paragraph's (context) and its article's (title). Arrow's parser takes a file that
has nothing odd; any other is gone through question by question. Both give the same documents.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.readers.documents import BOM, Documents, Role
from pipelines.readers.formats.json_lines import (
    SQUAD_ANSWERS,
    is_utf8,
    parse_objects,
    record_documents,
)
from pipelines.readers.formats.role_columns import missing_field, take_roles
from pipelines.readers.signatures import PEEKED, refuse_foreign
from pipelines.readers.source import Source
from pipelines.readers.stored import Chunks, Part, is_compressed
from schemas.errors import DataError, UsageError

FIELDS = ("answers", "context", "id", "is_impossible", "question", "title")
_STRUCTURE = {"data", "is_impossible", "paragraphs", "qas"}
_PEEK_BYTES = 1 << 16
_LOOK_BACK = 64  # bytes, for the colon before a null
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
    for role in roles:
        if role.field not in FIELDS and not role.optional:
            raise UsageError(missing_field(role, path, FIELDS))


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
    documents = _plain_documents(data.removeprefix(BOM), roles, part.path)
    if documents is None:
        documents = _odd_documents(data.removeprefix(BOM), roles, part.path)
    yield replace(
        documents,
        source_bytes=len(data),
        stored_bytes=chunks.new_bytes(),
        digests=chunks.digests(),
    )


def _plain_documents(data: bytes, roles: tuple[Role, ...], path: str) -> Documents | None:
    """The documents of a file in which nothing is odd, a column at a time; else None."""
    fields = {role.field for role in roles}
    is_plain = not any("." in field for field in fields) and not fields & _STRUCTURE
    if not is_plain or _may_hold_null(data) or not is_utf8(data):
        return None
    batch = parse_objects(data, _schema(roles))
    if batch is None or len(batch) != 1 or batch["data"].null_count:
        return None
    questions = _flat(batch["data"].flatten(), roles)
    if questions is None:
        return None
    documents = take_roles(questions, roles, path, 0, source_bytes=len(data))
    return None if documents.rejects else documents


def _may_hold_null(data: bytes) -> bool:
    """Whether a field is null, which hides the same field further out as one not there does not."""
    place = -1
    while (place := data.find(b"null", place + 1)) >= 0:
        before = data[max(place - _LOOK_BACK, 0) : place].rstrip()
        if not before or before.endswith(b":"):
            return True
    return False


def _schema(roles: tuple[Role, ...]) -> pa.Schema:
    """Any of the roles' fields may stand with articles, paragraphs or questions."""
    fields = {role.field: pa.large_string() for role in roles if role.kind != "answers"}
    fields |= {role.field: SQUAD_ANSWERS for role in roles if role.kind == "answers"}
    fields["is_impossible"] = pa.bool_()
    inner = list(fields.items())
    question = pa.struct(inner)
    paragraph = pa.struct([*inner, ("qas", pa.list_(question))])
    article = pa.struct([*inner, ("paragraphs", pa.list_(paragraph))])
    return pa.schema([("data", pa.list_(article))])


def _flat(articles: pa.StructArray, roles: tuple[Role, ...]) -> pa.RecordBatch | None:
    """The roles' fields of all questions; None if one of them stands here for some, there for all.

    Nulls are of what is not there: the file holds none.
    """
    paragraphs_A = articles.field("paragraphs")
    paragraphs = paragraphs_A.flatten()
    questions_P = paragraphs.field("qas")
    questions = questions_P.flatten()
    whole = articles, paragraphs_A, paragraphs, questions_P, questions
    outside = [side.field("is_impossible") for side in (articles, paragraphs)]
    if any(side.null_count for side in whole) or any(s.null_count < len(s) for s in outside):
        return None
    paragraph_Q = np.repeat(np.arange(len(paragraphs)), _lengths(questions_P))
    article_Q = np.repeat(np.arange(len(articles)), _lengths(paragraphs_A))[paragraph_Q]
    is_impossible = questions.field("is_impossible").fill_null(False)
    columns: dict[str, pa.Array] = {}
    for role in roles:
        own = questions.field(role.field)
        if role.field == "answers" and own.type == SQUAD_ANSWERS and is_impossible.true_count:
            own = pc.if_else(is_impossible, pa.scalar([], own.type), own)  # pyright: ignore[reportAttributeAccessIssue]
        column = own
        for side, side_Q in ((paragraphs, paragraph_Q), (articles, article_Q)):
            if column.null_count == len(column):
                column = side.field(role.field).take(pa.array(side_Q))
        if column.null_count and not (role.optional and column.null_count == len(column)):
            return None
        columns[role.field] = column
    return pa.record_batch(columns)


def _lengths(lists: pa.ListArray) -> np.ndarray:
    return pc.list_value_length(lists).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]


def _odd_documents(data: bytes, roles: tuple[Role, ...], path: str) -> Documents:
    """The documents of any file, with a reason for each question that is refused."""
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
