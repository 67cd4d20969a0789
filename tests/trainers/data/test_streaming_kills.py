"""A reader of a streamed set that is killed again and again, and resumed, in one cache."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

import textmill.trainers.data.batches
import textmill.trainers.data.shard_set
from tests.tools.places import ROOT
from tests.tools.shard_factory import write_mlm_set
from tests.trainers.data.test_streaming import PIECE_BYTES, ROWS, SIZES, WINDOW, size_of
from textmill.schemas.format import pieces
from textmill.trainers.reader import ShardSet

KILLS, STEPS, BATCH = 20, 300, 60
READ = (
    SIZES
    + f"""
import sys
from textmill.trainers.reader import ShardSet
url, cache, bound, start, out = sys.argv[1:]
shards = ShardSet(url, cache_dir=cache, cache_gigabytes=float(bound))
where = dict(batch_size={BATCH}, seed=5, start_step=int(start), stop_step={STEPS})
with open(out, "ab", buffering=0) as file:
    for batch in shards.batches("train", **where):
        file.write(batch["row_index"].tobytes() + batch["input_ids"].tobytes())
"""
)


@pytest.mark.slow
def test_a_reader_that_is_killed_twenty_times(gs_store, tmp_path, monkeypatch):
    """At seeded moments of three epochs: rows and their order are those of an unbroken reader."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(textmill.trainers.data.shard_set, "WINDOW_PIECES", WINDOW)
    monkeypatch.setattr(textmill.trainers.data.batches, "_BYTES_PER_READ", 9000)
    directory, out = tmp_path / "set", tmp_path / "rows"
    write_mlm_set(directory, train=ROWS, validation=10, shards={"train": 5, "validation": 1})
    here = ShardSet(str(directory), order="window")
    batches = here.batches("train", batch_size=BATCH, seed=5, stop_step=STEPS)
    steps = [(batch["row_index"], batch["input_ids"]) for batch in batches]
    assert np.array_equal(
        np.bincount(np.concatenate([rows for rows, _ in steps])), np.full(ROWS, 3)
    )
    due = [rows.tobytes() + ids.tobytes() for rows, ids in steps]
    url, length, moments = gs_store.upload(directory, "set"), len(due[0]), random.Random(7)
    gs_store.proxy.slow("GET", "train-", chunk=1000, seconds=0.005)  # so that downloads are cut
    bound = str(size_of(directory) / 10 / 1e9)
    out.touch()

    def start():
        done = out.stat().st_size // length
        with open(out, "ab") as file:
            file.truncate(done * length)
        given = [url, str(tmp_path / "cache"), bound, str(done), str(out)]
        return done, subprocess.Popen([sys.executable, "-c", READ, *given], cwd=ROOT)

    kills = 0
    while kills < KILLS:
        done, reader = start()
        wanted = (done + moments.randint(0, 9)) * length
        while reader.poll() is None and out.stat().st_size <= wanted:
            time.sleep(0.001)
        time.sleep(moments.random() / 20)
        assert reader.poll() is None, "it was to be killed before its end"
        reader.kill()
        reader.wait()
        kills += 1
    assert out.stat().st_size < STEPS * length
    _, reader = start()
    assert reader.wait(timeout=100) == 0
    assert out.read_bytes() == b"".join(due)
