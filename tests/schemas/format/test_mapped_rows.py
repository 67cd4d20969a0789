"""Rows in any order, of files of both formats and of many files at once."""

from pathlib import Path

import numpy as np
import pytest

from tests.tools.shard_factory import with_heads, write_rows
from textmill.pipelines.writers.array_record_file import ArrayRecordFile
from textmill.schemas.format.mapped_rows import MappedRows
from textmill.schemas.format.records import FORMATS, IN_BLOCK, RowReader, open_rows

HEAD = 44  # bytes of a chunk of ArrayRecord before a row of 128 to 16,383 bytes


def _rows(count: int, stride: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, stride), np.uint8)


def _open(path: Path, rows: np.ndarray) -> RowReader:
    if path.suffix == ".array_record":
        with path.open("wb") as file:
            records = ArrayRecordFile(file, rows.shape[1])
            records.write(with_heads(rows))
            records.finish()
    else:
        write_rows(path, rows)
    return open_rows(str(path), rows.shape[1])


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("count", "stride"),
    [
        (1, 1),
        (700, 300),
        (160, IN_BLOCK // 8 - HEAD),  # rows that end where blocks do
        *((40, IN_BLOCK // 8 - HEAD + more) for more in (-2, -1, 1)),
        (3, IN_BLOCK),
        (3, 70_000),  # rows longer than a block
        (4, 200_000),
    ],
)
def test_rows_are_those_of_the_file(tmp_path, file_format, count, stride):
    rows = _rows(count, stride)
    mapped = MappedRows([_open(tmp_path / f"rows.{file_format}", rows)], stride)
    order = np.random.default_rng(1).permutation(count)
    gathered = mapped.gather(np.zeros_like(order), order)
    np.testing.assert_array_equal(gathered, rows[order], strict=True)
    assert gathered.flags.c_contiguous and gathered.flags.writeable


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_many_files_that_are_opened_by_and_by(tmp_path, file_format):
    counts = (30, 0, 500, 1, 7)
    rows = [_rows(count, 90, seed) for seed, count in enumerate(counts)]
    readers = [_open(tmp_path / f"{i}.{file_format}", part) for i, part in enumerate(rows)]
    files = np.repeat(np.arange(5), counts)
    numbers = np.concatenate([np.arange(count) for count in counts])
    order = np.random.default_rng(2).permutation(len(files))
    files, numbers = files[order], numbers[order]
    mapped = MappedRows([None] * 5, 90)
    assert mapped.closed(files) == [0, 2, 3, 4]
    mapped = MappedRows([None, *readers[1:4], None], 90)
    assert mapped.closed(files) == [0, 4] and mapped.closed(files[:0]) == []
    for file, row in ((0, 0), (1, 0), (2, 500), (2, -1), (4, 0)):
        with pytest.raises(IndexError, match="a file does not have such a row"):
            mapped.gather(np.array([3, file]), np.array([0, row]))
    mapped = MappedRows(readers, 90)
    for reader in readers:
        reader.close()  # `mapped` still has what it was given
    np.testing.assert_array_equal(mapped.gather(files, numbers), np.concatenate(rows)[order])
    for nothing in (mapped, MappedRows([None], 90)):
        assert nothing.gather(files[:0], files[:0]).shape == (0, 90)
