"""JSON Lines -> documents.

Arrow's parser takes a block of lines that has nothing to refuse; any other is gone through line by
line, so that every refused line has its place and its reason. Both give the same documents.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from pipelines.readers.documents import (
    ANSWERS,
    BOM,
    MAX_DOCUMENT_BYTES,
    Documents,
    Reject,
    Role,
    batch_of,
    find_lines,
    too_long,
)
from pipelines.readers.formats import byte_ranges
from pipelines.readers.formats.byte_ranges import Parser
from pipelines.readers.formats.role_columns import UNEVEN, column_of, json_text, take_roles
from pipelines.readers.source import Source
from pipelines.readers.stored import Part

_SQUAD_ANSWERS = pa.list_(pa.struct([("text", pa.large_string()), ("answer_start", pa.int64())]))
_PEEKED = 50  # lines that are looked at for the types of fields
_OPEN, _CLOSE = b"{}"
_Refusal = tuple[str, str]  # reason, detail
_TOO_DEEP = "too_deep"
_MOST_DIGITS = 4000  # of a whole number; Python refuses more than 4,300, which take quadratic time


def check_roles(roles: tuple[Role, ...], path: str) -> None:
    """Refuses nothing: which fields there are is seen object by object."""


def read(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    """The documents that start in a part."""
    roles, longest = source.roles, source.max_document_bytes

    def parse(data: bytes | memoryview, offset: int) -> Documents:
        return json_documents(bytes(data), roles, part.path, offset, longest=longest)

    parser = Parser("line", parse, roles, longest)
    return byte_ranges.read_bytes(raw, part, parser, source.block_bytes)


def json_documents(
    data: bytes,
    roles: tuple[Role, ...],
    path: str,
    offset: int,
    *,
    longest: int = MAX_DOCUMENT_BYTES,
) -> Documents:
    """Takes the roles' fields of each object.

    Args:
      data: whole lines.
      roles: what to take; the first is a string.
      path: for the places of refused documents.
      offset: of `data` in the file; at 0 a byte order mark is skipped.
      longest: bytes of a line; a longer one is refused.
    """
    skip = len(BOM) if offset == 0 and data.startswith(BOM) else 0
    starts, stops = find_lines(np.frombuffer(data, np.uint8), skip)
    is_long = stops - starts > longest
    if len(starts) and not is_long.any():
        documents = _arrow_json(data, starts, stops, roles, path)
        if documents is not None:
            return replace(documents, offsets=offset + starts[documents.offsets])
    rejects = [too_long(path, offset + start, longest) for start in starts[is_long].tolist()]
    lines = zip(starts[~is_long].tolist(), stops[~is_long].tolist(), strict=True)
    records = ((offset + start, data[start:stop]) for start, stop in lines)
    documents = record_documents(
        ((place, *_parse_line(line, roles)) for place, line in records if line.strip()),
        roles,
        path,
        source_bytes=len(data),
    )
    return replace(documents, rejects=(*rejects, *documents.rejects)) if rejects else documents


def record_documents(
    records: Iterable[tuple[int, dict[str, Any], _Refusal | None]],
    roles: tuple[Role, ...],
    path: str,
    *,
    source_bytes: int,
) -> Documents:
    """Documents of parsed records.

    Args:
      records: place, fields, and why the record is refused anyhow, if it is.
      roles: what to take.
      path: for the places of refused documents.
      source_bytes: of all the records.
    """
    columns: list[list] = [[] for _ in roles]
    offsets: list[int] = []
    rejects: list[Reject] = []
    empty = 0
    for place, record, refusal in records:
        values: list[Any] = []
        for role in roles if refusal is None else ():
            value = role_value(record, role)
            if isinstance(value, tuple):
                refusal = value
                break
            values.append(value)
            if not values[0]:
                break
        if refusal is not None:
            rejects.append(Reject(path, place, *refusal))
        elif not values[0]:
            empty += 1
        else:
            offsets.append(place)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    taken = batch_of([pa.array(c, r.type) for c, r in zip(columns, roles, strict=True)], roles)
    at = np.array(offsets, np.int64)
    return Documents(taken, empty, tuple(rejects), source_bytes, offsets=at)


def role_value(record: dict[str, Any], role: Role) -> str | list[dict[str, Any]] | _Refusal:
    """A record's value for a role as its column holds it, or why it is refused."""
    value, there = _look_up(record, role.field)
    if value is None and role.type == ANSWERS and there:
        return []
    if value is None or (value == "" and role.values.is_name):
        if role.optional:
            return role.values.nothing
        fields = ", ".join(sorted(record)) or "none"
        if there:
            what = "null" if value is None else "empty"
            return "missing_field", f"field {role.field!r} is {what}; fields there: {fields}"
        return "missing_field", f"no field {role.field!r}; fields there: {fields}"
    if role.type == ANSWERS:
        return _answers_of(value, role.field)
    if role.values.is_json:
        value = json_text(value)
    elif role.values.is_name and isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return role.values.refusal, f"field {role.field!r} is a {type(value).__name__}"
    return _surrogate(value, role.field) or value


def _look_up(record: dict[str, Any], field: str) -> tuple[Any, bool]:
    """The value of a field, which may be `a.b`, and whether it is there at all."""
    if record.get(field) is not None or "." not in field:
        return record.get(field), field in record
    inner: Any = record
    for step in field.split("."):
        if not isinstance(inner, dict) or step not in inner:
            return None, field in record
        inner = inner[step]
    return inner, True


def _surrogate(text: str, field: str) -> _Refusal | None:
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"field {field!r}, character {error.start}: {error.reason}"
        return "lone_surrogate", detail
    return None


def _answers_of(value: Any, field: str) -> list[dict[str, Any]] | _Refusal:
    """Answers in any accepted form as [{"text": ..., "start": ...}]."""
    if isinstance(value, list) and (plain := _plain_answers(value)) is not None:
        return plain
    refusal = "not_answers", f"field {field!r} holds no answers: give strings or text, answer_start"
    starts: list[Any] | None = None
    if isinstance(value, str):
        texts = [value] if value else []
    elif isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
        texts = [item.get("text") for item in value]
        starts = [item.get("answer_start") for item in value]
    else:
        texts = value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return refusal
    if starts is None:
        starts = [None] * len(texts)
    if not isinstance(starts, list) or not all(s is None or type(s) is int for s in starts):
        return refusal
    if len(starts) != len(texts):
        return "not_answers", f"field {field!r}: {UNEVEN}"
    for text in texts:
        if bad := _surrogate(text, field):
            return bad
    if not all(start is None or -(1 << 63) <= start < 1 << 63 for start in starts):
        return refusal
    return [
        {"text": text, "start": -1 if start is None else start}
        for text, start in zip(texts, starts, strict=True)
    ]


def _plain_answers(answers: list[Any]) -> list[dict[str, Any]] | None:
    """Answers in SQuAD's form and in ASCII, as nearly all are; None if one of them is not."""
    plain = []
    for answer in answers:
        if type(answer) is not dict:
            return None
        text, start = answer.get("text"), answer.get("answer_start")
        if type(text) is not str or not text.isascii() or type(start) is not int:
            return None
        if not 0 <= start < 1 << 63:
            return None
        plain.append({"text": text, "start": start})
    return plain


def _parse_line(line: bytes, roles: tuple[Role, ...]) -> tuple[dict[str, Any], _Refusal | None]:
    """The object of a line, or why there is none; what nests too deep for Python, Arrow takes.

    So that a document is the same whatever stands beside it.
    """
    record, refusal = _object(line)
    if refusal is None or refusal[0] != _TOO_DEEP:
        return record, refusal
    line = line.strip()
    batch = _arrow_table(line, np.array([0]), np.array([len(line)]), roles)
    if batch is None:
        return {}, ("broken_json", refusal[1])
    return batch.to_pylist()[0], None


def _object(line: bytes) -> tuple[dict[str, Any], _Refusal | None]:
    """The object of a line, or why there is none."""
    try:
        record = json.loads(line.decode(), parse_int=_whole if len(line) > _MOST_DIGITS else None)
    except UnicodeDecodeError as error:
        return {}, ("not_utf8", f"byte {error.start} of the line: {error.reason}")
    except ValueError as error:
        return {}, ("broken_json", str(error))
    except RecursionError as error:
        return {}, (_TOO_DEEP, str(error))
    if not isinstance(record, dict):
        detail = f"the line holds {type(record).__name__}, not an object"
        return {}, ("not_an_object", detail)
    return record, None


def _whole(digits: str) -> int | float:
    """A whole number; one that no role can use is only as good as a float."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _arrow_json(
    data: bytes, starts: np.ndarray, stops: np.ndarray, roles: tuple[Role, ...], path: str
) -> Documents | None:
    """The documents of lines that are all plainly good; None if any is not."""
    batch = _arrow_table(data, starts, stops, roles) if _is_utf8(data) else None
    if batch is None:
        return None
    documents = take_roles(batch, roles, path, 0, source_bytes=len(data))
    return None if documents.rejects else documents


def _is_utf8(data: bytes) -> bool:
    """Whether all of it is, keys and other fields too: Arrow looks at what it takes alone."""
    bounds = pa.py_buffer(np.array([0, len(data)]))
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 1, [None, bounds, pa.py_buffer(data)]
    )
    try:
        whole.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _arrow_table(
    data: bytes, starts: np.ndarray, stops: np.ndarray, roles: tuple[Role, ...]
) -> pa.RecordBatch | None:
    """The roles' fields of lines, if each is an object that has them."""
    bytes_ = np.frombuffer(data, np.uint8)
    # With as many objects as lines, this makes each line one object: none goes over a line's end.
    if not (bytes_[starts] == _OPEN).all() or not (bytes_[stops - 1] == _CLOSE).all():
        return None
    schema = _explicit_schema(data, starts, stops, roles)
    if schema is None:
        return None
    batch = _parse_objects(memoryview(data)[int(starts[0]) :], schema)
    if batch is None or len(batch) != len(starts):
        return None
    for role in roles:
        column = column_of(batch, role.field)
        if column is None or (column.null_count and not role.optional):
            return None
        if pa.types.is_struct(column.type) and column.field(0).null_count > column.null_count:
            return None  # answers without text
    return batch


def _parse_objects(data: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch | None:
    """A row for each object in JSON text, by Arrow's parser; None if it finds fault with any.

    Args:
      data: valid UTF-8; objects with white space between them.
      schema: the fields to take, at any depth; one that an object lacks is null, others are passed.
    """
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    batches = table.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else None


def _explicit_schema(
    data: bytes, starts: np.ndarray, stops: np.ndarray, roles: tuple[Role, ...]
) -> pa.Schema | None:
    """Types of the roles' fields, by what the first lines hold; None if that is not plain."""
    tree: dict[str, Any] = {}
    for role in roles:
        found = pa.large_string()
        if not role.values.is_text:
            found = _peeked_type(data, starts, stops, role)
        if found is None:
            return None
        steps = role.field.split(".")
        for path in [[role.field], steps] if len(steps) > 1 else [steps]:
            node = tree
            for step in path[:-1]:
                node = node.setdefault(step, {})
                if not isinstance(node, dict):
                    return None
            if node.setdefault(path[-1], found) != found:
                return None
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(inner)) if isinstance(inner, dict) else inner)
        for name, inner in tree.items()
    ]


def _peeked_type(
    data: bytes, starts: np.ndarray, stops: np.ndarray, role: Role
) -> pa.DataType | None:
    for start, stop in zip(starts[:_PEEKED].tolist(), stops[:_PEEKED].tolist(), strict=True):
        record, refusal = _object(data[start:stop])
        if refusal:  # if it is Arrow's to refuse too, it will
            continue
        value, _ = _look_up(record, role.field)
        if value in (None, [], ""):
            continue
        return _arrow_type(value, role)
    return _SQUAD_ANSWERS if role.type == ANSWERS else pa.large_string()


def _arrow_type(value: Any, role: Role) -> pa.DataType | None:
    """The type of fields whose values look like this one; None if Arrow should not try."""
    if isinstance(value, str):
        return pa.large_string()
    if role.type != ANSWERS:
        return {bool: pa.bool_(), int: pa.int64()}.get(type(value))
    if isinstance(value, dict):
        texts, starts = pa.list_(pa.large_string()), pa.list_(pa.int64())
        return pa.struct([("text", texts), ("answer_start", starts)])
    if isinstance(value, list) and isinstance(value[0], str):
        return pa.list_(pa.large_string())
    if isinstance(value, list) and isinstance(value[0], dict):
        return _SQUAD_ANSWERS
    return None
