"""The manifest has the hash of each piece of a shard, wherever the writer's chunks begin."""

import numpy as np
import pytest
import xxhash

from tests.tools.shard_factory import with_heads
from textmill.pipelines.writers.shard_files import find, staged_name, write_shard
from textmill.schemas.format import pieces
from textmill.schemas.format.pieces import piece_ends, piece_rows


@pytest.mark.parametrize("file_format", ["array_record", "tfrecord"])
@pytest.mark.parametrize(
    ("stride", "rows", "piece_bytes", "chunk"),
    [
        (100, 57, 1000, 7),  # 10 rows a piece; block headers between some
        (5000, 60, 20_000, 60),
        (700, 30, 7000, 10),  # the last piece is whole
        (70_000, 4, 1000, 3),  # a row is longer than a piece and than a block
        (100, 3, 1000, 1),
        (100, 0, 1000, 1),
    ],
)
def test_sums_are_those_of_the_bytes(
    file_format, stride, rows, piece_bytes, chunk, tmp_path, monkeypatch
):
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
    values = np.random.default_rng(0).integers(0, 256, (rows, stride), np.uint8)
    chunks = [values[start : start + chunk] for start in range(0, rows, chunk)]
    chunks = [values[:0], *chunks, values[:0]]
    if file_format == "array_record":
        chunks = [with_heads(chunk) for chunk in chunks]
    [file] = write_shard(chunks, str(tmp_path), "train-00000-of-00001", (file_format,), stride)
    data = (tmp_path / staged_name(file)).read_bytes()
    ends = piece_ends(file_format, stride, rows).tolist()
    assert len(ends) == -(-rows // piece_rows(stride))
    due = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert file.pieces == tuple(xxhash.xxh3_64(piece).hexdigest() for piece in due)
    for number, piece in enumerate(due):
        here = values[number * piece_rows(stride) : (number + 1) * piece_rows(stride)]
        assert piece.endswith(here[-1].tobytes()[-50:]) or file_format == "tfrecord"
        assert here[0].tobytes()[:50] in piece
    assert find(str(tmp_path), file).endswith(file.path)


def test_a_piece_has_a_mebibyte():
    assert piece_rows(5 << 10) == 204 and piece_rows(5 << 20) == 1
    assert piece_ends("tfrecord", 84, 5).tolist() == [500]
