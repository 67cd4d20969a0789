"""ArrayRecord files written and read by us, against the library's own writer and readers."""

import io
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import (  # pyright: ignore[reportAttributeAccessIssue]
    ArrayRecordWriter,
)
from hypothesis import given
from hypothesis import strategies as st

from pipelines.writers.array_record_file import ArrayRecordFile, highway_hash
from schemas.errors import DataError
from schemas.records import IN_BLOCK, open_rows

HEAD = 43  # bytes of a chunk before a row of 1 to 127 bytes; 44 from 128 on, 45 from 16,384 on


def random_rows(count: int, stride: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, stride), np.uint8)


def written(rows: np.ndarray, *, at_once: int = 1000) -> bytes:
    buffer = io.BytesIO()
    file = ArrayRecordFile(buffer, rows.shape[1])
    for start in range(0, len(rows), at_once):
        file.write(rows[start : start + at_once])
    file.finish()
    return buffer.getvalue()


def write_with_library(
    path: Path, rows: np.ndarray, options: str = "group_size:1,uncompressed"
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
    rows = random_rows(count, stride, seed)
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
    rows = random_rows(count, stride)
    write_with_library(path, rows)
    assert written(rows) == path.read_bytes()
    reader = open_rows(str(path), stride)
    assert len(reader) == count
    np.testing.assert_array_equal(reader.read_range(0, count), rows)
    np.testing.assert_array_equal(reader.read_range(count // 3, count), rows[count // 3 :])
    order = np.random.default_rng(1).permutation(count)
    np.testing.assert_array_equal(reader.read(order), rows[order])
    for index in (count, -1):
        with pytest.raises(IndexError, match=f"has {count:,} rows"):
            reader.read([index])
    assert reader.read([]).shape == reader.read_range(count, count).shape == (0, stride)
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
        write_with_library(path, random_rows(64, 60), options)
    else:
        path.write_bytes(written(random_rows(64, 60))[:options])
    with pytest.raises(
        DataError, match=r"rows\.array_record is not a complete ArrayRecord file of u"
    ):
        open_rows(str(path), 60)


def test_rows_of_other_lengths_are_not_taken_for_ours(tmp_path):
    path = tmp_path / "rows.array_record"
    path.write_bytes(written(random_rows(200, 40)))
    for stride in (1, 39, 41, 83):
        with pytest.raises(DataError, match=f"not a complete .* uncompressed rows of {stride} b"):
            open_rows(str(path), stride)

    def write(*lengths: int) -> None:
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        for length in lengths:
            writer.write(bytes(length))
        writer.close()

    write(40, 40, 20)  # the third is no whole row
    with pytest.raises(DataError, match="not a complete .* uncompressed rows of 40 b"):
        open_rows(str(path), 40)
    write(40, 39, 41, 40)  # as many bytes in all, and the first and last are right
    reader = open_rows(str(path), 40)  # the bytes around a row are checked without hashes too
    with pytest.raises(DataError, match="record 1 fails its hash"):
        reader.read_range(0, 4)


def test_every_flipped_byte_of_a_row_is_noticed_and_its_record_named(tmp_path):
    path = tmp_path / "rows.array_record"
    rows = random_rows(5, 70)
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
