"""Counts of ids by hand, and what becomes of a file that is not as it was written."""

import io
import re
import shutil

import numpy as np
import pytest

from tests.tools.shard_factory import mlm_schema, packed_rows, replace_file, write_set
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.writers.token_counts import (
    NO_COUNTS,
    TOKEN_COUNTS,
    add_token_counts,
    count_tokens,
    read_token_counts,
)
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset


def test_ids_of_all_streams_are_counted_and_counts_add_up():
    streams = [np.array([1, 1, 3], np.uint16), np.array([3, 0], np.uint32), np.zeros(0, np.uint16)]
    assert count_tokens(streams, 5).tolist() == [1, 2, 0, 2, 0]
    long = np.resize(np.arange(7, dtype=np.uint16), 3_000_000)
    assert count_tokens([long], 7).tolist() == np.bincount(long).tolist()
    with pytest.raises(ValueError, match="the id 6 is not below the vocabulary's 6"):
        count_tokens([long], 6)
    counts = np.array([1, 2])
    assert add_token_counts([counts, np.array([10, 0])]).tolist() == [11, 2]
    assert add_token_counts([counts, NO_COUNTS]) is counts
    assert add_token_counts([NO_COUNTS, counts]) is counts


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A finished set of 50 ids with its counts; masked copies hold the same tokens."""
    directory = tmp_path_factory.mktemp("sets") / "set"
    schema = mlm_schema(mask_copies=2)
    rows = {"train": packed_rows(schema, 4, 1), "validation": packed_rows(schema, 1, 2)}
    rows["train"] = {name: np.repeat(v, 2, axis=0) for name, v in rows["train"].items()}
    write_set(directory, schema, rows)
    return directory


@pytest.fixture
def copied(directory, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(directory, tmp_path / "set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda counts: counts + (np.arange(50) == 7),
            r"counts \d+ tokens, but the rows have \d+, without masked copies",
        ),
        (lambda counts: counts - 99 * (np.arange(50) == 7), r"id 7 occurs -\d\d times"),
        (lambda counts: counts[:7], "has 184 bytes, but its ids take 528"),
        (lambda counts: counts / 1, r"does not hold int64 \[50\]"),
    ],
)
def test_counts_that_are_not_of_the_rows_are_found(copied, change, message):
    changed = io.BytesIO()
    np.save(changed, change(np.load(copied / TOKEN_COUNTS)))
    replace_file(copied, TOKEN_COUNTS, changed.getvalue())
    problem = verify_dataset(str(copied)).problems[0]
    assert TOKEN_COUNTS in problem and re.search(message, problem), problem


def test_counts_come_back_and_are_not_believed_if_they_were_changed(copied):
    info, path = read_dataset(str(copied)), copied / TOKEN_COUNTS
    counts = read_token_counts(info)
    assert counts is not None and counts.dtype == np.int64 and counts.shape == (50,)
    train, validation = (info.stats.split(name).tokens_in_rows for name in info.schema.splits)
    assert counts.sum() == train / 2 + validation
    assert verify_dataset(str(copied)).problems == []
    kept = path.read_bytes()
    path.write_bytes(kept[:128] + kept[136:144] + kept[128:136] + kept[144:])  # two ids swapped
    with pytest.raises(DataError, match="counts.npy was changed after it was published"):
        read_token_counts(read_dataset(str(copied)))
    replace_file(copied, TOKEN_COUNTS, b"no numpy file")
    with pytest.raises(DataError, match="counts.npy has 13 bytes.*; copy or build the dataset aga"):
        read_token_counts(read_dataset(str(copied)))
