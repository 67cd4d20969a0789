"""JSON Lines -> documents.

A block in which all lines are good is parsed as a whole: by `json_texts` if only texts are wanted,
else by Arrow. Other blocks are parsed line by line in Python, so that every rejected line has its
position and reason. All give the same documents.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from textmill.pipelines.readers.documents import (
    ANSWERS,
    BOM,
    MAX_DOCUMENT_BYTES,
    Documents,
    Role,
    find_lines,
    is_utf8,
    too_long,
)
from textmill.pipelines.readers.formats.json_texts import read_texts
from textmill.pipelines.readers.formats.role_columns import column_of, take_roles
from textmill.pipelines.readers.formats.role_values import Refusal, look_up, record_documents
from textmill.pipelines.readers.formats.text import LineEnds, read_runs
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Part

_SQUAD_ANSWERS = pa.list_(pa.struct([("text", pa.large_string()), ("answer_start", pa.int64())]))
_PEEKED = 50  # lines from which the types of fields are inferred
_OPEN, _CLOSE = b"{}"
_TOO_DEEP = "too_deep"
_MOST_DIGITS = 4000  # digits of an integer; Python rejects more than 4,300, in quadratic time


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Accepts all roles: each line has its own fields, which are checked when it is read."""


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents that start in a part."""
    roles, longest = source.roles, source.max_document_bytes
    for run in read_runs(raw, part, source, LineEnds()):
        if run.data is None:
            documents = run.refuse(part.path, source)
        else:
            documents = json_documents(run.data, roles, part.path, run.offset, longest=longest)
        yield run.account(documents)


def json_documents(
    data: bytes | memoryview,
    roles: tuple[Role, ...],
    path: str,
    offset: int,
    *,
    longest: int = MAX_DOCUMENT_BYTES,
) -> Documents:
    """Reads the roles' fields from each line of `data`, which begins at `offset` in the file."""
    skip = len(BOM) if offset == 0 and data[: len(BOM)] == BOM else 0
    starts, stops = find_lines(np.frombuffer(data, np.uint8), skip)
    is_long = stops - starts > longest
    if len(starts) and not is_long.any():
        documents = _good_lines(data, starts, stops, roles, path)
        if documents is not None:
            return replace(documents, offsets=offset + starts[documents.offsets])
    rejects = [too_long(path, offset + start, longest) for start in starts[is_long].tolist()]
    lines = zip(starts[~is_long].tolist(), stops[~is_long].tolist(), strict=True)
    records = ((offset + start, bytes(data[start:stop])) for start, stop in lines)
    documents = record_documents(
        ((place, *_parse_line(line, roles)) for place, line in records if line.strip()),
        roles,
        path,
        source_bytes=len(data),
    )
    return replace(documents, rejects=(*rejects, *documents.rejects)) if rejects else documents


def _parse_line(line: bytes, roles: tuple[Role, ...]) -> tuple[dict[str, Any], Refusal | None]:
    """The JSON object of a line, or the reason for which it is rejected.

    Arrow parses lines that are nested too deep for Python, so that a document does not depend on
    the lines around it.
    """
    record, refusal = _object(line)
    if refusal is None or refusal[0] != _TOO_DEEP:
        return record, refusal
    line = line.strip()
    batch = _arrow_table(line, np.array([0]), np.array([len(line)]), roles)
    if batch is None:
        return {}, ("broken_json", refusal[1])
    return batch.to_pylist()[0], None


def _object(line: bytes) -> tuple[dict[str, Any], Refusal | None]:
    """The JSON object of a line, or the reason for which it is rejected."""
    try:
        record = json.loads(line.decode(), parse_int=_whole if len(line) > _MOST_DIGITS else None)
    except UnicodeDecodeError as error:
        return {}, ("not_utf8", f"byte {error.start} of the line: {error.reason}")
    except ValueError as error:
        return {}, ("broken_json", str(error))
    except RecursionError as error:
        return {}, (_TOO_DEEP, str(error))
    if not isinstance(record, dict):
        detail = f"the line is a {type(record).__name__}, not an object"
        return {}, ("not_an_object", detail)
    return record, None


def _whole(digits: str) -> int | float:
    """An integer; a float if it has too many digits for any role."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _good_lines(
    data: bytes | memoryview,
    starts: np.ndarray,
    stops: np.ndarray,
    roles: tuple[Role, ...],
    path: str,
) -> Documents | None:
    """The documents of lines that are all good; None if one may not be."""
    if not is_utf8(data):  # parsers check it only in the fields that they read
        return None
    fields = {role.field for role in roles}
    # `read_texts` refuses escapes of lone surrogates, which Arrow writes.
    has_texts_only = all(role.values.is_text and "." not in role.field for role in roles)
    if has_texts_only:
        batch = read_texts(np.frombuffer(data, np.uint8), starts, stops, sorted(fields))
    else:
        batch = _arrow_table(data, starts, stops, roles)
    if batch is None or not all(_has_values(batch, role) for role in roles):
        return None
    documents = take_roles(batch, roles, path, 0, source_bytes=len(data), is_utf8=has_texts_only)
    return None if documents.rejects else documents


def _has_values(batch: pa.RecordBatch, role: Role) -> bool:
    """Whether each row has a value of a role, unless the role is optional."""
    column = column_of(batch, role.field)
    if column is None or (column.null_count and not role.optional):
        return False
    # Answers without text are not values.
    return not pa.types.is_struct(column.type) or column.field(0).null_count <= column.null_count


def _arrow_table(
    data: bytes | memoryview, starts: np.ndarray, stops: np.ndarray, roles: tuple[Role, ...]
) -> pa.RecordBatch | None:
    """A row of the roles' fields for each line of valid UTF-8; None if Arrow rejects a line.

    Missing fields are null, at any depth.
    """
    bytes_ = np.frombuffer(data, np.uint8)
    # If there are as many objects as lines, each line is one object.
    if not (bytes_[starts] == _OPEN).all() or not (bytes_[stops - 1] == _CLOSE).all():
        return None
    lines = zip(starts[:_PEEKED].tolist(), stops[:_PEEKED].tolist(), strict=True)
    has_texts_only = all(role.values.is_text for role in roles)
    peeked = (
        [] if has_texts_only else [_object(bytes(data[start:stop]))[0] for start, stop in lines]
    )
    try:
        table = pj.read_json(
            pa.BufferReader(memoryview(data)[int(starts[0]) :]),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=_explicit_schema(peeked, roles), unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1 or len(batches[0]) != len(starts):
        return None
    return batches[0]


def _explicit_schema(peeked: list[dict[str, Any]], roles: tuple[Role, ...]) -> pa.Schema:
    """A schema of the roles' fields, with types of some objects; raises ArrowTypeError."""
    schemas: list[pa.Schema] = []
    for role in roles:
        values = (look_up(record, role.field) for record in peeked)
        kind = _arrow_type(next((v for v in values if v not in (None, [], "")), None), role)
        for *outer, name in {(role.field,), tuple(role.field.split("."))}:
            field = pa.field(name, kind)
            for step in reversed(outer):
                field = pa.field(step, pa.struct([field]))
            schemas.append(pa.schema([field]))
    return pa.unify_schemas(schemas, promote_options="permissive")


def _arrow_type(value: Any, role: Role) -> pa.DataType:
    """The type of a role's field by one of its values, which may be None."""
    if role.values.is_text or isinstance(value, str):
        return pa.large_string()
    if role.type == ANSWERS and (value is None or isinstance(value, list)):
        is_plain = value is not None and isinstance(value[0], str)
        return pa.list_(pa.large_string()) if is_plain else _SQUAD_ANSWERS
    if role.type == ANSWERS and isinstance(value, dict):
        texts, starts = pa.list_(pa.large_string()), pa.list_(pa.int64())
        return pa.struct([("text", texts), ("answer_start", starts)])
    kind = {type(None): pa.large_string(), bool: pa.bool_(), int: pa.int64()}.get(type(value))
    if kind is None or role.type == ANSWERS:
        raise pa.ArrowTypeError(f"{value!r:.40} fits no type of a column")
    return kind
