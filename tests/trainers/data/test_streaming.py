"""Datasets larger than the cache: read in windows of pieces, from real servers with real faults."""

import contextlib
import hashlib
import itertools
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import numpy as np
import pytest

import textmill.trainers.data.batches
import textmill.trainers.data.shard_set
from tests.tools.places import ROOT
from tests.tools.range_server import RangeServer
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.set_files import WrongFileError
from textmill.schemas.format import pieces
from textmill.trainers.reader import ShardSet

# The libraries leave connections open at the end of a test.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
]
ROWS, PIECES, PIECE_BYTES, WINDOW = 6000, 500, 1990, 8
SIZES = f"""
from textmill.schemas.format import pieces
from textmill.trainers.data import batches, shard_set
pieces.PIECE_BYTES, shard_set.WINDOW_PIECES, batches._BYTES_PER_READ = {PIECE_BYTES}, {WINDOW}, 9000
"""


@pytest.fixture(scope="module", autouse=True)
def small_pieces():
    """Pieces of 12 rows, windows of 8, and reads of a fraction of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", PIECE_BYTES)
        patch.setattr(textmill.trainers.data.shard_set, "WINDOW_PIECES", WINDOW)
        patch.setattr(textmill.trainers.data.batches, "_BYTES_PER_READ", 9000)
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """6,000 training rows in 5 shards of 100 pieces; 200 of validation."""
    path = tmp_path_factory.mktemp("shards") / "set"
    write_mlm_set(path, train=ROWS, validation=200, shards={"train": 5, "validation": 1})
    return path


@pytest.fixture
def url(store, directory):
    """The dataset in an object store of each kind."""
    return store.upload(directory, "set")


@pytest.fixture
def gs_url(gs_store, directory):
    """The dataset in one."""
    return gs_store.upload(directory, "set")


@pytest.fixture
def cache(tmp_path):
    """A cache that holds nothing yet."""
    return tmp_path / "cache"


def size_of(directory, start="train-"):
    """Bytes of the shards."""
    return sum(path.stat().st_size for path in directory.glob(f"{start}*.tfrecord"))


def streamed(url, cache, directory, **options):
    """Through a cache of a tenth of the dataset."""
    bound = size_of(directory) / 10 / 1e9
    return ShardSet(url, cache_dir=str(cache), cache_gigabytes=bound, **options)


def collect(shards, start=0, stop=None, *, seed=5, size=60, **parts):
    """Steps of the training split, as a list of batches."""
    stop = ROWS // size if stop is None else stop
    where = {"batch_size": size, "seed": seed, "start_step": start, "stop_step": stop}
    return list(shards.batches("train", **where, **parts))


def assert_equal(found, due):
    assert len(found) == len(due)
    for one, other in zip(found, due, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def fetched(store, path="train-"):
    """Requests for ranges of shards so far."""
    return store.proxy.count("GET", path)


def cached_bytes(cache):
    total = 0
    for path in cache.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # removed to make room
            total += path.stat().st_size if path.is_file() else 0
    return total


def test_an_epoch_of_a_set_ten_times_as_large_as_the_cache(store, url, directory, cache):
    """Each row once, as in the directory, each piece fetched once, within the cache's bound."""
    shards = streamed(url, cache, directory)
    assert (shards.row_order, shards.order_name) == ("window", "window")
    bound, most, found = size_of(directory) / 10, 0, []
    for batch in shards.batches("train", batch_size=60, seed=5, stop_step=ROWS // 60):
        most = max(most, cached_bytes(cache))
        found.append(batch)
    here = ShardSet(str(directory), order="window")
    assert here.row_order == "window" and here.fingerprint == shards.fingerprint
    assert_equal(found, collect(here))
    rows = np.concatenate([batch["row_index"] for batch in found])
    assert sorted(rows.tolist()) == list(range(ROWS))
    assert most <= bound
    assert fetched(store) == len(shards._windows["train"].rows_P) == PIECES


def test_auto_is_the_order_of_all_rows_where_it_can_be(gs_url, directory, cache):
    full = collect(ShardSet(str(directory)), stop=3)
    whole = ShardSet(gs_url, cache_dir=str(cache))
    assert whole.row_order == "full"
    assert_equal(collect(whole, stop=3), full)
    with pytest.raises(UsageError, match="order='random': give one of auto, window, full"):
        ShardSet(str(directory), order="random")
    with pytest.raises(DataError, match="raise --cache_gigabytes, or read it in windows.*--order="):
        streamed(gs_url, cache, directory, order="full")


def test_any_step_and_any_part_is_that_of_the_whole(gs_url, directory, cache):
    """Resumed in the middle, and across epochs; on 1 and 3 hosts; pickled; by single rows."""
    here = ShardSet(str(directory), order="window")
    due = collect(here, 0, 210)
    there = streamed(gs_url, cache, directory)
    assert_equal(collect(there, 95, 105), due[95:105])
    assert_equal(collect(pickle.loads(pickle.dumps(there)), 50, 53), due[50:53])
    hosts = [
        collect(
            streamed(gs_url, cache.with_name(f"host{host}"), directory),
            *(57, 62),
            process_index=host,
            process_count=3,
        )
        for host in range(3)
    ]
    joined = [
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for parts in zip(*hosts, strict=True)
    ]
    assert_equal(joined, due[57:62])
    some = there.split("train", seed=5, count=10**6)
    np.testing.assert_array_equal(some[6100]["input_ids"], due[101]["input_ids"][40])
    assert "order window" in repr(some) and "order" not in repr(there.split("train"))
    np.testing.assert_array_equal(
        there.split("train")[77]["input_ids"], here.split("train")[77]["input_ids"]
    )


def test_resuming_fetches_one_window_before_the_first_batch(gs_url, gs_store, directory, cache):
    shards = streamed(gs_url, cache, directory)
    gs_store.proxy.clear()
    next(iter(shards.batches("train", batch_size=60, seed=5, start_step=48, prefetch=0)))
    shards.close()
    assert fetched(gs_store) <= 2 * WINDOW


def test_a_split_in_stored_order(gs_url, directory, cache):
    there, here = streamed(gs_url, cache, directory), ShardSet(str(directory))
    for split in ("train", "validation"):
        options = {"batch_size": 77}
        assert_equal(
            [*there.sequential_batches(split, **options)],
            [*here.sequential_batches(split, **options)],
        )
    rows = [row["input_ids"] for row in itertools.islice(there.split("train"), 100)]
    np.testing.assert_array_equal(rows, here.read("train", np.arange(100))["input_ids"])


def test_array_records(gs_store, tmp_path, cache):
    """Their pieces end between block headers, and rows cross these."""
    write_mlm_set(
        tmp_path / "set",
        train=4000,
        validation=10,
        shards={"train": 2, "validation": 1},
        file_formats=("array_record",),
    )
    there = ShardSet(gs_store.upload(tmp_path / "set", "set"), cache_dir=str(cache), order="window")
    here = ShardSet(str(tmp_path / "set"), order="window")
    assert_equal(collect(there, 0, 67), collect(here, 0, 67))


def test_faults_that_pass_do_no_harm(url, store, directory, cache):
    shards, proxy = streamed(url, cache, directory), store.proxy
    rules = [
        proxy.answer(503, "GET", "train-00000", times=2),
        proxy.cut_download("GET", "train-00001", after=2000),
        proxy.cut_download("GET", "train-00002", after=None),
        proxy.corrupt("GET", "train-00003", at=100, times=2),
        proxy.slow("GET", "train-00004", chunk=2000, seconds=0.01),
    ]
    assert_equal(collect(shards), collect(ShardSet(str(directory), order="window")))
    assert [rule for rule in rules if not rule.hits] == []


@pytest.mark.parametrize("damage", ["changed", "cut", "missing", "replaced"])
def test_what_stays_wrong_is_named(damage, gs_url, gs_store, directory, tmp_path, cache):
    """Also a dataset that is replaced while it is read: no row of the new one is read."""
    shards, name = streamed(gs_url, cache, directory), "train-00002-of-00005.tfrecord"
    batches = shards.batches("train", batch_size=60, seed=5, stop_step=100)
    due = collect(ShardSet(str(directory), order="window"))
    found = [next(batches)]
    content = (directory / name).read_bytes()
    if damage == "missing":
        gs_store.delete(f"set/{name}")
    elif damage == "changed":
        gs_store.put(f"set/{name}", bytes(byte ^ 1 for byte in content))
    elif damage == "cut":
        gs_store.put(f"set/{name}", content[:100])
    elif damage == "replaced":
        schema = mlm_schema(shards={"train": 5, "validation": 1})
        columns = {"train": packed_rows(schema, ROWS, 8), "validation": packed_rows(schema, 200, 9)}
        write_set(tmp_path / "other", schema, columns)
        gs_store.upload(tmp_path / "other", "set")
    with pytest.raises(DataError) as caught:
        found.extend(batches)
    assert f"{gs_url}/train-0000" in str(caught.value)
    if damage == "missing":
        assert "is missing, although MANIFEST.json lists it" in str(caught.value)
    else:
        assert isinstance(caught.value, WrongFileError)
        word = "bytes, but MANIFEST.json lists" if damage == "cut" else "has XXH3"
        assert word in str(caught.value) and "(after 3 downloads)" in str(caught.value)
        assert "(bytes " in str(caught.value) and "run the command again" in str(caught.value)
    assert_equal(found, due[: len(found)])


def test_damage_in_the_cache_is_fetched_again(gs_url, gs_store, directory, cache):
    collect(streamed(gs_url, cache, directory), 0, 5)
    there = [path for path in cache.rglob("*") if path.parent.name == "pieces"]
    kept = [path for path in there if path.is_file()]
    assert len(kept) > 2
    for path in kept[::2]:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    due = collect(ShardSet(str(directory), order="window"), 0, 5)
    assert_equal(collect(streamed(gs_url, cache, directory), 0, 5), due)
    shards = streamed(gs_url, cache, directory)
    batches = shards.batches("train", batch_size=60, seed=5, stop_step=100)
    found = [next(batches)]
    shutil.rmtree(cache, ignore_errors=True)  # under its reader, which goes on writing
    assert_equal([*found, *batches], collect(ShardSet(str(directory), order="window")))


def test_a_cache_that_is_too_small_is_refused(gs_url, gs_store, cache):
    with pytest.raises(
        DataError, match=r"set needs 0.0498 MB of the cache .* limit is 0.04 MB: raise --cache_g"
    ):
        ShardSet(gs_url, cache_dir=str(cache), cache_gigabytes=4e-5)
    assert fetched(gs_store) == 0


@pytest.mark.parametrize("kind", ["https", "hf"])
def test_web_servers_and_the_hub(kind, directory, cache, monkeypatch):
    """huggingface_hub reads the address of the Hub when it is imported."""
    with RangeServer(directory.parent) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        url = f"{server.url}/set" if kind == "https" else "hf://datasets/me/data/set"
        bound = str(size_of(directory) / 10 / 1e9)
        command = [sys.executable, "-c", READ, url, str(cache), bound]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
        assert done.returncode == 0, done.stderr
        sent = sum(size for name, size in server.served if "train-" in name)
    digest = hashlib.sha256()
    for batch in collect(ShardSet(str(directory), order="window")):
        digest.update(batch["input_ids"].tobytes())
    assert done.stdout.split()[-1] == digest.hexdigest()
    assert sent == size_of(directory)


READ = (
    SIZES
    + """
import hashlib, sys
from textmill.trainers.reader import ShardSet
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2], cache_gigabytes=float(sys.argv[3]))
digest = hashlib.sha256()
for batch in shards.batches("train", batch_size=60, seed=5, stop_step=100):
    digest.update(batch["input_ids"].tobytes())
    print(digest.hexdigest(), flush=True)
    sys.stdin.readline()
"""
)


def test_two_processes_share_a_cache(gs_url, gs_store, directory, cache):
    """Each piece is fetched once, but for a few, by processes that take their steps together."""
    bound = str(size_of(directory) / 5 / 1e9)
    command = [sys.executable, "-c", READ, gs_url, str(cache), bound]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
            )
            for _ in range(2)
        ]
        for _ in range(100):
            one, other = (cast(IO[str], reader.stdout).readline() for reader in readers)
            assert one == other and len(one) == 65
            for reader in readers:
                stdin = cast(IO[str], reader.stdin)
                stdin.write("\n")
                stdin.flush()
    assert fetched(gs_store) <= 1.1 * PIECES


def test_two_datasets_and_one_cache(gs_url, gs_store, directory, cache):
    """Either fits, both do not: they are streamed, in the order of the same local datasets."""
    other = gs_store.upload(directory, "other")
    bound = 1.5 * size_of(directory) / 1e9
    options = {"cache_dir": str(cache), "cache_gigabytes": bound}
    there = ShardSet.mix({gs_url: 0.75, other: 0.25}, **options)
    assert there.row_order == "window"
    here = ShardSet.mix({str(directory): 0.75, str(directory) + "/": 0.25}, order="window")
    assert_equal(collect(there, 30, 140), collect(here, 30, 140))
    local = ShardSet.mix({gs_url: 0.75, str(directory): 0.25}, **options)
    assert local.row_order == "full"
    with pytest.raises(UsageError, match="--cache_gigabytes=.*the datasets need"):
        ShardSet.mix({gs_url: 1, other: 1}, cache_dir=str(cache), cache_gigabytes=6e-5)
