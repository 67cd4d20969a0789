"""Runs in the windowed order, local and streamed: what they read, and how they resume."""

import re

import numpy as np
import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.numpy_program import record_rows, remains_of, run_numpy
from textmill.schemas.errors import UsageError
from textmill.schemas.format import pieces
from textmill.trainers.data import shard_set
from textmill.trainers.reader import ShardSet
from textmill.trainers.run.run_directory import read_settings

pytestmark = [
    pytest.mark.usefixtures("no_picture"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """1,600 rows in pieces of 2,000 bytes and windows of 4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", 2000)
        patch.setattr(shard_set, "WINDOW_PIECES", 4)
        path = tmp_path_factory.mktemp("set") / "set"
        write_clm_set(path, train=1600, validation=5)
        yield path


def test_a_run_reads_what_the_reader_does(directory, gs_store, tmp_path, monkeypatch, capfd):
    """The same rows streamed from a bucket through a cache that is smaller than the dataset."""
    read = record_rows(monkeypatch)
    run_numpy(directory, tmp_path / "here", order="window")
    assert "rows are permuted in windows of 128 pieces of the dataset (--order=window)" in (
        capfd.readouterr().err
    )
    shards = ShardSet(str(directory), order="window")
    due = [
        batch["input_ids"]
        for batch in shards.batches("train", batch_size=4, seed=0, stop_step=len(read))
    ]
    np.testing.assert_array_equal(read, due)
    read.clear()
    bound = sum(file.bytes for file in shards.manifest.files if file.rows) * 0.4 / 1e9
    url, cache = gs_store.upload(directory, "set"), str(tmp_path / "cache")
    run_numpy(url, tmp_path / "there", cache_dir=cache, cache_gigabytes=bound)
    np.testing.assert_array_equal(read, due)
    config = read_settings(tmp_path / "there")["config"]
    assert (config["order"], read_settings(tmp_path / "here")["config"]["order"]) == ("window",) * 2


def test_a_resumed_run_is_an_unbroken_one_and_keeps_its_order(directory, tmp_path):
    run_numpy(directory, tmp_path / "whole", order="window")
    run_numpy(directory, tmp_path / "run", order="window", stop_after=5)
    due = f"{tmp_path}/run cannot be resumed with these settings: order was 'window', is 'full'"
    with pytest.raises(UsageError, match=re.escape(due)):
        run_numpy(directory, tmp_path / "run", resume=True)
    run_numpy(directory, tmp_path / "run", order="window", resume=True)
    assert remains_of(tmp_path / "run") == remains_of(tmp_path / "whole")
