"""Columns of any table -> a column for each role. Pure, and a column at a time.

What JSON Lines, Parquet, Arrow and others hold comes in many types; a task sees one for each kind
of role. Rows that a role refuses are named one by one, the others never become Python objects.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pipelines.readers.documents import (
    ANSWERS,
    MAX_DOCUMENT_BYTES,
    Documents,
    Reject,
    Role,
    batch_of,
    too_long,
)
from schemas.errors import UsageError

Refused = dict[int, tuple[str, str]]  # row -> reason, detail
Classes = Mapping[str, Sequence[str]]  # field -> names of its class numbers
_START = "answer_start"
UNEVEN = "there are not as many texts as starts"


def check_fields(schema: pa.Schema, roles: tuple[Role, ...], path: str, classes: Classes) -> None:
    """Refuses a table that lacks a role's field or has it in a type that cannot serve.

    Raises:
      UsageError: names the field, the file and the fields that are there.
    """
    for role in roles:
        found = field_type(schema, role.field)
        if found is None:
            if not role.optional:
                raise UsageError(missing_field(role, path, schema.names))
        elif not (role.field in classes and pt.is_integer(found)) and not _serves(found, role):
            raise UsageError(
                f"{path}: --{role.name}_field={role.field} is of type {found}, which cannot be "
                f"{role.values.wanted}"
            )


def missing_field(role: Role, path: str, names: Sequence[str]) -> str:
    """What to say of a field that is not in the whole file."""
    return (
        f"{path} has no field {role.field!r}, which --{role.name}_field names; the fields there: "
        f"{', '.join(sorted(names)) or 'none'}"
    )


def json_text(value: Any) -> str:
    """A value of any shape as JSON; the order of keys is kept, which chat templates show."""
    return json.dumps(value, ensure_ascii=False)


def _without_nulls(value: Any) -> Any:
    """Without the fields that Arrow adds where other rows have them.

    A null content is kept: so OpenAI writes a message that calls tools.
    """
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    some = {k: v for k, v in value.items() if v is not None or k == "content"}
    return {name: _without_nulls(item) for name, item in some.items()}


def field_type(schema: pa.Schema, field: str) -> pa.DataType | None:
    """The type of a field, which may be `a.b`; None if it is not there."""
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
) -> Documents:
    """The roles' columns of a batch's good rows.

    Args:
      batch: with the roles' fields, as `check_fields` wants them; others are ignored.
      roles: what to take.
      path: for the places of refused rows.
      first: number of the batch's first row in the file.
      classes: names of class numbers.
      source_bytes: what the rows measure in the file; None for the bytes of the roles' strings.
      longest: bytes of a row's strings; a row with more is refused.
    """
    columns: list[pa.Array] = []
    refused: Refused = {}
    empty_N = np.zeros(len(batch), bool)
    for role in roles:
        column, bad = _role_column(batch, role, (classes or {}).get(role.field))
        columns.append(column)
        refused = {**{row: why for row, why in bad.items() if not empty_N[row]}, **refused}
        if len(columns) == 1:
            empty_N = _lengths(column) == 0
            empty_N[list(refused)] = False
    if source_bytes is None:
        source_bytes = sum(_string_bytes(column) for column in columns)
    strings = [_lengths(column) for column in columns if pt.is_large_string(column.type)]
    for row in np.flatnonzero(sum(strings) > longest).tolist():
        long = too_long(path, first + row, longest)
        refused[row] = long.reason, long.detail
        empty_N[row] = False
    keep_N = ~empty_N
    keep_N[list(refused)] = False
    taken = batch_of(columns, roles)
    if not keep_N.all():
        taken = taken.filter(pa.array(keep_N))
    rejects = tuple(Reject(path, first + row, *refused[row]) for row in sorted(refused))
    offsets = first + np.flatnonzero(keep_N)
    return Documents(taken, int(empty_N.sum()), rejects, source_bytes, offsets=offsets)


def column_of(batch: pa.RecordBatch, field: str) -> pa.Array | None:
    """A field's column; `a.b` is a column of that name where it has a value, else b of a."""
    index = batch.schema.get_field_index(field)
    column = batch.column(index) if index >= 0 else None
    inner = _nest(batch, field.split(".")) if "." in field else None
    if column is None or inner is None or column.type != inner.type:
        return inner if column is None else column
    return pc.coalesce(column, inner)  # pyright: ignore[reportAttributeAccessIssue]


def _nest(batch: pa.RecordBatch, steps: list[str]) -> pa.Array | None:
    index = batch.schema.get_field_index(steps[0])
    if index < 0:
        return None
    column = batch.column(index)
    for step in steps[1:]:
        if not pt.is_struct(column.type) or column.type.get_field_index(step) < 0:
            return None
        column = pc.struct_field(column, step)  # pyright: ignore[reportAttributeAccessIssue]
    return column


def _role_column(
    batch: pa.RecordBatch, role: Role, names: Sequence[str] | None
) -> tuple[pa.Array, Refused]:
    """The role's column, with "" or no answers where a row has none or is refused."""
    column = column_of(batch, role.field)
    if column is None:
        column = pa.nulls(len(batch))
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if role.type == ANSWERS:
        return _answers(column, role)
    if role.values.is_json:
        values = map(_without_nulls, column.to_pylist())
        texts = (None if value is None else json_text(value) for value in values)
        column = pa.array(texts, pa.large_string())
    refused: Refused = {}
    if names is not None and pt.is_integer(column.type):
        column, refused = _class_names(column, role, names)
    elif pt.is_integer(column.type) or pt.is_boolean(column.type):
        column = column.cast(pa.large_string())
    else:
        column, refused = _strings(column, role)
    if column.null_count and not role.optional:
        detail = f"field {role.field!r} is null"
        for row in _rows(column.is_null()):
            refused.setdefault(row, ("missing_field", detail))
    column = column.fill_null("")
    if role.values.is_name and not role.optional:
        for row in np.flatnonzero(_lengths(column) == 0).tolist():
            refused.setdefault(row, ("missing_field", f"field {role.field!r} is empty"))
    return column, refused


def _strings(column: pa.Array, role: Role) -> tuple[pa.LargeStringArray, Refused]:
    """Any kind of string or bytes as valid UTF-8; what is not becomes null and is refused."""
    if pt.is_null(column.type):
        return column.cast(pa.large_string()), {}
    binary = column.cast(pa.large_binary())
    try:
        return binary.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        refused: Refused = {}
        for row, value in enumerate(binary):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError as error:
                at = f"field {role.field!r}, byte {error.start}, 0x{error.object[error.start]:02x}"
                refused[row] = ("not_utf8", f"{at}: {error.reason}")
        good_N = np.ones(len(binary), bool)
        good_N[list(refused)] = False
        nothing = pa.scalar(None, pa.large_binary())
        kept = pc.if_else(pa.array(good_N), binary, nothing)  # pyright: ignore
        return kept.cast(pa.large_string()), refused


def _class_names(
    column: pa.Array, role: Role, names: Sequence[str]
) -> tuple[pa.LargeStringArray, Refused]:
    """Names in place of numbers; -1 is no label, as Hugging Face's test splits have it."""
    numbers = column.cast(pa.int64()).fill_null(-1).to_numpy()
    outside_N = (numbers >= len(names)) | (numbers < -1)
    refused: Refused = {
        row: (
            "label_outside_classes",
            f"field {role.field!r} is {numbers[row]}, and its {len(names)} classes have the "
            f"numbers from 0 to {len(names) - 1}",
        )
        for row in np.flatnonzero(outside_N).tolist()
    }
    none_N = outside_N | (numbers == -1)
    indices = pa.array(np.where(none_N, 0, numbers), mask=none_N)
    return pa.array(names, pa.large_string()).take(indices), refused


def _answers(column: pa.Array, role: Role) -> tuple[pa.ListArray, Refused]:
    """Answers of any accepted type as ANSWERS."""
    refused: Refused = {}
    if pt.is_null(column.type):
        return pa.array([[]] * len(column), ANSWERS), refused
    if pt.is_struct(column.type):  # Hugging Face: {text: [...], answer_start: [...]}
        texts, starts, lengths = _side_by_side(column, role, refused)
    elif _is_list(column.type):
        lengths = _list_lengths(column)
        flat = pc.list_flatten(column)  # pyright: ignore[reportAttributeAccessIssue]
        is_struct = pt.is_struct(flat.type)
        texts = _of_struct(flat, "text") if is_struct else flat
        starts = _start_of(flat) if is_struct else None
    else:  # one string; an empty one is no answer
        column, bad = _strings(column, role)
        lengths = (_lengths(column.fill_null("")) > 0).astype(np.int64)
        texts, starts = column.filter(pa.array(lengths > 0)), None
        refused.update(bad)
    row_A = np.repeat(np.arange(len(column)), lengths)
    texts, bad = _strings(texts, role)
    refused.update((int(row_A[i]), why) for i, why in bad.items())
    for i in _rows(texts.is_null()):
        detail = f"field {role.field!r} has an answer without text"
        refused.setdefault(int(row_A[i]), ("not_answers", detail))
    if starts is None:
        starts = pa.array(np.full(len(texts), -1))
    elif pt.is_null(starts.type):
        starts = starts.cast(pa.int64())
    pairs = pa.StructArray.from_arrays(
        [texts.fill_null("").cast(pa.string()), starts.cast(pa.int64()).fill_null(-1)],
        fields=list(ANSWERS.value_type),
    )
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=ANSWERS), refused


def _side_by_side(
    column: pa.StructArray, role: Role, refused: Refused
) -> tuple[pa.Array, pa.Array | None, np.ndarray]:
    """Texts and starts of all rows, one after another, and how many each row has."""
    texts, starts = _of_struct(column, "text"), _start_of(column)
    lengths = _list_lengths(texts)
    if starts is None:
        return pc.list_flatten(texts), None, lengths  # pyright: ignore
    has_starts_N = starts.is_valid().to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(has_starts_N & (lengths != _list_lengths(starts))).tolist():
        refused[row] = ("not_answers", f"field {role.field!r}: {UNEVEN}")
    if refused:
        good_N = np.ones(len(column), bool)
        good_N[list(refused)] = False
        texts, starts = (
            pc.if_else(pa.array(good_N), side, pa.scalar(None, side.type))  # pyright: ignore
            for side in (texts, starts)
        )
        lengths[list(refused)] = 0
    start_A = np.full(lengths.sum(), -1)
    flat = pc.list_flatten(starts).cast(pa.int64()).fill_null(-1)  # pyright: ignore
    start_A[np.repeat(has_starts_N, lengths)] = flat.to_numpy()
    return pc.list_flatten(texts), pa.array(start_A), lengths  # pyright: ignore


def _serves(found: pa.DataType, role: Role) -> bool:
    """Whether a field of this type can play a role."""
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    if pt.is_dictionary(found):
        found = found.value_type
    if _is_text(found) or pt.is_null(found):
        return True
    if role.values.is_json:
        if pt.is_struct(found) or _is_list(found):
            return all(_serves(found.field(i).type, role) for i in range(found.num_fields))
        return pt.is_integer(found) or pt.is_boolean(found) or pt.is_floating(found)
    if role.type != ANSWERS:
        return role.values.is_name and (pt.is_integer(found) or pt.is_boolean(found))
    if pt.is_struct(found):
        inner = _struct_types(found)
        starts = inner.get(_START)
        return _is_list(inner.get("text")) and (
            starts is None or (_is_list(starts) and _is_whole(starts.value_type))
        )
    if not _is_list(found):
        return False
    item = found.value_type
    if pt.is_struct(item):
        inner = _struct_types(item)
        return _is_text(inner.get("text")) and _is_whole(inner.get(_START, pa.null()))
    return _is_text(item) or pt.is_null(item)


def _struct_types(found: pa.StructType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in found}


def _is_text(found: pa.DataType | None) -> bool:
    return found is not None and (
        pt.is_string(found)
        or pt.is_large_string(found)
        or pt.is_string_view(found)
        or pt.is_binary(found)
        or pt.is_large_binary(found)
        or pt.is_binary_view(found)
    )


def _is_whole(found: pa.DataType) -> bool:
    return pt.is_integer(found) or pt.is_null(found)


def _is_list(found: pa.DataType | None) -> bool:
    return found is not None and (
        pt.is_list(found) or pt.is_large_list(found) or pt.is_fixed_size_list(found)
    )


def _of_struct(column: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(column, name)  # pyright: ignore[reportAttributeAccessIssue]


def _start_of(column: pa.Array) -> pa.Array | None:
    return _of_struct(column, _START) if _START in _struct_types(column.type) else None


def _list_lengths(column: pa.Array) -> np.ndarray:
    lengths = pc.list_value_length(column)  # pyright: ignore[reportAttributeAccessIssue]
    return lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _lengths(column: pa.LargeStringArray) -> np.ndarray:
    """Bytes of each string; 0 where there is none."""
    lengths = pc.binary_length(column)  # pyright: ignore[reportAttributeAccessIssue]
    return lengths.fill_null(0).to_numpy(zero_copy_only=False)


def _string_bytes(column: pa.Array) -> int:
    if pt.is_list(column.type):
        column = _of_struct(pc.list_flatten(column), "text")  # pyright: ignore
    return int(_lengths(column).sum())


def _rows(mask: pa.BooleanArray) -> list[int]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
