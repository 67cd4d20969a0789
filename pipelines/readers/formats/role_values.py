"""Records of Python values, such as parsed JSON -> documents, one value at a time. Pure."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import ANSWERS, Documents, Reject, Role, batch_of

Refusal = tuple[str, str]  # reason, detail
_START = "answer_start"
_BOUND = 1 << 63
_ABSENT = object()


def record_documents(
    records: Iterable[tuple[int, dict[str, Any], Refusal | None]],
    roles: tuple[Role, ...],
    path: str,
    *,
    source_bytes: int,
) -> Documents:
    """Documents of records: offset, fields, and a refusal if the record was rejected already."""
    columns: list[list] = [[] for _ in roles]
    offsets: list[int] = []
    rejects: list[Reject] = []
    empty = 0
    for place, record, refusal in records:
        values: list[Any] = []
        for role in roles if refusal is None else ():
            value = _role_value(record, role)
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


def _role_value(record: dict[str, Any], role: Role) -> str | list[dict[str, Any]] | Refusal:
    value = look_up(record, role.field, _ABSENT)
    if value is None and role.type == ANSWERS:
        return []
    if value is None or value is _ABSENT or (value == "" and role.values.is_name):
        if role.optional:
            return role.values.nothing
        fields = ", ".join(sorted(record)) or "none"
        if value is _ABSENT:
            return "missing_field", f"no field {role.field!r}; its fields: {fields}"
        what = "null" if value is None else "empty"
        return "missing_field", f"field {role.field!r} is {what}; its fields: {fields}"
    return convert_value(value, role)


def look_up(record: dict[str, Any], field: str, absent: Any = None) -> Any:
    """The value of a field, which may be `a.b`; `absent` if it is missing."""
    value = record.get(field, absent)
    if "." not in field or value not in (None, absent):
        return value
    inner: Any = record
    for step in field.split("."):
        if not isinstance(inner, dict) or step not in inner:
            return value
        inner = inner[step]
    return inner


def convert_value(value: Any, role: Role) -> str | list[dict[str, Any]] | Refusal:
    """Converts a value other than None to the type of the role's column, or rejects it."""
    if role.type == ANSWERS:
        return _convert_answers(value, role.field)
    is_json = role.values.is_json or (role.values.is_plain and not isinstance(value, str))
    if is_json:  # keeps the order of keys, which chat templates may print
        try:
            value = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            # null for NaN and infinity, as pandas writes; `json` takes deep lists, Python does not.
            value = json.loads(json.dumps(value), parse_constant=lambda _: None)
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
    elif role.values.is_name and isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return role.values.refusal, f"field {role.field!r} is a {type(value).__name__}"
    return value if value.isascii() else _find_surrogate(value, role.field) or value


def _find_surrogate(text: str, field: str) -> Refusal | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"field {field!r}, character {error.start}: {error.reason}"
        return "lone_surrogate", detail
    return None


def _convert_answers(value: Any, field: str) -> list[dict[str, Any]] | Refusal:
    """Converts answers in any accepted form to [{"text": ..., "start": ...}]."""
    refusal = "not_answers", f"field {field!r} has no answers: give strings or text, answer_start"
    if isinstance(value, str):
        value = [value] if value else []
    if isinstance(value, dict):  # the form of Hugging Face datasets
        texts, starts = value.get("text"), value.get(_START)
        if not isinstance(texts, list) or not isinstance(starts, list | None):
            return refusal
        if starts is not None and len(starts) != len(texts):
            return "not_answers", f"field {field!r} has {len(texts)} texts, {len(starts)} starts"
        pairs = zip(texts, starts or [None] * len(texts), strict=True)
        value = [{"text": text, _START: start} for text, start in pairs]
    elif not isinstance(value, list):
        return refusal
    elif value and isinstance(value[0], str):
        value = [{"text": text} for text in value]
    answers: list[dict[str, Any]] = []
    for answer in value:  # the form of SQuAD
        if type(answer) is not dict:
            return refusal
        text, start = answer.get("text"), answer.get(_START)
        if start is None:
            start = -1
        if type(text) is not str or type(start) is not int or not -_BOUND <= start < _BOUND:
            return refusal
        if not text.isascii() and (bad := _find_surrogate(text, field)):
            return bad
        answers.append({"text": text, "start": start})
    return answers
