"""Sets on gs:// and s3:// through the cache: real servers, real faults, several processes."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import schemas.stores.set_files
import schemas.stores.store
from pipelines import export, inspect_shards, verify
from pipelines.inspection.checks.set_check import verify_set
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set
from schemas.stores.set_files import Cache, WrongFile, default_directory
from tests.tools.class_factory import write_class_set
from tests.tools.places import ROOT
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from trainers.data.mixture import open_shards, parse_shards, shards_name
from trainers.flax_mlm import main as flax_mlm
from trainers.poptorch_classifier import main as poptorch_classifier
from trainers.reader import ShardSet

SHARDS = {"train": 6, "validation": 1}
# What the libraries leave behind at the end of a test is theirs to close.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """600 training rows in 6 shards of 8,200 bytes, 20 of validation."""
    path = tmp_path_factory.mktemp("shards") / "set"
    write_mlm_set(path, train=600, validation=20, shards=SHARDS)
    return path


@pytest.fixture
def url(store, directory):
    """The set in a store."""
    return store.upload(directory, "shards/set")


@pytest.fixture
def cache(tmp_path):
    """A cache that holds nothing yet."""
    return tmp_path / "cache"


@pytest.fixture
def impatient(monkeypatch):
    """Gives up after seconds, not minutes."""
    monkeypatch.setattr(schemas.stores.store, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(schemas.stores.store, "PATIENCE_SECONDS", 0.5)


def opened(url, cache, **options):
    return ShardSet(url, cache_dir=str(cache), **options)


def shard(number):
    return f"train-0000{number}-of-00006.tfrecord"


def kept(cache):
    """Files in the cache, but for locks."""
    return sorted(p.name for p in cache.rglob("*") if p.is_file() and "/." not in str(p))


def gets(store, path):
    return store.proxy.count("GET", path)


def read_all(shards, split="train"):
    """All rows of a split, in order."""
    batches = list(shards.in_order(split, batch_size=50))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def assert_equal(found, due):
    assert found.keys() == due.keys()
    for name in due:
        np.testing.assert_array_equal(found[name], due[name], err_msg=name)


# Reading


def test_batches_are_those_of_the_directory(url, directory, cache):
    here, there = ShardSet(str(directory)), opened(url, cache)
    assert (there.directory, there.name, there.fingerprint) == (url, url, here.fingerprint)
    assert there.splits == here.splits and there.rows("train") == 600
    options = dict(batch_size=64, seed=3, start_step=2, stop_step=14)
    pairs = zip(there.batches("train", **options), here.batches("train", **options), strict=True)
    for found, due in pairs:
        assert_equal(found, due)
    assert_equal(read_all(there, "validation"), read_all(here, "validation"))
    row = there.split("train")[599]
    assert_equal(row, here.split("train")[599])
    paths = [Path(path) for path in there.paths("train")]
    assert [path.name for path in paths] == [shard(number) for number in range(6)]
    assert [p.read_bytes() for p in paths] == [Path(p).read_bytes() for p in here.paths("train")]
    assert Path(there.locate("tokenizer.json")).read_bytes()
    again = pickle.loads(pickle.dumps(there))
    assert_equal(read_all(again), read_all(here))
    there.close()
    assert_equal(read_all(there), read_all(here))


def test_what_is_in_the_cache_is_not_fetched_again(url, store, cache):
    read_all(opened(url, cache))
    assert gets(store, "train-") == 6 and gets(store, "validation-") == 0
    store.proxy.clear()
    read_all(opened(url, cache))
    assert {path.rsplit("/", 1)[1][:8] for _, path in store.proxy.requests} == {"MANIFEST"}


def test_only_one_format_is_fetched(gs_store, tmp_path, cache):
    formats = ("array_record", "tfrecord")
    write_mlm_set(tmp_path / "set", file_formats=formats)
    shards = opened(gs_store.upload(tmp_path / "set", "set"), cache, file_format="tfrecord")
    read_all(shards)
    assert gets(gs_store, "array_record") == 0 and gets(gs_store, "tfrecord") == 2


def test_a_batch_waits_for_no_other_shard_than_its_own(url, store, cache):
    shards = opened(url, cache)
    store.proxy.hang("GET", shard(4))
    for number, batch in enumerate(shards.in_order("train", batch_size=100, prefetch=0)):
        assert batch["row_index"][0] == 100 * number
        if number == 3:
            break
    store.proxy.clear()


def test_the_other_shards_follow_in_the_background(url, cache):
    shards = opened(url, cache)
    next(shards.in_order("train", batch_size=1, prefetch=0))
    deadline = time.monotonic() + 20
    while shards.fetching("train") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [name for name in kept(cache) if name.startswith("train")] == [
        shard(number) for number in range(6)
    ]


def test_a_mixture_of_a_store_and_a_directory(gs_store, directory, tmp_path, cache):
    write_mlm_set(tmp_path / "other", train=50)
    url = gs_store.upload(directory, "shards/set")
    text = f"{url}:0.7,{tmp_path / 'other'}:0.3"
    found = open_shards(text, seed=1, cache_dir=str(cache))
    due = open_shards(text.replace(url, str(directory)), seed=1)
    options = dict(batch_size=32, seed=1, stop_step=5)
    for one, two in zip(
        found.batches("train", **options), due.batches("train", **options), strict=True
    ):
        assert_equal(one, two)


def test_shards_flags_with_urls():
    assert parse_shards("gs://b/x") == {"gs://b/x": None}
    assert parse_shards("s3://b/x:0.7,gs://b/y:0.3,z:1") == {
        "s3://b/x": 0.7,
        "gs://b/y": 0.3,
        "z": 1.0,
    }
    assert shards_name("s3://b/x:0.7,gs://b/y/:0.3") == "x+y"


def test_the_default_cache_is_the_users(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_directory() == "/c/textmill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert default_directory() == "/h/.cache/textmill"


def test_a_set_built_anew_under_its_name_is_another(gs_store, directory, tmp_path, cache):
    url = gs_store.upload(directory, "set")
    before = read_all(opened(url, cache))
    schema = mlm_schema(shards=SHARDS)
    columns = {"train": packed_rows(schema, 600, 8), "validation": packed_rows(schema, 20, 9)}
    write_set(tmp_path / "anew", schema, columns)
    gs_store.upload(tmp_path / "anew", "set")
    after = read_all(opened(url, cache))
    assert_equal(after, read_all(ShardSet(str(tmp_path / "anew"))))
    assert (before["input_ids"] != after["input_ids"]).any()


def test_read_set_fetches_metadata_only(url, store, directory, cache):
    info = read_set(url, Cache(str(cache)))
    assert (info.directory, info.schema) == (url, read_set(str(directory)).schema)
    assert gets(store, "train-|validation-") == 0
    with info.borrow(shard(2)) as path:
        assert Path(path).read_bytes() == (directory / shard(2)).read_bytes()
    assert not os.path.exists(path) and shard(2) not in kept(cache)


def test_a_forked_process_and_its_parent_read(url, store, cache):
    script = """
import multiprocessing, sys
from trainers.reader import ShardSet
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2])
next(shards.in_order("train", batch_size=1, prefetch=0))  # threads and sockets are there
def read(start):
    return int(shards.read("train", range(start, start + 300))["input_ids"].astype(int).sum())
with multiprocessing.get_context("fork").Pool(2) as pool:
    parts = pool.map(read, [0, 300])
    assert sum(parts) == read(0) + read(300)
"""
    done = subprocess.run([sys.executable, "-c", script, url, str(cache)], timeout=60, cwd=ROOT)
    assert done.returncode == 0
    assert gets(store, "train-") == 6


# Faults


@pytest.mark.parametrize("fault", ["503", "reset", "reset at once", "slow", "wrong bytes"])
def test_a_fault_that_passes_does_no_harm(fault, url, store, directory, cache):
    rules = {
        "503": lambda: store.proxy.answer(503, "GET", shard(1)),
        "reset": lambda: store.proxy.cut_download("GET", shard(1), after=4000),
        "reset at once": lambda: store.proxy.cut_download("GET", shard(1), after=None),
        "slow": lambda: store.proxy.slow("GET", "train-", chunk=2000, seconds=0.05),
        "wrong bytes": lambda: store.proxy.corrupt("GET", shard(1), at=4000),
    }
    rule = rules[fault]()
    assert_equal(read_all(opened(url, cache)), read_all(ShardSet(str(directory))))
    assert rule.hits >= 1
    assert not [name for name in kept(cache) if name.endswith(".part")]


def test_a_manifest_that_comes_after_a_fault(url, store, cache):
    store.proxy.cut_download("GET", "MANIFEST", after=10)
    store.proxy.answer(503, "GET", "MANIFEST")
    assert opened(url, cache).rows("train") == 600


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda b: b[:4000] + bytes([b[4000] ^ 1]) + b[4001:], "has sha256"),
        (lambda b: b[:-1], "bytes, but MANIFEST.json lists"),
        (lambda b: b + b"x", "bytes, but MANIFEST.json lists"),
        (lambda b: b"", "bytes, but MANIFEST.json lists"),
        (None, "is missing, although MANIFEST.json lists it"),
    ],
    ids=["wrong", "short", "long", "empty", "missing"],
)
def test_a_file_that_is_always_wrong_is_refused(damage, said, url, store, directory, cache):
    store.delete(f"shards/set/{shard(1)}")
    if damage is not None:
        store.put(f"shards/set/{shard(1)}", damage((directory / shard(1)).read_bytes()))
    with pytest.raises(DataError) as caught:
        read_all(opened(url, cache))
    assert f"{url}/{shard(1)}" in str(caught.value) and said in str(caught.value)
    assert shard(1) not in kept(cache) and shard(1) + ".part" not in kept(cache)
    if isinstance(caught.value, WrongFile):  # in the background, and when it is needed
        assert gets(store, shard(1)) in (3, 6)


def test_a_place_without_a_set(store, cache):
    store.put("other/schema.json", b"{}")
    for url in (store.url("other"), f"{store.scheme}://no-such-bucket-as-this/x"):
        with pytest.raises(DataError, match=f"{url} is not a finished dataset"):
            opened(url, cache)


def test_a_manifest_that_is_none(gs_store, cache):
    gs_store.put("set/MANIFEST.json", b"{")
    with pytest.raises(DataError, match=r"gs://.*/set/MANIFEST.json is not JSON"):
        opened(gs_store.url("set"), cache)


@pytest.mark.parametrize("fault", ["hangs", "503"])
def test_a_store_that_does_not_answer_is_given_up(fault, url, store, cache, impatient):
    shards = opened(url, cache)
    if fault == "hangs":
        store.proxy.hang("GET", shard(0))
    else:
        store.proxy.answer(503, "GET", shard(0), times=None)
    began = time.monotonic()
    with pytest.raises(DataError, match=f"{url}/{shard(0)} cannot be read: .*network"):
        next(shards.in_order("train", batch_size=1, prefetch=0))
    assert time.monotonic() - began < 15
    store.proxy.clear()
    assert next(shards.in_order("train", batch_size=1))["row_index"] == [0]


def test_a_listing_that_lags_does_no_harm(store, directory, cache):
    store.lag(3600)
    url = store.upload(directory, "set")
    assert len(read_all(opened(url, cache))["row_index"]) == 600


def test_a_package_that_is_not_installed():
    script = """
import sys
sys.modules[sys.argv[2]] = None
from schemas.commands.entry import run_entry
from schemas.metadata import read_set
run_entry(lambda argv: read_set(argv[0]))
"""
    for url, package, said in (
        ("gs://b/x", "gcsfs", "pip install '/path/to/textmill[gs]'"),
        ("s3://b/x", "s3fs", "pip install '/path/to/textmill[s3]'"),
        ("s3://b/x", "fsspec", "pip install '/path/to/textmill[s3]'"),
        ("nonsense://b/x", "gcsfs", "no package reads nonsense://"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, url, package], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 2 and said in done.stderr and url in done.stderr


# Processes that share a cache


READ_ALL = """
import sys
import schemas.stores.set_files
from trainers.reader import ShardSet
schemas.stores.set_files.PIECE_BYTES = int(sys.argv[3])
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2])
print(sum(int(b["input_ids"].astype(int).sum()) for b in shards.in_order("train", batch_size=60)))
"""


def reading(url, cache, piece=1 << 20):
    return subprocess.Popen(
        [sys.executable, "-c", READ_ALL, url, str(cache), str(piece)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_two_processes_fetch_each_file_once(url, store, directory, cache):
    store.proxy.slow("GET", "train-", chunk=2000, seconds=0.05)
    processes = [reading(url, cache) for _ in range(2)]
    due = str(int(read_all(ShardSet(str(directory)))["input_ids"].astype(int).sum()))
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [due, due]
    for file in (directory).iterdir():
        if file.suffix == ".tfrecord" and file.name.startswith("train"):
            assert gets(store, file.name) == 1, file


def test_a_killed_download_is_gone_on_with(url, store, directory, cache):
    store.proxy.slow("GET", shard(0), chunk=1000, seconds=0.1)
    process = reading(url, cache, piece=1000)
    part = shard(0) + ".part"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = list(cache.rglob(part))
        if found and found[0].stat().st_size >= 3000:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert part in kept(cache) and shard(0) not in kept(cache)
    store.proxy.clear()
    schemas_piece = schemas.stores.set_files.PIECE_BYTES
    try:
        schemas.stores.set_files.PIECE_BYTES = 1000
        assert_equal(read_all(opened(url, cache)), read_all(ShardSet(str(directory))))
    finally:
        schemas.stores.set_files.PIECE_BYTES = schemas_piece
    pieces = -(-(directory / shard(0)).stat().st_size // 1000)
    assert 1 <= gets(store, shard(0)) <= pieces - 3
    assert part not in kept(cache)


def test_what_is_left_of_another_download_is_made_again(url, directory, cache):
    shards = opened(url, cache)
    (part,) = [Path(shards.locate("schema.json")).with_name(shard(2) + ".part")]
    part.write_bytes(b"x" * 3000)  # not the file's first bytes
    assert_equal(read_all(shards), read_all(ShardSet(str(directory))))


def test_a_file_that_was_changed_in_the_cache_is_fetched_again(url, store, directory, cache):
    path = Path(opened(url, cache).paths("train")[1])
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    store.proxy.clear()
    assert_equal(read_all(opened(url, cache)), read_all(ShardSet(str(directory))))
    assert gets(store, "train-") == gets(store, shard(1)) == 1
    path.write_bytes(content)
    opened(url, cache, verify=False).paths("train")
    assert path.read_bytes() == bytes(content)  # nobody wanted to know
    path.write_bytes(content[:-1])
    opened(url, cache, verify=False).paths("train")
    assert path.read_bytes() == (directory / shard(1)).read_bytes()


def test_files_that_are_removed_under_a_reader_are_fetched_again(url, directory, cache):
    shards = opened(url, cache)
    due = read_all(ShardSet(str(directory)))
    assert_equal(read_all(shards), due)
    shutil.rmtree(cache)
    assert_equal(read_all(shards), due)  # the files are open
    shards.close()
    assert_equal(read_all(shards), due)


# How much of it there may be


def many_sets(store, tmp_path, number):
    """Sets of about 100,000 bytes, which differ in their rows."""
    urls = []
    for index in range(number):
        schema = mlm_schema(shards={"train": 2, "validation": 1})
        rows = {
            "train": packed_rows(schema, 1000, index),
            "validation": packed_rows(schema, 10, index),
        }
        write_set(tmp_path / f"set{index}", schema, rows)
        urls.append(store.upload(tmp_path / f"set{index}", f"set{index}"))
    return urls


def size(cache):
    return sum(p.stat().st_size for p in cache.rglob("*") if p.is_file() and "/." not in str(p))


def test_the_least_recently_used_files_go_first(gs_store, tmp_path, cache):
    urls = many_sets(gs_store, tmp_path, 3)
    needed = sum(f.stat().st_size for f in (tmp_path / "set0").iterdir())
    bound = 2.5 * needed / 1e9
    for url in (*urls[:2], urls[0]):
        shards = opened(url, cache, cache_gigabytes=bound)
        read_all(shards)
        read_all(shards, "validation")
        time.sleep(0.02)
    del shards
    gs_store.proxy.clear()
    read_all(opened(urls[2], cache, cache_gigabytes=bound))  # set1 has to make room
    assert size(cache) <= bound * 1e9
    read_all(opened(urls[0], cache, cache_gigabytes=bound))
    assert gets(gs_store, "set0/train") == 0 and gets(gs_store, "set2/train") == 2
    read_all(opened(urls[1], cache, cache_gigabytes=bound))
    assert gets(gs_store, "set1/train") >= 1


def test_a_set_that_does_not_fit_is_refused_before_it_is_fetched(gs_store, tmp_path, cache):
    (url,) = many_sets(gs_store, tmp_path, 1)
    with pytest.raises(
        DataError, match=r"needs 0.\d+ MB of the cache .* limit is 0.05 MB: .*--cac"
    ):
        opened(url, cache, cache_gigabytes=5e-5)
    assert gets(gs_store, "train-") == 0


def test_a_disk_that_is_full(gs_store, tmp_path, cache, monkeypatch):
    (url,) = many_sets(gs_store, tmp_path, 1)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match="must be downloaded, but the disk of .* --cache_dir"):
        opened(url, cache)


def test_files_that_made_room_for_another_set_are_fetched_again(gs_store, tmp_path, cache):
    urls = many_sets(gs_store, tmp_path, 2)
    one, other = (opened(url, cache, cache_gigabytes=2e-4) for url in urls)
    due = read_all(ShardSet(str(tmp_path / "set0")))
    for _ in range(2):
        assert_equal(read_all(one), due)
        one.close()
        assert_equal(read_all(other), read_all(ShardSet(str(tmp_path / "set1"))))
        other.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cache_gigabytes": 0}, "--cache_gigabytes=0: must be above 0"),
        ({"cache_dir": "/dev/null/x"}, "--cache_dir=/dev/null/x cannot be written"),
    ],
)
def test_a_cache_that_cannot_be(gs_store, directory, options, said):
    url = gs_store.upload(directory, "set")
    with pytest.raises(UsageError, match=said):
        ShardSet(url, **options)


# Commands


def test_a_trainer_runs_on_a_store(s3_store, tmp_path):
    """Another one does in test_store_whole.py, on gs://."""
    write_class_set(tmp_path / "set")
    url = s3_store.upload(tmp_path / "set", "set")
    model = "--layers=1 --hidden_size=16 --heads=2 --intermediate_size=24 --family=electra"
    flags = f"--shards={url} --output={tmp_path / 'run'} --steps=2 --cache_dir={tmp_path / 'c'}"
    poptorch_classifier([*flags.split(), *model.split(), "--batch_size=8", "--device=cpu"])
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert any("loss" in json.loads(line) for line in lines)
    assert (tmp_path / "run" / "tokenizer.json").exists()


@pytest.mark.parametrize("flag", ["output", "init_from", "export", "cache_dir"])
def test_a_trainer_keeps_its_results_on_this_machine(flag, directory):
    with pytest.raises(UsageError, match=rf"--{flag}=gs://b/x: give a directory on this machine"):
        flax_mlm([f"--shards={directory}", "--steps=2", f"--{flag}=gs://b/x"])


def test_verify_reads_a_set_in_a_store(url, store, directory, tmp_path, monkeypatch, capsys):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    store.put("shards/set/notes.txt", b"x")
    verify.main([url])
    out, err = capsys.readouterr()
    assert out.startswith("ok: 1 dataset, 620 rows") and "notes.txt is not listed" in err
    found = {path.name: gets(store, path.name) for path in directory.iterdir()}
    assert found.pop("MANIFEST.json") <= 3  # two more may ask whether it is there
    assert set(found.values()) == {1}
    assert not list((tmp_path / "tmp").iterdir())


def test_verify_tells_what_is_wrong_in_a_store(url, store, directory):
    content = bytearray((directory / shard(3)).read_bytes())
    content[4000] ^= 1
    store.put(f"shards/set/{shard(3)}", bytes(content))
    store.put(f"shards/set/{shard(4)}", b"short")
    store.delete(f"shards/set/{shard(5)}")
    store.proxy.corrupt("GET", shard(0), at=4000)  # on the way only
    report = verify_set(url)
    assert [problem.split(",")[0][:60] for problem in report.problems] == [
        f"{shard(3)} has sha256 "[:60] + report.problems[0][len(shard(3)) + 12 : 60],
        f"{shard(4)} has 5 bytes",
        f"{shard(5)} is missing",
    ]
    assert report.rows == 320


def test_inspect_fetches_what_it_shows(url, store, directory, cache, capsys):
    there = [url, f"--cache_dir={cache}"]
    inspect_shards.main([*there, "--row=250"])
    shown = capsys.readouterr().out
    inspect_shards.main([str(directory), "--row=250"])
    assert shown.splitlines()[1:] == capsys.readouterr().out.splitlines()[1:]
    assert gets(store, "train-") == gets(store, shard(2)) == 1
    inspect_shards.main([*there, "--stats"])
    assert gets(store, "train-") == 1
    capsys.readouterr()
    inspect_shards.main([*there, "--search=w10", "--limit=0"])
    assert "of 620 rows" in capsys.readouterr().out
    assert kept(cache).count(shard(2)) == 1 and shard(3) not in kept(cache)


def test_export_reads_a_set_in_a_store(gs_store, directory, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    url = gs_store.upload(directory, "set")
    for number, place in enumerate((url, str(directory))):
        export.main([place, f"--output={tmp_path / str(number)}", "--to=jsonl", "--text"])
    one, two = (sorted((tmp_path / str(number)).rglob("*.jsonl")) for number in range(2))
    assert len(one) == 7 and [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert not list((tmp_path / "home").rglob("train-*"))
