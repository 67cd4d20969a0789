"""Values in scratch files arrive as they were, however many, and however the disk takes them."""

import os

import pyarrow as pa
import pytest

from textmill.pipelines.writers import scratch
from textmill.pipelines.writers.scratch import load, write_scratch

VALUES = [b"", b"ab", pa.py_buffer(b"cdefgh"), b"", b"i" * 20, b""]


@pytest.mark.parametrize("most", [1, 2, 3, 6, 1024])
@pytest.mark.parametrize("taken", [1, 2, 7, 1 << 20])
def test_values_survive_short_writes(most, taken, tmp_path, monkeypatch):
    """A call takes `most` values, and the disk only `taken` bytes of them."""
    monkeypatch.setattr(scratch, "_MOST_AT_ONCE", most)
    monkeypatch.setattr(os, "writev", lambda file, left: os.write(file, b"".join(left)[:taken]))
    pointers = write_scratch(str(tmp_path), VALUES)
    assert [load(pointer) for pointer in pointers] == [*map(bytes, VALUES)]
    [file] = tmp_path.iterdir()
    assert file.read_bytes() == b"abcdefgh" + b"i" * 20


def test_more_values_than_a_call_takes(tmp_path):
    values = [b"%d" % i for i in range(2 * os.sysconf("SC_IOV_MAX") + 1)]
    pointers = write_scratch(str(tmp_path), values)
    assert [load(pointer) for pointer in pointers] == values
