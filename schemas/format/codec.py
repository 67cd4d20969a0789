"""Encodes rows, given as numpy columns, to `tf.train.Example` bytes of one fixed length, and back.

A `tf.train.Example` (tensorflow/core/example/example.proto) is a map from names to value lists.
Each feature has a fixed size, so all rows of a dataset have the same bytes except for the values:
a constant template with holes. Encoding fills the holes of a [B, stride] matrix, decoding reads
them; neither handles rows one by one.

There are three encodings of a value list:
  bits        one `bytes_list` entry: numbers as `bytes` has them; ids as the low 16 bits of all,
              and if they are uint32, then the next 8 bits of all; flags as one bit each, the first
              in the lowest bit of a byte; segments as their number n, a value of the feature's
              dtype, and one bit a token, 1 where a segment or the padding begins.
  bytes       one `bytes_list` entry: the values, little-endian (TFDS: `encoding: bytes`).
  int64_list  a packed `int64_list`. Its varints are padded to one width (high bits set on leading
              bytes), which the wire format allows and every protobuf parser reads, so this form has
              a fixed length, too. It also stores `positions`.

Legend: B rows, n values of a feature in a row, w bytes of them, S segments and runs of padding.
Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Sequence, Union

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.format.features import (
    KINDS,
    MAX_VOCABULARY,
    Feature,
    positions_from_segments,
)
from textmill.schemas.format.pieces import piece_rows
from textmill.schemas.format.records import varint

_BYTES_LIST, _INT64_LIST = 1, 3  # field numbers in tf.train.Feature


class _Invalid(Exception):
    """Values that no encoder wrote; `bad_B` says in which rows."""

    def __init__(self, bad_B: np.ndarray, reason: str):
        super().__init__(reason)
        self.row = int(bad_B.argmax())


class _Numbers:
    """Values of the feature's dtype, little-endian."""

    field = _BYTES_LIST

    def __init__(self, feature: Feature):
        self.feature, self.bytes = feature, feature.bytes
        self._little = np.dtype(feature.dtype).newbyteorder("<")

    def encode(self, values: np.ndarray, stored: np.ndarray) -> None:
        """Writes values [B, n] of the feature's dtype as bytes uint8 [B, w]."""
        stored.view(self._little)[:] = values

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """A copy of the values [B, n] of bytes uint8 [B, w]; _Invalid if no encoder wrote them."""
        return stored.view(self._little).astype(self.feature.dtype)


class _Ids:
    """Ids of tokens: the low 16 bits of all, then the high 8 bits of all if they are uint32."""

    field = _BYTES_LIST

    def __init__(self, feature: Feature):
        self.feature = feature
        self._low = 2 * feature.size  # bytes of all low bits
        self._is_wide = feature.dtype == "uint32"
        self.bytes = self._low + feature.size * self._is_wide

    def encode(self, values: np.ndarray, stored: np.ndarray) -> None:
        """See `_Numbers.encode`."""
        if self._is_wide:
            if values.size and values.max() >= MAX_VOCABULARY:
                raise ValueError(
                    f"{self.feature.name} has {values.max()}, but ids are below {MAX_VOCABULARY}"
                )
            stored[:, self._low :] = values >> np.uint32(16)
        stored[:, : self._low].view("<u2")[:] = values

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """See `_Numbers.decode`."""
        values = stored[:, : self._low].view("<u2").astype(self.feature.dtype)
        if self._is_wide:
            high = stored[:, self._low :].astype(np.uint32)
            high <<= np.uint32(16)
            values |= high
        return values


class _Flags:
    """Values of 0 and 1, one bit each."""

    field = _BYTES_LIST

    def __init__(self, feature: Feature):
        self.feature, self.bytes = feature, -(-feature.size // 8)

    def encode(self, values: np.ndarray, stored: np.ndarray) -> None:
        """See `_Numbers.encode`."""
        if values.size and values.max() > 1:
            raise ValueError(f"{self.feature.name} has {values.max()}, but its values are 0 and 1")
        stored[:] = np.packbits(values, axis=1, bitorder="little")

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """See `_Numbers.decode`."""
        bits = np.unpackbits(stored, axis=1, count=self.feature.size, bitorder="little")
        return bits.astype(self.feature.dtype, copy=False)


class _Segments:
    """The number of segments, and a bit for each token: 1 where a segment or the padding begins.

    The k-th run of tokens that begins in a row is segment k, or padding if there are fewer than k
    segments: [1, 1, 2, 0] is 2 and 1, 0, 1, 1.
    """

    field = _BYTES_LIST

    def __init__(self, feature: Feature):
        self.feature = feature
        self._little = np.dtype(feature.dtype).newbyteorder("<")
        self._head = self._little.itemsize  # bytes of the number of segments
        self.bytes = self._head + -(-feature.size // 8)

    def encode(self, values: np.ndarray, stored: np.ndarray) -> None:
        """See `_Numbers.encode`."""
        flat, size = values.reshape(-1), self.feature.size
        begins = np.empty(len(flat), bool)
        np.not_equal(flat[1:], flat[:-1], out=begins[1:])  # flat, for vector instructions
        begins[::size] = True
        bits = np.packbits(begins.reshape(-1, size), axis=1, bitorder="little")
        row_S, token_S = _set_bits(bits)
        found_S = flat[row_S * size + token_S].astype(np.int64)
        before_S = np.roll(found_S, 1)
        before_S[token_S == 0] = 0
        is_last_S = np.roll(token_S, -1) == 0
        bad_S = (found_S != before_S + 1) & ~(is_last_S & (found_S == 0))
        if bad_S.any():
            row, token = row_S[bad_S][0], token_S[bad_S][0]
            raise ValueError(
                f"{self.feature.name} has {values[row, token]} at token {token} of row {row}: the "
                "segments of a row are 1 to n in their order, then 0"
            )
        segments_B = np.maximum(found_S, before_S)[is_last_S]
        stored[:, : self._head].view(self._little)[:, 0] = segments_B
        stored[:, self._head :] = bits

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """See `_Numbers.decode`."""
        count, size = len(stored), self.feature.size
        bits = stored[:, self._head :]
        segments_B = stored[:, : self._head].view(self._little)[:, 0].astype(np.int64)
        row_S, token_S = _set_bits(bits)
        runs_B = np.bincount(row_S, minlength=count)
        rest_B = (runs_B - segments_B).view(np.uint64)  # runs of padding: 0 or 1
        bad_B = (bits[:, 0] & 1 == 0) | (rest_B > 1)
        bad_B[row_S[token_S >= size]] = True
        if bad_B.any():
            raise _Invalid(bad_B, f"the number of segments in {self.feature.name} is wrong")
        begins_S = row_S * size + token_S
        lengths_S = np.append(begins_S[1:], count * size) - begins_S
        values_S = _number(runs_B, segments_B).astype(self.feature.dtype)
        return np.repeat(values_S, lengths_S).reshape(count, size)


def _set_bits(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row and the place in it of each bit that is set in uint8 [B, w], in their order.

    Few are set: only the words of eight bytes that are not zero are searched bit by bit.
    """
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    word_M = padded.view(np.uint64).ravel()
    number_K = np.flatnonzero(word_M != 0)
    found = np.unpackbits(word_M[number_K].view(np.uint8), bitorder="little").view(bool)
    at_S = np.flatnonzero(found)
    bit_S = number_K[at_S >> 6] * 64 + (at_S & 63)
    row_S = bit_S // (padded.shape[1] * 8)
    return row_S, bit_S - row_S * (padded.shape[1] * 8)


def _number(runs_B: np.ndarray, segments_B: np.ndarray) -> np.ndarray:
    """1, 2, 3 and so on for the runs of each row, but 0 for those after its last segment."""
    before_S = np.repeat(np.cumsum(runs_B) - runs_B, runs_B)
    number_S = np.arange(1, len(before_S) + 1) - before_S
    number_S[number_S > np.repeat(segments_B, runs_B)] = 0
    return number_S


class _Varints:
    """Varints of one width."""

    field = _INT64_LIST

    def __init__(self, feature: Feature):
        self.feature = feature
        self._bits = np.dtype(feature.dtype).itemsize * 8
        self._width = -(-self._bits // 7)
        self.bytes = feature.size * self._width

    def encode(self, values: np.ndarray, stored: np.ndarray) -> None:
        """See `_Numbers.encode`."""
        values = values.astype(np.uint32)
        out = np.empty((*values.shape, self._width), np.uint8)
        for byte in range(self._width):
            out[:, :, byte] = (values >> np.uint32(7 * byte)) & 0x7F
        out[:, :, :-1] |= 0x80
        stored[:] = out.reshape(len(values), self.bytes)

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """See `_Numbers.decode`."""
        groups = stored.reshape(len(stored), self.feature.size, self._width)
        more = groups >= 0x80  # set on all bytes of a padded varint except its last
        values = np.zeros(groups.shape[:2], np.uint64)
        for byte in range(self._width):
            values |= (groups[:, :, byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
        too_large = values >> np.uint64(self._bits) > 0
        bad = ~more[:, :, :-1].all(axis=2) | more[:, :, -1] | too_large
        if bad.any():
            name, dtype = self.feature.name, self.feature.dtype
            reason = f"a value of {name} is not {dtype} in {self._width} bytes"
            raise _Invalid(np.asarray(bad.any(axis=1)), reason)
        return values.astype(self.feature.dtype)


_Form = Union[_Numbers, _Ids, _Flags, _Segments, _Varints]
# Encoding -> kind of a feature -> how its values are stored.
_FORMS = {
    "bits": {"numbers": _Numbers, "ids": _Ids, "flags": _Flags, "segments": _Segments},
    "bytes": dict.fromkeys(KINDS, _Numbers),
    "int64_list": dict.fromkeys(KINDS, _Varints),
}
ENCODINGS = tuple(_FORMS)


def _field(number: int, length: int) -> bytes:
    return varint(number << 3 | 2) + varint(length)


def _in_dtype(values: np.ndarray, feature: Feature) -> np.ndarray:
    """Converts values to the feature's dtype; ValueError if they do not fit."""
    dtype = np.dtype(feature.dtype)
    if values.size and not np.can_cast(values.dtype, dtype, "safe"):
        low, high, limit = values.min(), values.max(), np.iinfo(dtype).max
        if low < 0 or high > limit or values.dtype.kind not in "iu":
            raise ValueError(
                f"{feature.name} has {values.dtype} values from {low} to {high}, which "
                f"{feature.dtype} does not hold"
            )
    return values.astype(dtype, copy=False)


class RowCodec:
    """Encodes and decodes rows with the same features.

    Attributes:
      features: the stored features, sorted by name; with int64_list, `positions` is added.
      stride: bytes of one encoded row.
      piece_rows: rows of a piece of a shard, see `schemas.format.pieces`.
    """

    def __init__(self, features: Sequence[Feature], encoding: str = "bits"):
        """Makes the template of a row.

        Args:
          features: the result of `schemas.format.features.task_features`.
          encoding: one of ENCODINGS.
        """
        if encoding not in ENCODINGS:
            raise ValueError("encoding {!r}: one of {}".format(encoding, ", ".join(ENCODINGS)))
        self.encoding = encoding
        self.features = _stored_features(features, encoding)
        forms = [_FORMS[encoding][feature.kind](feature) for feature in self.features]
        heads = [self._head(form) for form in forms]
        body = sum(len(head) + form.bytes for head, form in zip(heads, forms))
        template = bytearray(_field(1, body))  # Example.features
        self._holes: list[tuple[_Form, int, int]] = []
        for form, head in zip(forms, heads):
            template += head
            self._holes.append((form, len(template), len(template) + form.bytes))
            template += bytes(form.bytes)
        self.stride = len(template)
        self.piece_rows = piece_rows(self.stride)
        self._template = bytes(template)

    @staticmethod
    def _head(form: _Form) -> bytes:
        """The constant head of one map entry, before its values."""
        name = form.feature.name.encode()
        values = _field(1, form.bytes)
        value = _field(form.field, len(values) + form.bytes) + values
        key = _field(1, len(name)) + name
        entry = key + _field(2, len(value) + form.bytes) + value
        return _field(1, len(entry) + form.bytes) + entry

    def encode(self, columns: dict[str, np.ndarray], head: bytes = b"") -> np.ndarray:
        """Encodes columns to rows.

        Args:
          columns: for each feature integers [B, *shape] that fit its dtype; `positions` is derived.
          head: bytes before each row, for a file format that stores some there.

        Returns:
          uint8 [B, len(head) + stride].

        Raises:
          ValueError: a column has a different shape, or a value that its dtype or its kind does not
            hold.
        """
        if self.encoding == "int64_list" and "segment_ids" in columns:
            columns = dict(columns, positions=positions_from_segments(columns["segment_ids"]))
        count = len(columns[self.features[0].name])
        template, after = np.frombuffer(head + self._template, np.uint8), 0
        rows = np.empty((count, len(template)), np.uint8)
        for form, start, stop in self._holes:
            start, stop = len(head) + start, len(head) + stop
            feature = form.feature
            values = np.asarray(columns[feature.name])
            if values.shape != (count,) + feature.shape:
                raise ValueError(
                    f"{feature.name} has shape {values.shape}, not {(count,) + feature.shape}"
                )
            flat = _in_dtype(values.reshape(count, feature.size), feature)
            rows[:, after:start] = template[after:start]
            form.encode(flat, rows[:, start:stop])
            after = stop
        return rows

    def decode(self, rows: np.ndarray, *, first_row: int = 0) -> dict[str, np.ndarray]:
        """Decodes rows to columns.

        Args:
          rows: uint8 [B, stride].
          first_row: the number of the first row in errors.

        Returns:
          For each feature an array [B, *shape] of its dtype.

        Raises:
          DataError: a row does not match the template; the message has the first such row.
        """
        if rows.ndim != 2 or rows.shape[1] != self.stride:
            raise DataError(
                f"rows of shape {rows.shape} do not match this schema: its rows have {self.stride} "
                "bytes"
            )
        columns, after = {}, 0  # `after` the values of the feature before
        for form, start, stop in self._holes:
            self._check_template(rows, after, start, first_row)
            try:
                values = form.decode(rows[:, start:stop])
            except _Invalid as error:
                row = first_row + error.row
                raise DataError(f"row {row} does not match this schema: {error}") from None
            columns[form.feature.name] = values.reshape((len(rows),) + form.feature.shape)
            after = stop
        return columns

    def _check_template(self, rows: np.ndarray, start: int, stop: int, first_row: int) -> None:
        """Compares bytes of every row with those of the template."""
        found, expected = rows[:, start:stop], self._template[start:stop]
        if found.tobytes() == expected * len(found):
            return
        bad = (found != np.frombuffer(expected, np.uint8)).any(axis=1)
        raise DataError(
            f"row {first_row + int(bad.argmax())} does not match this schema: its bytes {start} to "
            f"{stop} are of other features or lengths"
        )


def _stored_features(features: Sequence[Feature], encoding: str) -> tuple[Feature, ...]:
    stored = {feature.name: feature for feature in features}
    if encoding == "int64_list" and "segment_ids" in stored:
        stored["positions"] = Feature(
            "positions", "uint16", stored["segment_ids"].shape, "restart at 0 in each segment"
        )
    return tuple(stored[name] for name in sorted(stored))
