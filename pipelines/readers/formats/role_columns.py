"""Columns of any table -> a column for each role, converted as a whole. Pure.

Input columns have many types; a task sees one type for each kind of role. Only rows that are
rejected become Python objects.
"""

import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from textmill.pipelines.readers.documents import (
    ANSWERS,
    MAX_DOCUMENT_BYTES,
    Documents,
    Reject,
    Role,
    batch_of,
    too_long,
)
from textmill.pipelines.readers.formats.role_values import convert_value
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import UsageError, flag

Rejected = dict[int, tuple[str, str]]  # row -> reason, detail
Classes = Mapping[str, Sequence[str]]  # field -> names of its class numbers
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_START = "answer_start"
_TEXTS = {pa.string(), pa.large_string(), pa.string_view()}
_STRINGS = {*_TEXTS, pa.binary(), pa.large_binary(), pa.binary_view()}


def check_fields(schema: pa.Schema, roles: tuple[Role, ...], path: str, classes: Classes) -> None:
    """Checks that a table has the fields of all roles, with suitable types.

    Raises:
      UsageError: a field is missing or unsuitable; names the file, the field and the alternatives.
    """
    for role in roles:
        kind = field_type(schema, role.field)
        if kind is None:
            if not role.optional:
                raise UsageError(
                    f"{path} has no field {role.field!r}, which {flag(f'{role.name}_field')} "
                    f"names; its fields: {', '.join(sorted(schema.names)) or 'none'}"
                )
        elif not (role.field in classes and pt.is_integer(kind)) and not _suits(kind, role):
            name = "keep_fields" if role.values.is_plain else f"{role.name}_field"
            raise UsageError(
                f"{path}: {flag(name, role.field)} has type {kind}, but must be "
                f"{role.values.wanted}"
            )


def check_names(roles: tuple[Role, ...], path: str, names: Sequence[str]) -> None:
    """The same for a file whose fields are strings, or have suitable types."""
    check_fields(pa.schema([(name, pa.string()) for name in names]), roles, path, {})


def field_type(schema: pa.Schema, field: str) -> pa.DataType | None:
    """The type of a field, which may be `a.b`; None if it is missing."""
    for fields, name in ((schema, field), *([(schema, field.split("."))] if "." in field else [])):
        for step in [name] if isinstance(name, str) else name:
            index = fields.get_field_index(step) if hasattr(fields, "get_field_index") else -1
            if index < 0:
                break
            fields = fields.field(index).type
        else:
            return fields
    return None


def take_roles(
    batch: pa.RecordBatch,
    roles: tuple[Role, ...],
    path: str,
    first: int,
    *,
    classes: Classes | None = None,
    source_bytes: int | None = None,
    longest: int = MAX_DOCUMENT_BYTES,
    is_utf8: bool = False,
) -> Documents:
    """The roles' columns of a batch, and the rejected rows.

    Args:
      batch: rows with the roles' fields, checked by `check_fields`; other fields are ignored.
      roles: fields to read.
      path: path of the file, for rejects.
      first: number of the batch's first row in the file.
      classes: names of class numbers by field.
      source_bytes: bytes of the rows in the file; None for the bytes of the roles' strings.
      longest: maximum bytes of a row's strings; rows with more are rejected.
      is_utf8: whether strings are known to be valid UTF-8.
    """
    columns: list[pa.Array] = []
    rejected: Rejected = {}
    empty_N = np.zeros(len(batch), bool)
    for role in roles:
        column, bad = _role_column(batch, role, (classes or {}).get(role.field), is_utf8)
        columns.append(column)
        rejected = {**{row: why for row, why in bad.items() if not empty_N[row]}, **rejected}
        if len(columns) == 1:
            empty_N = _lengths(column) == 0
            empty_N[list(rejected)] = False
    if source_bytes is None:
        flat = (c.flatten().field("text") if pt.is_list(c.type) else c for c in columns)
        source_bytes = sum(int(_lengths(column).sum()) for column in flat)
    strings = [_lengths(column) for column in columns if pt.is_large_string(column.type)]
    for row in np.flatnonzero(sum(strings) > longest).tolist():
        long = too_long(path, first + row, longest)
        rejected[row] = long.reason, long.detail
        empty_N[row] = False
    keep_N = ~empty_N
    keep_N[list(rejected)] = False
    taken = batch_of(columns, roles)
    if not keep_N.all():
        taken = taken.filter(pa.array(keep_N))
    rejects = tuple(Reject(path, first + row, *rejected[row]) for row in sorted(rejected))
    offsets = first + np.flatnonzero(keep_N)
    return Documents(taken, int(empty_N.sum()), rejects, source_bytes, offsets=offsets)


def column_of(batch: pa.RecordBatch, field: str) -> pa.Array | None:
    """The column of a field; for `a.b`, values of the column `a.b`, else of b in column a."""
    index = batch.schema.get_field_index(field)
    column = batch.column(index) if index >= 0 else None
    inner = _nest(batch, field.split(".")) if "." in field else None
    if column is None or inner is None or column.type != inner.type:
        return inner if column is None else column
    return pc.coalesce(column, inner)


def _nest(batch: pa.RecordBatch, steps: list[str]) -> pa.Array | None:
    index = batch.schema.get_field_index(steps[0])
    if index < 0:
        return None
    column = batch.column(index)
    for step in steps[1:]:
        if not pt.is_struct(column.type) or column.type.get_field_index(step) < 0:
            return None
        column = pc.struct_field(column, step)
    return column


def _role_column(
    batch: pa.RecordBatch, role: Role, names: Sequence[str] | None, is_utf8: bool
) -> tuple[pa.Array, Rejected]:
    """The role's column, with "" or no answers in rows that lack one or are rejected."""
    column = column_of(batch, role.field)
    if column is None:
        column = pa.nulls(len(batch))
    if isinstance(column, pa.ExtensionArray) and column.type != pa.uuid():
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    rejected: Rejected = {}
    if role.type == ANSWERS:
        answers = _plain_answers(column)
        return _convert_rows(column, role) if answers is None else (answers, rejected)
    if role.values.is_plain or role.values.is_json:
        column = _spell(column)
    kind = column.type
    is_nested = pt.is_nested(kind) or pt.is_floating(kind) or kind == pa.uuid()
    if role.values.is_json or (role.values.is_plain and is_nested):
        column, rejected = _convert_rows(column, role)
    elif names is not None and pt.is_integer(column.type):
        column, rejected = _class_names(column, role, names)
    elif pt.is_integer(column.type) or pt.is_boolean(column.type):
        column = column.cast(pa.large_string())
    elif not (is_utf8 and pt.is_large_string(column.type)):
        column, rejected = _strings(column, role)
    if column.null_count and not role.optional:
        detail = f"field {role.field!r} is null"
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            rejected.setdefault(row, ("missing_field", detail))
    column = column.fill_null("")
    if role.values.is_name and not role.optional:
        for row in np.flatnonzero(_lengths(column) == 0).tolist():
            rejected.setdefault(row, ("missing_field", f"field {role.field!r} is empty"))
    return column, rejected


def _spell(column: pa.Array) -> pa.Array:
    """Times and decimals as text, at any depth: 2026-01-01 00:00:00Z, 0.25."""
    kind = _spelt(column.type)
    if kind == column.type:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # a time zone that this machine does not know
        return column.cast(_in_utc(column.type)).cast(kind)


def _spelt(kind: pa.DataType) -> pa.DataType:
    """The type in which times and decimals are strings."""
    if pt.is_temporal(kind) or pt.is_decimal(kind):
        return pa.large_string()
    return _map_type(kind, _spelt)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The type in which all times with a zone are in UTC."""
    if pt.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return _map_type(kind, _in_utc)


def _map_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with other types inside."""
    if pt.is_struct(kind):
        return pa.struct(
            [kind.field(i).with_type(change(kind.field(i).type)) for i in range(kind.num_fields)]
        )
    if pt.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if pt.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_type), kind.list_size)
    if pt.is_large_list(kind):
        return pa.large_list(change(kind.value_type))
    return pa.list_(change(kind.value_type)) if pt.is_list(kind) else kind


def _strings(column: pa.Array, role: Role) -> tuple[pa.LargeStringArray, Rejected]:
    """Any kind of string or bytes as UTF-8; invalid values are rejected and become null."""
    if pt.is_null(column.type):
        return column.cast(pa.large_string()), {}
    binary = column.cast(pa.large_binary())
    try:
        return binary.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        rejected: Rejected = {}
        if role.values.is_plain and column.type not in _TEXTS:
            texts = [None if value is None else _text_of(value) for value in binary.to_pylist()]
            return pa.array(texts, pa.large_string()), rejected
        for row, value in enumerate(binary):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError as error:
                at = f"field {role.field!r}, byte {error.start}, 0x{error.object[error.start]:02x}"
                rejected[row] = ("not_utf8", f"{at}: {error.reason}")
        good_N = np.ones(len(binary), bool)
        good_N[list(rejected)] = False
        nothing = pa.scalar(None, pa.large_binary())
        kept = pc.if_else(pa.array(good_N), binary, nothing)  # pyright: ignore
        return kept.cast(pa.large_string()), rejected


def _class_names(
    column: pa.Array, role: Role, names: Sequence[str]
) -> tuple[pa.LargeStringArray, Rejected]:
    """Names of class numbers; -1 is not a label, as in test splits of Hugging Face datasets."""
    numbers = column.fill_null(0).to_numpy()
    outside_N = (numbers >= len(names)) | (numbers < -1)
    rejected: Rejected = {
        row: (
            "label_outside_classes",
            f"field {role.field!r} is {numbers[row]}, but its {len(names)} classes have the "
            f"numbers 0 to {len(names) - 1}",
        )
        for row in np.flatnonzero(outside_N).tolist()
    }
    none_N = outside_N | (numbers == -1) | column.is_null().to_numpy(zero_copy_only=False)
    indices = pa.array(np.where(none_N, 0, numbers), mask=none_N)
    return pa.array(names, pa.large_string()).take(indices), rejected


def _plain_answers(column: pa.Array) -> pa.ListArray | None:
    """Answers with starts, as in SQuAD and Hugging Face datasets; None if a row is irregular."""
    is_list = isinstance(column.type, _LISTS)
    pairs = column.flatten() if is_list else column
    if column.null_count or pairs.null_count or not pt.is_struct(pairs.type):
        return None
    lists = [pairs.field(i) for i in map(pairs.type.get_field_index, ("text", _START)) if i >= 0]
    if len(lists) < 2 or any(side.null_count for side in lists):
        return None
    lengths, other = (pc.list_value_length(side) for side in ([column] * 2 if is_list else lists))  # pyright: ignore
    if not lengths.equals(other):
        return None
    offsets = np.append(np.int32(0), np.cumsum(lengths, dtype=np.int32))
    try:
        texts, starts = lists if is_list else (side.flatten() for side in lists)
        sides = [texts.cast(pa.string()), starts.cast(pa.int64())]
    except pa.ArrowInvalid:
        return None
    if any(side.null_count for side in sides):
        return None
    pairs = pa.StructArray.from_arrays(sides, fields=list(ANSWERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ANSWERS)


def _convert_rows(column: pa.Array, role: Role) -> tuple[pa.Array, Rejected]:
    """Converts values of any shape, such as answers, row by row."""
    rejected: Rejected = {}
    values: list[Any] = []
    for row, value in enumerate(_python_values(column)):
        if value == {} and role.type == ANSWERS:  # all fields were null
            value = None
        if isinstance(value, UnicodeDecodeError):
            value = "not_utf8", f"field {role.field!r}: {value}"
        elif value is not None:
            value = convert_value(value, role)
        if isinstance(value, tuple):
            rejected[row], value = value, None
        values.append([] if value is None and role.type == ANSWERS else value)
    return pa.array(values, role.type), rejected


def _python_values(column: pa.Array) -> list[Any]:
    """Each value, or the error if it is not UTF-8."""
    try:
        maps = "lossy" if _has_map(column.type) else None  # takes 1.6 times the time
        values = column.to_pylist(maps_as_pydicts=maps)
        return [_without_nulls(value) for value in values]
    except UnicodeDecodeError as error:
        if len(column) == 1:
            return [error]
        return [value for row in range(len(column)) for value in _python_values(column[row:][:1])]


def _has_map(kind: pa.DataType) -> bool:
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pt.is_map(kind) or any(map(_has_map, inner))


def _without_nulls(value: Any) -> Any:
    """A value without the null fields that Arrow adds, and with strings for bytes.

    A null `content` is kept, because OpenAI's messages with tool calls have it.
    """
    if isinstance(value, dict):
        some = {k: v for k, v in value.items() if v is not None or k == "content"}
        return {name: _without_nulls(item) for name, item in some.items()}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, bytes):
        return _text_of(value)
    return str(value) if isinstance(value, uuid.UUID) else value


def _text_of(value: bytes) -> str:
    """Bytes as text; in base64 if they are not UTF-8, such as an image."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _suits(kind: pa.DataType, role: Role, *, is_inner: bool = False) -> bool:
    """Whether a role can read a field of this type, or a value inside one."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if kind in _STRINGS or pt.is_null(kind):
        return True
    inner = [kind.field(i) for i in range(kind.num_fields)]
    if role.type == ANSWERS:
        if pt.is_struct(kind):
            inner = [field for field in inner if field.name == "text"]
        return len(inner) == 1 and _suits(inner[0].type, role)
    if role.values.is_json or role.values.is_plain:
        if pt.is_map(kind) and kind.key_type not in _TEXTS and not pt.is_integer(kind.key_type):
            return False
        if pt.is_struct(kind) or pt.is_map(kind) or isinstance(kind, _LISTS):
            return all(_suits(field.type, role, is_inner=True) for field in inner)
        if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_floating(kind):
            return True
        is_time = pt.is_temporal(kind) and not pt.is_interval(kind)
        is_spelt = is_time or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind)
        return is_spelt and (is_inner or role.values.is_plain)
    return role.values.is_name and (pt.is_integer(kind) or pt.is_boolean(kind))


def _lengths(column: pa.LargeStringArray) -> np.ndarray:
    """Bytes of each string; 0 for null."""
    lengths = pc.binary_length(column)
    return lengths.fill_null(0).to_numpy(zero_copy_only=False)
