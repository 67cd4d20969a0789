"""Encodes rows, given as numpy columns, to `tf.train.Example` bytes of one fixed length, and back.

A `tf.train.Example` (tensorflow/core/example/example.proto) is a map from names to value lists.
Each feature has a fixed size, so all rows of a dataset have the same bytes except for the values:
a constant template with holes. Encoding fills the holes of a [B, stride] matrix, decoding reads
them; neither handles rows one by one.

There are two encodings of a value list:
  bytes       one `bytes_list` entry: the values, little-endian (TFDS: `encoding: bytes`).
  int64_list  a packed `int64_list`. Its varints are padded to one width (high bits set on leading
              bytes), which the wire format allows and every protobuf parser reads, so this form has
              a fixed length, too. It also stores `positions`.
"""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.format.features import Feature, positions_from_segments
from textmill.schemas.format.records import varint

ENCODINGS = ("bytes", "int64_list")
_BYTES_LIST, _INT64_LIST = 1, 3  # field numbers in tf.train.Feature

# Function that copies bytes start to stop of B rows: contiguous uint8 [B, stop - start].
Piece = Callable[[int, int], np.ndarray]


def _field(number: int, length: int) -> bytes:
    return varint(number << 3 | 2) + varint(length)


def _bits(dtype: str) -> np.uint64:
    return np.uint64(np.dtype(dtype).itemsize * 8)


def _as_stored(values: np.ndarray, feature: Feature) -> np.ndarray:
    """Converts values to the feature's dtype, little-endian; ValueError if they do not fit."""
    dtype = np.dtype(feature.dtype)
    if values.size and not np.can_cast(values.dtype, dtype, "safe"):
        low, high, limit = values.min(), values.max(), np.iinfo(dtype).max
        if low < 0 or high > limit or values.dtype.kind not in "iu":
            raise ValueError(
                f"{feature.name} has {values.dtype} values from {low} to {high}, which "
                f"{feature.dtype} does not hold"
            )
    return np.ascontiguousarray(values, dtype.newbyteorder("<"))


class RowCodec:
    """Encodes and decodes rows with the same features.

    Attributes:
      features: the stored features, sorted by name; with int64_list, `positions` is added.
      stride: bytes of one encoded row.
    """

    def __init__(self, features: Sequence[Feature], encoding: str = "bytes"):
        """Makes the template of a row.

        Args:
          features: the result of `schemas.format.features.task_features`.
          encoding: "bytes" or "int64_list".
        """
        if encoding not in ENCODINGS:
            raise ValueError("encoding {!r}: one of {}".format(encoding, ", ".join(ENCODINGS)))
        self.encoding = encoding
        self.features = _stored_features(features, encoding)
        entries = [self._entry(feature) for feature in self.features]
        body = sum(len(head) + holes for head, holes in entries)
        template = bytearray(_field(1, body))  # Example.features
        self._holes: list[tuple[Feature, int, int]] = []
        for feature, (head, holes) in zip(self.features, entries):
            template += head
            self._holes.append((feature, len(template), len(template) + holes))
            template += bytes(holes)
        self.stride = len(template)
        self._template = bytes(template)

    def _entry(self, feature: Feature) -> tuple[bytes, int]:
        """The constant head of one map entry, and the number of bytes of values after it."""
        name = feature.name.encode()
        if self.encoding == "bytes":
            holes, kind = feature.bytes, _BYTES_LIST
        else:
            holes, kind = feature.size * self._varint_width(feature), _INT64_LIST
        values = _field(1, holes)
        value = _field(kind, len(values) + holes) + values
        key = _field(1, len(name)) + name
        feature_head = _field(2, len(value) + holes) + value
        entry = key + feature_head
        return _field(1, len(entry) + holes) + entry, holes

    @staticmethod
    def _varint_width(feature: Feature) -> int:
        return -(-int(_bits(feature.dtype)) // 7)

    def encode(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Encodes columns to rows.

        Args:
          columns: for each feature integers [B, *shape] that fit its dtype; `positions` is derived.

        Returns:
          uint8 [B, stride].

        Raises:
          ValueError: a column has a different shape, or a value that does not fit the dtype.
        """
        if self.encoding == "int64_list" and "segment_ids" in columns:
            columns = dict(columns, positions=positions_from_segments(columns["segment_ids"]))
        count = len(columns[self.features[0].name])
        rows = np.empty((count, self.stride), np.uint8)
        rows[:] = np.frombuffer(self._template, np.uint8)
        for feature, start, stop in self._holes:
            values = np.asarray(columns[feature.name])
            if values.shape != (count,) + feature.shape:
                raise ValueError(
                    f"{feature.name} has shape {values.shape}, not {(count,) + feature.shape}"
                )
            flat = _as_stored(values.reshape(count, feature.size), feature)
            if self.encoding == "bytes":
                rows[:, start:stop] = flat.view(np.uint8).reshape(count, stop - start)
            else:
                rows[:, start:stop] = _padded_varints(flat, self._varint_width(feature))
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
        return self.decode_pieces(lambda start, stop: rows[:, start:stop].copy(), first_row)

    def decode_pieces(self, piece: Piece, first_row: int = 0) -> dict[str, np.ndarray]:
        """Decodes rows that are read in pieces; like `decode`, but does not check the length.

        Each byte of a row is read once: the bytes around the values are compared with the template.
        """
        columns, after = {}, 0  # `after` the values of the feature before
        for feature, start, stop in self._holes:
            self._check_template(piece, after, start, first_row)
            columns[feature.name] = self._read(piece(start, stop), feature, first_row)
            after = stop
        return columns

    def _check_template(self, piece: Piece, start: int, stop: int, first_row: int) -> None:
        """Compares bytes of every row with those of the template."""
        found, expected = piece(start, stop), self._template[start:stop]
        if found.tobytes() == expected * len(found):
            return
        bad = (found != np.frombuffer(expected, np.uint8)).any(axis=1)
        raise DataError(
            f"row {first_row + int(bad.argmax())} does not match this schema: its bytes {start} to "
            f"{stop} are of other features or lengths"
        )

    def _read(self, hole: np.ndarray, feature: Feature, first_row: int) -> np.ndarray:
        shape = (len(hole),) + feature.shape
        if self.encoding == "bytes":
            little = hole.view(np.dtype(feature.dtype).newbyteorder("<"))
            return little.astype(feature.dtype, copy=False).reshape(shape)
        width = self._varint_width(feature)
        groups = hole.reshape(len(hole), feature.size, width)
        more = groups >= 0x80  # set on all bytes of a padded varint except its last
        values = np.zeros(groups.shape[:2], np.uint64)
        for byte in range(width):
            values |= (groups[:, :, byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
        bad = ~more[:, :, :-1].all(axis=2) | more[:, :, -1] | (values >> _bits(feature.dtype) > 0)
        if bad.any():
            row = first_row + int(bad.any(axis=1).argmax())
            raise DataError(
                f"row {row} does not match this schema: a value of "
                f"{feature.name} is not {feature.dtype} in {width} bytes"
            )
        return values.astype(feature.dtype).reshape(shape)


def _stored_features(features: Sequence[Feature], encoding: str) -> tuple[Feature, ...]:
    stored = {feature.name: feature for feature in features}
    if encoding == "int64_list" and "segment_ids" in stored:
        stored["positions"] = Feature(
            "positions", "uint16", stored["segment_ids"].shape, "restart at 0 in each segment"
        )
    return tuple(stored[name] for name in sorted(stored))


def _padded_varints(flat: np.ndarray, width: int) -> np.ndarray:
    """Encodes values [B, n] as varints of `width` bytes each: uint8 [B, n * width]."""
    values = flat.astype(np.uint32)
    out = np.empty(values.shape + (width,), np.uint8)
    for byte in range(width):
        out[:, :, byte] = (values >> np.uint32(7 * byte)) & 0x7F
    out[:, :, :-1] |= 0x80
    return out.reshape(len(values), values.shape[1] * width)
