"""TFRecord: framing against RFC 3720's vectors and TensorFlow's own reader and writer."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DataError
from schemas.records import crc32c, frame, open_rows


def _rows(count: int, stride: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, stride), np.uint8)


def _slow_crc32c(data: bytes) -> int:
    """Bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


_ISCSI_READ = (  # RFC 3720, B.4: a SCSI Read (10) command PDU
    "01c00000" "00000000" "00000000" "00000000" "14000000" "00000400"
    "00000014" "00000018" "28000000" "00000000" "02000000" "00000000"
)  # fmt: skip


def test_crc32c_of_published_vectors():
    vectors = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
        bytes.fromhex(_ISCSI_READ): 0xD9963A56,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    rows = {data: np.frombuffer(data, np.uint8)[None] for data in vectors}
    assert {data: int(crc32c(row)[0]) for data, row in rows.items()} == vectors


@given(st.lists(st.binary(min_size=11, max_size=11), max_size=4))
def test_crc32c_of_rows_equals_the_definition(rows):
    matrix = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), 11)
    assert crc32c(matrix).tolist() == [_slow_crc32c(row) for row in rows]


def test_tensorflow_reads_what_we_write_and_we_what_it_writes(tmp_path):
    import tensorflow as tf

    rows = _rows(5000, 37)
    ours, theirs = str(tmp_path / "ours.tfrecord"), str(tmp_path / "theirs.tfrecord")
    Path(ours).write_bytes(frame(rows).tobytes())
    with tf.io.TFRecordWriter(theirs) as writer:
        for row in rows:
            writer.write(row.tobytes())
    assert Path(ours).read_bytes() == Path(theirs).read_bytes()
    read = [bytes(record.numpy()) for record in tf.data.TFRecordDataset(ours)]
    assert b"".join(read) == rows.tobytes()
    reader = open_rows(theirs, 37)
    assert len(reader) == 5000
    np.testing.assert_array_equal(reader.read_range(10, 5000), rows[10:])
    indices = np.array([4999, 0, 7, 7, 131])
    np.testing.assert_array_equal(reader.read(indices), rows[indices])
    assert reader.read([]).shape == reader.read_range(3, 3).shape == (0, 37)
    reader.close()
    assert len(reader) == 0
    Path(ours).write_bytes(frame(rows[:0]).tobytes())
    assert open_rows(ours, 37).read_range(0, 0).shape == (0, 37)


def test_every_flipped_byte_of_a_tfrecord_is_noticed_and_its_record_named(tmp_path):
    path = tmp_path / "rows.tfrecord"
    rows = _rows(3, 21)
    whole = bytearray(frame(rows).tobytes())
    for place in range(len(whole)):
        for bit in (0x01, 0x80):
            whole[place] ^= bit
            path.write_bytes(whole)
            with pytest.raises(DataError, match=f"record {place // 37} fails its CRC32C"):
                open_rows(str(path), 21).read_range(0, 3)
            whole[place] ^= bit
    path.write_bytes(whole)
    np.testing.assert_array_equal(open_rows(str(path), 21).read_range(0, 3), rows)


def test_a_cut_tfrecord_is_refused(tmp_path):
    path = tmp_path / "rows.tfrecord"
    whole = frame(_rows(3, 21)).tobytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="110 bytes, which is not a multiple of records of 37"):
        open_rows(str(path), 21)
    # Cut between two records it looks whole: that is what the manifest's count is for.
    path.write_bytes(whole[:-37])
    assert len(open_rows(str(path), 21)) == 2


def test_a_missing_file_and_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(DataError, match="is missing, although the manifest lists it"):
        open_rows(str(tmp_path / "train-00000-of-00001.tfrecord"), 21)
    other = tmp_path / "train.parquet"
    shutil.copy(__file__, other)
    with pytest.raises(DataError, match=r"a shard must be \*.array_record or \*.tfrecord"):
        open_rows(str(other), 21)
