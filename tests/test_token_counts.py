"""Counts of ids by hand, and what becomes of a file that is not as it was written."""

import numpy as np
import pytest
from shard_factory import mlm_schema, packed_rows, replace_file, write_manifest, write_set

from pipelines.token_counts import (
    NO_COUNTS,
    TOKEN_COUNTS,
    add_token_counts,
    count_tokens,
    read_token_counts,
    token_counts_file,
)
from schemas.errors import DataError
from schemas.sidecar import read_set


def test_ids_of_all_streams_are_counted():
    streams = [np.array([1, 1, 3], np.uint16), np.array([3, 0], np.uint32), np.zeros(0, np.uint16)]
    assert count_tokens(streams, 5).tolist() == [1, 2, 0, 2, 0]
    long = np.resize(np.arange(7, dtype=np.uint16), 3_000_000)
    assert count_tokens([long], 7).tolist() == np.bincount(long).tolist()


def test_counts_add_up_and_none_is_the_neutral_one():
    counts = np.array([1, 2])
    assert add_token_counts([counts, np.array([10, 0])]).tolist() == [11, 2]
    assert add_token_counts([counts, NO_COUNTS]) is counts
    assert add_token_counts([NO_COUNTS, counts]) is counts


def test_a_set_gives_its_counts_back(tmp_path):
    schema = mlm_schema()
    directory = tmp_path / "set"
    write_set(
        directory,
        schema,
        {"train": packed_rows(schema, 4, 1), "validation": packed_rows(schema, 1, 2)},
    )
    info = read_set(str(directory))
    assert read_token_counts(info) is None
    counts = np.arange(50)
    (content,) = token_counts_file(counts).values()
    (directory / TOKEN_COUNTS).write_bytes(content)
    files = [(f.path, f.split, f.rows) for f in info.manifest.files]
    write_manifest(directory, schema, [*files, (TOKEN_COUNTS, None, None)])
    found = read_token_counts(read_set(str(directory)))
    assert found is not None and found.dtype == np.int64 and found.tolist() == counts.tolist()
    replace_file(directory, TOKEN_COUNTS, b"no numpy file")
    with pytest.raises(DataError, match="token_counts.npy: .*; copy the set again"):
        read_token_counts(read_set(str(directory)))
    replace_file(directory, TOKEN_COUNTS, token_counts_file(counts[:7])[TOKEN_COUNTS])
    with pytest.raises(DataError, match=r"holds int64 \[7\], where int64 \[50\] is due"):
        read_token_counts(read_set(str(directory)))
