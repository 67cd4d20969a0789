"""Files of rows as the libraries of their formats write and read them, and damaged ones."""

import io
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import (  # pyright: ignore[reportAttributeAccessIssue]
    ArrayRecordWriter,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.shard_factory import with_heads
from textmill.pipelines.writers.array_record_file import ArrayRecordFile
from textmill.pipelines.writers.highway_hash import highway_hash
from textmill.schemas.errors import DataError
from textmill.schemas.format.records import IN_BLOCK, crc32c, frame, open_rows


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
    assert reader.read_range(3, 3).shape == (0, 37)
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
    for records in (2, 0):
        path.write_bytes(whole[: 37 * records])
        reader = open_rows(str(path), 21)
        assert len(reader) == records and reader.read_range(0, records).shape == (records, 21)


def test_a_missing_file_and_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(DataError, match="is missing, although the manifest lists it"):
        open_rows(str(tmp_path / "train-00000-of-00001.tfrecord"), 21)
    other = tmp_path / "train.parquet"
    shutil.copy(__file__, other)
    with pytest.raises(DataError, match=r"a shard must be \*.array_record or \*.tfrecord"):
        open_rows(str(other), 21)


# ArrayRecord


HEAD = 43  # bytes of a chunk before a row of 1 to 127 bytes; 44 from 128 on, 45 from 16,384 on


def written(rows: np.ndarray, *, at_once: int = 1000) -> bytes:
    buffer = io.BytesIO()
    file = ArrayRecordFile(buffer, rows.shape[1])
    for start in range(0, len(rows), at_once):
        file.write(with_heads(rows[start : start + at_once]))
    file.finish()
    return buffer.getvalue()


def write_with_library(
    path: Path, rows: Iterable[np.ndarray], options: str = "group_size:1,uncompressed"
) -> None:
    writer = ArrayRecordWriter(str(path), options)
    for row in rows:
        writer.write(row.tobytes())
    writer.close()


def test_the_hash_of_the_format_description():
    """The signature of every Riegeli file: a block header and a chunk header, each after its hash.

    From doc/riegeli_records_file_format.md; the chunk's data is empty, and its hash stored too.
    """
    start = bytes.fromhex(
        "83af70d10d884a3f 0000000000000000 4000000000000000 91bac23c9287e1a9"
        "0000000000000000 e19f13c0e9b1c372 7300000000000000 0000000000000000"
    )
    for data, stored in ((start[8:24], start[:8]), (start[32:], start[24:32]), (b"", start[40:48])):
        row = np.frombuffer(bytearray(data), np.uint8)[None]
        assert highway_hash(row).tolist() == [int.from_bytes(stored, "little")]


@given(st.integers(0, 90), st.integers(1, 4000), st.integers(1, 100), st.integers(0, 99))
def test_bytes_are_those_of_the_library(tmp_path_factory, count, stride, at_once, seed):
    path = tmp_path_factory.mktemp("files") / "rows.array_record"
    rows = _rows(count, stride, seed)
    write_with_library(path, rows)
    assert written(rows, at_once=at_once) == path.read_bytes()


@pytest.mark.parametrize(
    ("count", "stride"),
    [
        (0, 50),
        (1, 1),
        (2, 16_383),
        (2, 16_384),
        (3, 70_000),  # a row longer than a block
        (2, 200_000),
        (20_000, 20),  # places that take 1, 2 and 3 bytes in the footer
        (160, IN_BLOCK // 8 - HEAD - 1),  # rows that end where blocks do
        *((33, length) for length in range(1, 65)),  # hashed side by side; each remainder of 32
        *((1, IN_BLOCK - 40 - HEAD - 2 - room) for room in range(-2, 120, 7)),  # the footer's place
        *((n, IN_BLOCK // 19 - HEAD - 1) for n in range(14, 19)),
    ],
)
def test_bytes_at_the_seams_are_those_of_the_library(tmp_path, count, stride):
    path = tmp_path / "rows.array_record"
    rows = _rows(count, stride)
    write_with_library(path, rows)
    assert written(rows) == path.read_bytes()
    reader = open_rows(str(path), stride)
    assert len(reader) == count
    np.testing.assert_array_equal(reader.read_range(0, count), rows)
    np.testing.assert_array_equal(reader.read_range(count // 3, count), rows[count // 3 :])
    assert reader.read_range(count, count).shape == (0, stride)
    reader.close()
    assert len(reader) == 0


@pytest.mark.parametrize(
    "options",
    [
        "group_size:1,zstd:1",
        "group_size:1,uncompressed,transpose",
        "group_size:8,uncompressed",
        *(0, 100, -1),  # bytes of a file that we wrote
    ],
)
def test_other_layouts_and_cut_files_are_refused(tmp_path, options):
    path = tmp_path / "rows.array_record"
    if isinstance(options, str):
        write_with_library(path, _rows(64, 60), options)
    else:
        path.write_bytes(written(_rows(64, 60))[:options])
    with pytest.raises(
        DataError, match=r"rows\.array_record is not a complete ArrayRecord file of u"
    ):
        open_rows(str(path), 60)


def test_rows_of_other_lengths_are_not_taken_for_ours(tmp_path):
    path = tmp_path / "rows.array_record"
    path.write_bytes(written(_rows(200, 40)))
    for stride in (1, 39, 41, 83):
        with pytest.raises(DataError, match=f"not a complete .* uncompressed rows of {stride} b"):
            open_rows(str(path), stride)

    def write(*lengths: int) -> None:
        write_with_library(path, [np.zeros(length, np.uint8) for length in lengths])

    write(40, 40, 20)  # the third is not a whole row
    with pytest.raises(DataError, match="not a complete .* uncompressed rows of 40 b"):
        open_rows(str(path), 40)
    write(40, 39, 41, 40)  # as many bytes in all, and the first and last are right
    reader = open_rows(str(path), 40)  # the bytes around a row are checked without hashes too
    with pytest.raises(DataError, match="record 1 fails its hash"):
        reader.read_range(0, 4)


def test_every_flipped_byte_of_a_row_is_noticed_and_its_record_named(tmp_path):
    path = tmp_path / "rows.array_record"
    rows = _rows(5, 70)
    whole = bytearray(written(rows))
    refused = 0
    # The rows, and the footer's head; between them the format fills its 64 KiB blocks with zeros.
    for place in [*range(64 + 5 * 113), *range(65536, 65700, 3)]:
        changed = bytearray(whole)
        changed[place] ^= 0x04
        path.write_bytes(changed)
        record = (place - 64) // 113
        try:
            reader = open_rows(str(path), 70, highway_hash)
            with closing(reader):
                read = reader.read_range(0, 5)
        except DataError as error:
            refused += 1
            assert str(path) in str(error)
            # The first and the last are checked when opening.
            assert record not in (1, 2, 3) or f"record {record} fails its hash" in str(error)
        else:
            assert record not in range(5)
            np.testing.assert_array_equal(read, rows)  # a byte that carries nothing
    assert refused > 5 * 113
