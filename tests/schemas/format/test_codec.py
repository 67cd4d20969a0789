"""Rows against bytes written by hand, TensorFlow's parser and protobuf's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from textmill.schemas.errors import DataError
from textmill.schemas.format.codec import ENCODINGS, RowCodec
from textmill.schemas.format.features import Feature, positions_from_segments, task_features


def _feature(name: str, dtype: str, *shape: int, kind: str = "numbers") -> Feature:
    return Feature(name, dtype, shape, "for a test", kind)


def test_bytes_of_a_row_worked_by_hand():
    codec = RowCodec([_feature("a", "uint16", 2), _feature("b", "uint8")], "bytes")
    rows = codec.encode({"a": np.array([[1, 0x0203]]), "b": np.array([7])})
    a = b"\x0a\x01a" + b"\x12\x08" + b"\x0a\x06" + b"\x0a\x04" + b"\x01\x00\x03\x02"
    b = b"\x0a\x01b" + b"\x12\x05" + b"\x0a\x03" + b"\x0a\x01" + b"\x07"
    features = b"\x0a\x0d" + a + b"\x0a\x0a" + b
    assert rows.tobytes() == b"\x0a" + bytes([len(features)]) + features
    assert codec.stride == rows.shape[1] == 29


def test_int64_list_of_a_row_worked_by_hand():
    codec = RowCodec([_feature("a", "uint16", 2)], "int64_list")
    rows = codec.encode({"a": np.array([[1, 300]])})
    # 300 = 2 * 128 + 44; every varint is padded to three bytes.
    values = b"\x81\x80\x00" + b"\xac\x82\x00"
    a = b"\x0a\x01a" + b"\x12\x0a" + b"\x1a\x08" + b"\x0a\x06" + values
    features = b"\x0a\x0f" + a
    assert rows.tobytes() == b"\x0a" + bytes([len(features)]) + features


def test_bits_of_a_row_worked_by_hand():
    features = [
        _feature("flags", "uint8", 9, kind="flags"),
        _feature("ids", "uint16", 1),
        _feature("segments", "uint16", 9, kind="segments"),
    ]
    codec = RowCodec(features, "bits")
    rows = codec.encode(
        {
            "flags": np.array([[1, 0, 1, 1, 0, 0, 0, 0, 1]]),
            "ids": np.array([[0x0102]]),
            "segments": np.array([[1, 1, 1, 2, 3, 3, 3, 0, 0]]),
        }
    )
    flags = b"\x0a\x05flags" + b"\x12\x06" + b"\x0a\x04" + b"\x0a\x02" + bytes([0b1101, 0b1])
    ids = b"\x0a\x03ids" + b"\x12\x06" + b"\x0a\x04" + b"\x0a\x02" + b"\x02\x01"
    # Three segments, which begin at 0, 3 and 4; the padding begins at 7.
    values = b"\x03\x00" + bytes([0b10011001, 0b0])
    segments = b"\x0a\x08segments" + b"\x12\x08" + b"\x0a\x06" + b"\x0a\x04" + values
    features = b"\x0a\x0f" + flags + b"\x0a\x0d" + ids + b"\x0a\x14" + segments
    assert rows.tobytes() == b"\x0a" + bytes([len(features)]) + features


def test_ids_of_32_bits_take_three_bytes():
    codec = RowCodec([_feature("a", "uint32", 2, kind="ids")])
    rows = codec.encode({"a": np.array([[0x010203, 0xFFFEFD], [7, 65_536]])})
    values = [b"\x03\x02\xfd\xfe" + b"\x01\xff", b"\x07\x00\x00\x00" + b"\x00\x01"]
    assert [row[-6:].tobytes() for row in rows] == values
    decoded = codec.decode(rows)["a"]
    assert decoded.dtype == np.uint32 and decoded.tolist() == [[0x010203, 0xFFFEFD], [7, 65_536]]
    with pytest.raises(ValueError, match="a has 16777216, but ids are below 16777216"):
        codec.encode({"a": np.array([[1, 1 << 24]])})


@st.composite
def _segments(draw: st.DrawFn, size: int) -> list[int]:
    """Segments 1 to n in order, of any lengths, then padding."""
    padding = draw(st.integers(0, size))
    begins = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    numbers = [1 + sum(begins[1 : place + 1]) for place in range(size - padding)]
    return numbers + [0] * padding


@given(st.data(), st.integers(1, 40), st.sampled_from(["uint8", "uint16", "uint32"]))
def test_each_kind_comes_back_from_its_bits(data, size, dtype):
    rows = data.draw(st.lists(_segments(size), max_size=4), "rows")
    segments = np.array(rows, dtype).reshape(-1, size)
    flags = data.draw(hnp.arrays(dtype, segments.shape, elements=st.integers(0, 1)), "flags")
    wide, below = ("uint32", 1 << 24) if dtype == "uint32" else ("uint16", 1 << 16)
    ids = data.draw(hnp.arrays(wide, segments.shape, elements=st.integers(0, below - 1)), "ids")
    columns = {"flags": flags, "ids": ids, "segments": segments}
    codec = RowCodec([_feature(name, c.dtype.name, size, kind=name) for name, c in columns.items()])
    stored = codec.encode(columns)
    assert stored.shape == (len(rows), codec.stride)
    decoded = codec.decode(stored)
    for name, expected in columns.items():
        assert decoded[name].dtype == expected.dtype and decoded[name].flags.c_contiguous
        np.testing.assert_array_equal(decoded[name], expected)
        decoded[name][...] = 0  # columns may be written to


@pytest.mark.parametrize(
    "row", [[2, 2, 2], [1, 3, 3], [1, 2, 1], [0, 1, 1], [1, 0, 1], [1, 0, 2], [0, 0, 1]]
)
def test_rows_that_bits_cannot_hold_are_refused(row):
    segments = RowCodec([_feature("s", "uint8", 3, kind="segments")])
    with pytest.raises(ValueError, match="s has . at token . of row 1: the segments"):
        segments.encode({"s": np.array([[1, 2, 0], row])})
    flags = RowCodec([_feature("f", "uint8", 3, kind="flags")])
    if max(row) > 1:
        with pytest.raises(ValueError, match="f has .*, but its values are 0 and 1"):
            flags.encode({"f": np.array([row])})


@pytest.mark.parametrize(("number", "bits"), [(3, 0b011), (0, 0b011), (1, 0b110), (1, 0b111)])
def test_segments_that_no_encoder_wrote_are_refused(number, bits):
    codec = RowCodec([_feature("s", "uint8", 3, kind="segments")])
    rows = codec.encode({"s": np.array([[1, 2, 2], [1, 2, 0]])})
    rows[1, -2:] = number, bits
    with pytest.raises(DataError, match="row 8 .*: the number of segments in s is wrong"):
        codec.decode(rows, first_row=7)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(data=st.data())
def test_what_is_encoded_is_decoded(encoding, data):
    shapes = st.sampled_from([(), (1,), (3,), (130,), (2, 3)])
    dtypes = st.sampled_from(["uint8", "uint16", "uint32"])
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9)
    drawn = data.draw(
        st.dictionaries(names, st.tuples(dtypes, shapes), min_size=1, max_size=4), "features"
    )
    features = [_feature(name, dtype, *shape) for name, (dtype, shape) in drawn.items()]
    count = data.draw(st.integers(0, 4), "rows")
    columns = {f.name: data.draw(hnp.arrays(f.dtype, (count, *f.shape)), f.name) for f in features}
    codec = RowCodec(features, encoding)
    rows = codec.encode(columns)
    assert rows.shape == (count, codec.stride) and rows.dtype == np.uint8
    assert RowCodec(features[::-1], encoding).encode(columns).tobytes() == rows.tobytes()
    headed = codec.encode(columns, b"head")
    assert [row.tobytes() for row in headed] == [b"head" + row.tobytes() for row in rows]
    rows.flags.writeable = False  # as a file that is mapped
    decoded = codec.decode(rows)
    assert set(decoded) >= set(columns)
    for feature in features:
        values = decoded[feature.name]
        assert values.dtype == feature.dtype
        np.testing.assert_array_equal(values, columns[feature.name])
        values[...] = 0  # columns may be written to
    assert codec.encode(columns).tobytes() == rows.tobytes()


def test_values_of_a_wider_dtype_are_encoded_if_they_fit():
    codec = RowCodec([_feature("input_ids", "uint16", 2)])
    rows = codec.encode({"input_ids": np.array([[65_535, 0]], np.int64)})
    assert codec.decode(rows)["input_ids"].tolist() == [[65_535, 0]]
    assert codec.encode({"input_ids": np.zeros((0, 2), np.int64)}).shape == (0, codec.stride)
    marks = codec.encode({"input_ids": np.array([[True, False]])})
    assert codec.decode(marks)["input_ids"].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[65_536, 0]], "has .* which uint16 does not hold"),
        ([[-1, 0]], "has .* which uint16 does not hold"),
        ([[0.5, 1]], "has .* which uint16 does not hold"),
        ([[0, 0, 0]], r"has shape \(1, 3\), not \(1, 2\)"),
    ],
)
def test_a_column_that_its_feature_does_not_hold_is_refused(values, message):
    codec = RowCodec([_feature("input_ids", "uint16", 2)])
    with pytest.raises(ValueError, match=f"input_ids {message}"):
        codec.encode({"input_ids": np.array(values)})
    with pytest.raises(ValueError, match="encoding 'json': one of bits, bytes, int64_list"):
        RowCodec([_feature("a", "uint8")], "json")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_change_of_any_constant_byte_is_refused(encoding):
    features = [_feature("a", "uint16", 2), _feature("b", "uint8"), _feature("c", "uint8", 0)]
    codec = RowCodec(features, encoding)
    columns = {"a": np.full((3, 2), 0x0101), "b": np.full(3, 0x01), "c": np.zeros((3, 0), int)}
    rows = codec.encode(columns)
    # A value's byte may change unseen (the CRC is there for that): as worked by hand above, the
    # values of a and b are the ends of a's and of b's entries; c has none.
    holes = [*range(13, 19), 30, 31] if encoding == "int64_list" else [*range(13, 17), 28]
    assert rows[0, holes].any() and codec.stride > holes[-1] + 1
    for place in set(range(codec.stride)) - {*holes}:
        changed = rows.copy()
        changed[1, place] ^= 0x01
        with pytest.raises(DataError, match="row 8 does not match this schema"):
            codec.decode(changed, first_row=7)
        with pytest.raises(DataError, match="row 1 does not match this schema"):
            codec.decode(changed)
    with pytest.raises(DataError, match=f"its rows have {codec.stride} bytes"):
        codec.decode(rows[:, 1:])


def test_varints_that_are_not_padded_or_too_large_are_refused():
    codec = RowCodec([_feature("a", "uint8", 1)], "int64_list")
    for value in (b"\x05\x00", b"\x85\x80", b"\x80\x02"):  # not padded, no end, 256
        rows = codec.encode({"a": np.array([[5], [6]])})
        rows[1, -2:] = np.frombuffer(value, np.uint8)
        with pytest.raises(DataError, match="row 8 .*: a value of a is not uint8 in 2 bytes"):
            codec.decode(rows, first_row=7)


@pytest.mark.parametrize("vocab_size", [30_000, 100_000])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tensorflow_and_protobuf_read_rows(encoding, vocab_size):
    import tensorflow as tf

    features = task_features("mlm", max_length=130, vocab_size=vocab_size, max_masked=20)
    codec = RowCodec(features, encoding)
    columns = {}
    for feature in features:  # the whole range of each dtype, both ends among them
        top, shape = np.iinfo(feature.dtype).max, (6, *feature.shape)
        if encoding == "bits":
            top = {"numbers": top, "ids": min(top, (1 << 24) - 1)}.get(feature.kind, 1)
        values = np.random.default_rng(0).integers(0, top, shape, feature.dtype, endpoint=True)
        values[0], values[1] = 0, top
        if encoding == "bits" and feature.kind == "segments":
            values[2:] = np.cumsum(values[2:], axis=1) + 1 - values[2:, :1]
        columns[feature.name] = values
    rows = codec.encode(columns)
    if encoding == "int64_list":
        columns["positions"] = positions_from_segments(columns["segment_ids"])
    fixed = {
        f.name: tf.io.FixedLenFeature([], tf.string)
        if encoding != "int64_list"
        else tf.io.FixedLenFeature(f.shape, tf.int64)
        for f in codec.features
    }
    for index, row in enumerate(rows):
        parsed = tf.io.parse_single_example(row.tobytes(), fixed)
        example = tf.train.Example.FromString(row.tobytes())
        assert sorted(example.features.feature) == sorted(columns)
        for feature in codec.features:
            expected = columns[feature.name][index]
            values = example.features.feature[feature.name]
            if encoding != "int64_list":
                (blob,) = values.bytes_list.value
                assert blob == parsed[feature.name].numpy()
                if encoding == "bits" and feature.kind != "numbers":
                    assert _of_bits(blob, feature) == expected.tolist()
                    continue
                little_endian = np.dtype(feature.dtype).newbyteorder("<")
                assert blob == expected.astype(little_endian).tobytes()
            else:
                assert list(values.int64_list.value) == expected.tolist()
                np.testing.assert_array_equal(parsed[feature.name].numpy(), expected)


def _of_bits(blob: bytes, feature: Feature) -> list[int]:
    """The values of a feature of ids, flags or segments, one by one."""
    if feature.kind == "ids":
        low, high = blob[: 2 * feature.size], blob[2 * feature.size :]
        values = [int.from_bytes(low[at : at + 2], "little") for at in range(0, len(low), 2)]
        return [
            value + (top << 16)
            for value, top in zip(values, high or bytes(len(values)), strict=True)
        ]
    head = np.dtype(feature.dtype).itemsize if feature.kind == "segments" else 0
    bits = int.from_bytes(blob[head:], "little")
    values = [bits >> place & 1 for place in range(feature.size)]
    if feature.kind == "flags":
        return values
    numbers = [sum(values[: place + 1]) for place in range(feature.size)]
    segments = int.from_bytes(blob[:head], "little")
    return [number if number <= segments else 0 for number in numbers]
