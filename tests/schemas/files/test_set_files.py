"""Datasets on gs:// and s3:// through the cache: real servers, real faults, several processes."""

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

import textmill.schemas.files.object_store
import textmill.schemas.files.set_files
from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from tests.tools.shard_factory import mlm_schema, packed_rows, write_mlm_set, write_set
from textmill.pipelines import inspect_shards, verify
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.cache import default_directory
from textmill.schemas.files.set_files import WrongFileError
from textmill.trainers.flax_mlm import main as flax_mlm
from textmill.trainers.reader import ShardSet

SHARDS = {"train": 6, "validation": 1}
# The libraries leave connections open at the end of a test.
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


@pytest.fixture(scope="module")
def rows(directory):
    """All training rows in order, as the directory has them."""
    return read_all(ShardSet(str(directory)))


@pytest.fixture
def url(gs_store, directory):
    """The dataset in an object store."""
    return gs_store.upload(directory, "shards/set")


@pytest.fixture
def cache(tmp_path):
    """A cache that holds nothing yet."""
    return tmp_path / "cache"


def opened(url, cache, **options):
    return ShardSet(url, cache_dir=str(cache), **options)


def shard(number):
    return f"train-0000{number}-of-00006.tfrecord"


def cached(cache):
    """Files in the cache, but for locks."""
    return [p for p in cache.rglob("*") if p.is_file() and "/." not in str(p)]


def kept(cache):
    """Their names."""
    return sorted(path.name for path in cached(cache))


def gets(store, path):
    return store.proxy.count("GET", path)


def read_all(shards, split="train"):
    """All rows of a split, in order."""
    batches = list(shards.sequential_batches(split, batch_size=50))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def assert_equal(found, due):
    assert found.keys() == due.keys()
    for name in due:
        np.testing.assert_array_equal(found[name], due[name], err_msg=name)


def with_flipped_bit(content, at=4000):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# Reading


def test_batches_are_those_of_the_directory(store, directory, rows, cache):
    url = store.upload(directory, "shards/set")
    here, there = ShardSet(str(directory)), opened(url, cache)
    assert (there.directory, there.name, there.fingerprint) == (url, url, here.fingerprint)
    assert there.splits == here.splits and there.rows("train") == 600
    options = dict(batch_size=64, seed=3, start_step=2, stop_step=14)
    pairs = zip(there.batches("train", **options), here.batches("train", **options), strict=True)
    for found, due in pairs:
        assert_equal(found, due)
    assert_equal(read_all(there, "validation"), read_all(here, "validation"))
    assert_equal(there.split("train")[599], here.split("train")[599])
    paths = [Path(path) for path in there.paths("train")]
    assert [path.name for path in paths] == [shard(number) for number in range(6)]
    assert [p.read_bytes() for p in paths] == [Path(p).read_bytes() for p in here.paths("train")]
    assert Path(there.locate("tokenizer.json")).read_bytes()
    assert_equal(read_all(pickle.loads(pickle.dumps(there))), rows)
    there.close()
    assert_equal(read_all(there), rows)


def test_a_batch_waits_for_its_own_shard_and_others_follow_in_the_background(url, gs_store, cache):
    shards = opened(url, cache)
    gs_store.proxy.hang("GET", shard(4))
    batches = shards.sequential_batches("train", batch_size=100, prefetch=0)
    assert [next(batches)["row_index"][0] for _ in range(4)] == [0, 100, 200, 300]
    gs_store.proxy.clear()
    deadline = time.monotonic() + 60
    while shards.needs_download("train") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {shard(number) for number in range(6)} <= {*kept(cache)}


def test_the_default_cache_is_the_users(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_directory() == "/c/textmill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert default_directory() == "/h/.cache/textmill"


def test_a_set_built_anew_under_its_name_is_another(url, gs_store, rows, tmp_path, cache):
    """Only one of its two formats is fetched."""
    assert_equal(read_all(opened(url, cache)), rows)
    schema = mlm_schema(shards=SHARDS, file_formats=("array_record", "tfrecord"))
    columns = {"train": packed_rows(schema, 600, 8), "validation": packed_rows(schema, 20, 9)}
    write_set(tmp_path / "anew", schema, columns)
    gs_store.upload(tmp_path / "anew", "shards/set")
    after = read_all(opened(url, cache, file_format="tfrecord"))
    assert_equal(after, read_all(ShardSet(str(tmp_path / "anew"))))
    assert (rows["input_ids"] != after["input_ids"]).any()
    assert gets(gs_store, "array_record") == 0


def test_a_forked_process_and_its_parent_read(url, gs_store, cache):
    script = """
import multiprocessing, sys
from textmill.trainers.reader import ShardSet
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2])
next(shards.sequential_batches("train", batch_size=1, prefetch=0))  # threads and sockets are there
def read(start):
    return int(shards.read("train", range(start, start + 300))["input_ids"].astype(int).sum())
with multiprocessing.get_context("fork").Pool(2) as pool:
    parts = pool.map(read, [0, 300])
    assert sum(parts) == read(0) + read(300)
"""
    done = subprocess.run([sys.executable, "-c", script, url, str(cache)], timeout=60, cwd=ROOT)
    assert done.returncode == 0
    assert gets(gs_store, "train-") == 6


# Faults


def test_faults_that_pass_do_no_harm(url, gs_store, rows, cache):
    proxy = gs_store.proxy
    rules = [
        proxy.answer(503, "GET", "MANIFEST"),
        proxy.cut_download("GET", "MANIFEST", after=10),
        proxy.answer(503, "GET", shard(0)),
        proxy.cut_download("GET", shard(1), after=4000),
        proxy.cut_download("GET", shard(2), after=None),
        proxy.corrupt("GET", shard(3), at=4000),
        proxy.slow("GET", shard(4), chunk=2000, seconds=0.05),
    ]
    assert_equal(read_all(opened(url, cache)), rows)
    assert [rule for rule in rules if not rule.hits] == []
    assert not [name for name in kept(cache) if name.endswith(".part")]


DAMAGES = {
    "wrong": (with_flipped_bit, "has sha256"),
    "short": (lambda b: b[:-1], "bytes, but MANIFEST.json lists"),
    "long": (lambda b: b + b"x", "bytes, but MANIFEST.json lists"),
    "empty": (lambda b: b"", "bytes, but MANIFEST.json lists"),
    "missing": (None, "is missing, although MANIFEST.json lists it"),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("gs", name) for name in DAMAGES), ("s3", "short"), ("s3", "empty"), ("s3", "missing")],
)
def test_a_file_that_is_always_wrong_is_refused(kind, name, directory, cache, request):
    """The stores answer differently to a range beyond the end, and to a missing file."""
    store, (damage, message) = request.getfixturevalue(f"{kind}_store"), DAMAGES[name]
    url = store.upload(directory, "shards/set")
    store.delete(f"shards/set/{shard(1)}")
    if damage is not None:
        store.put(f"shards/set/{shard(1)}", damage((directory / shard(1)).read_bytes()))
    with pytest.raises(DataError) as caught:
        read_all(opened(url, cache))
    assert f"{url}/{shard(1)}" in str(caught.value) and message in str(caught.value)
    assert shard(1) not in kept(cache) and shard(1) + ".part" not in kept(cache)
    if isinstance(caught.value, WrongFileError):  # in the background, and when it is needed
        assert gets(store, shard(1)) in (3, 6)


def test_a_place_without_a_set(store, cache):
    store.put("other/schema.json", b"{}")
    for url in (store.url("other"), f"{store.scheme}://no-such-bucket-as-this/x"):
        with pytest.raises(DataError, match=f"{url} is not a finished dataset"):
            opened(url, cache)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["hangs", "503"])
def test_a_store_that_does_not_answer_is_given_up(fault, url, gs_store, cache, monkeypatch):
    monkeypatch.setattr(textmill.schemas.files.object_store, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(textmill.schemas.files.object_store, "PATIENCE_SECONDS", 0.5)
    shards = opened(url, cache)
    if fault == "hangs":
        gs_store.proxy.hang("GET", shard(0))
    else:
        gs_store.proxy.answer(503, "GET", shard(0), times=None)
    with pytest.raises(DataError, match=f"{url}/{shard(0)} cannot be read: .*network"):
        next(shards.sequential_batches("train", batch_size=1, prefetch=0))
    gs_store.proxy.clear()
    assert next(shards.sequential_batches("train", batch_size=1))["row_index"] == [0]


def test_a_package_that_is_not_installed():
    script = """
import sys
sys.modules[sys.argv[2]] = None
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.files.finished import read_dataset
run_entry(lambda argv: read_dataset(argv[0]))
"""
    for url, package, message in (
        ("gs://b/x", "gcsfs", "pip install '/path/to/textmill[gs]'"),
        ("s3://b/x", "s3fs", "pip install '/path/to/textmill[s3]'"),
        ("s3://b/x", "fsspec", "pip install '/path/to/textmill[s3]'"),
        ("nonsense://b/x", "gcsfs", "no package reads nonsense://"),
        ("file:///b/x", "gcsfs", "write a path of this machine without file://"),
        ("S3://b/x", "gcsfs", "write s3:// in lower case"),
    ):
        done = run_python("-c", script, url, package)
        assert done.returncode == 2 and message in done.stderr and url in done.stderr


# Processes that share a cache


READ_ALL = """
import sys
import textmill.schemas.files.set_files
from textmill.trainers.reader import ShardSet
textmill.schemas.files.set_files.REQUEST_BYTES = int(sys.argv[3])
shards = ShardSet(sys.argv[1], cache_dir=sys.argv[2])
batches = shards.sequential_batches("train", batch_size=60)
print(sum(int(batch["input_ids"].astype(int).sum()) for batch in batches))
"""


def reading(url, cache, piece=1 << 20):
    return subprocess.Popen(
        [sys.executable, "-c", READ_ALL, url, str(cache), str(piece)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_two_processes_fetch_each_file_once(url, gs_store, rows, cache):
    gs_store.proxy.slow("GET", "train-", chunk=2000, seconds=0.05)
    processes = [reading(url, cache) for _ in range(2)]
    due = str(int(rows["input_ids"].astype(int).sum()))
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [due, due]
    assert [gets(gs_store, shard(number)) for number in range(6)] == [1] * 6


def test_a_killed_download_is_resumed(url, gs_store, directory, rows, cache, monkeypatch):
    gs_store.proxy.slow("GET", shard(0), chunk=1000, seconds=0.1)
    process = reading(url, cache, piece=1000)
    part = shard(0) + ".part"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(cache.rglob(part))
        if found and found[0].stat().st_size >= 3000:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert part in kept(cache) and shard(0) not in kept(cache)
    gs_store.proxy.clear()
    monkeypatch.setattr(textmill.schemas.files.set_files, "REQUEST_BYTES", 1000)
    assert_equal(read_all(opened(url, cache)), rows)
    pieces = -(-(directory / shard(0)).stat().st_size // 1000)
    assert 1 <= gets(gs_store, shard(0)) <= pieces - 3
    assert part not in kept(cache)


def test_what_is_in_the_cache_is_fetched_again_if_it_was_changed(
    url, gs_store, directory, rows, cache
):
    read_all(opened(url, cache))
    assert gets(gs_store, "train-") == 6 and gets(gs_store, "validation-") == 0
    gs_store.proxy.clear()
    path = Path(opened(url, cache).paths("train")[1])
    assert {path.rsplit("/", 1)[1][:8] for _, path in gs_store.proxy.requests} == {"MANIFEST"}
    changed = with_flipped_bit(path.read_bytes())
    path.write_bytes(changed)
    gs_store.proxy.clear()
    assert_equal(read_all(opened(url, cache)), rows)
    assert gets(gs_store, "train-") == gets(gs_store, shard(1)) == 1
    path.write_bytes(changed)
    opened(url, cache, verify=False).paths("train")
    assert path.read_bytes() == changed  # without a check
    path.write_bytes(changed[:-1])
    opened(url, cache, verify=False).paths("train")
    assert path.read_bytes() == (directory / shard(1)).read_bytes()


def test_files_of_others_and_those_that_go_under_a_reader_are_fetched_again(url, rows, cache):
    shards = opened(url, cache)
    part = Path(shards.locate("schema.json")).with_name(shard(2) + ".part")
    part.write_bytes(b"x" * 3000)  # of another download: not the file's first bytes
    assert_equal(read_all(shards), rows)
    shutil.rmtree(cache)
    assert_equal(read_all(shards), rows)  # the files are open
    shards.close()
    assert_equal(read_all(shards), rows)


# How much of it there may be


def test_the_least_recently_used_files_go_first(gs_store, tmp_path, cache):
    urls = []
    for seed in range(3):  # sets of about 100,000 bytes each
        write_mlm_set(tmp_path / f"set{seed}", train=1000, validation=10, seed=seed)
        urls.append(gs_store.upload(tmp_path / f"set{seed}", f"set{seed}"))
    files = [f for f in (tmp_path / "set0").iterdir() if f.suffix != ".documents"]
    needed = sum(file.stat().st_size for file in files)
    bound = 2.5 * needed / 1e9
    for url in (*urls[:2], urls[0]):
        shards = opened(url, cache, cache_gigabytes=bound)
        read_all(shards)
        read_all(shards, "validation")
        time.sleep(0.02)
    del shards
    gs_store.proxy.clear()
    read_all(opened(urls[2], cache, cache_gigabytes=bound))  # set1 has to make room
    assert sum(path.stat().st_size for path in cached(cache)) <= bound * 1e9
    read_all(opened(urls[0], cache, cache_gigabytes=bound))
    assert gets(gs_store, "set0/train") == 0 and gets(gs_store, "set2/train") == 2
    read_all(opened(urls[1], cache, cache_gigabytes=bound))
    assert gets(gs_store, "set1/train") >= 1


def test_a_set_that_does_not_fit_is_refused_before_it_is_fetched(
    url, gs_store, tmp_path, cache, monkeypatch
):
    with pytest.raises(
        DataError, match=r"needs 0.\d+ MB of the cache .* limit is 0.05 MB: .*--cac"
    ):
        opened(url, cache, cache_gigabytes=5e-5)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match="must be downloaded, but the disk of .* --cache_dir"):
        opened(url, cache)
    assert gets(gs_store, "train-") == 0


def test_a_cache_that_cannot_be(url):
    with pytest.raises(UsageError, match="--cache_gigabytes=0: must be above 0"):
        ShardSet(url, cache_gigabytes=0)
    with pytest.raises(UsageError, match="--cache_dir=/dev/null/x cannot be written"):
        ShardSet(url, cache_dir="/dev/null/x")


# Commands


@pytest.mark.parametrize("flag", ["output", "init_from", "export", "cache_dir"])
def test_a_trainer_keeps_its_results_on_this_machine(flag, directory):
    with pytest.raises(UsageError, match=rf"--{flag}=gs://b/x: give a directory on this machine"):
        flax_mlm([f"--shards={directory}", "--steps=2", f"--{flag}=gs://b/x"])


def test_verify_reads_a_set_in_a_store(url, gs_store, directory, tmp_path, monkeypatch, capsys):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    gs_store.put("shards/set/notes.txt", b"x")
    gs_store.proxy.corrupt("GET", shard(0), at=4000)  # on the way only
    verify.main([url])
    out, err = capsys.readouterr()
    assert out.startswith("ok: 1 dataset, 620 rows") and "notes.txt is not listed" in err
    # gcsfs asks once to three times whether a file is there, as the answers race
    read = {path.name: gets(gs_store, f"^/download/.*{path.name}") for path in directory.iterdir()}
    assert read == {**dict.fromkeys(read, 1), shard(0): 2}
    assert not list((tmp_path / "tmp").iterdir())
    content = (directory / shard(3)).read_bytes()
    gs_store.put(f"shards/set/{shard(3)}", with_flipped_bit(content))
    gs_store.put(f"shards/set/{shard(4)}", b"short")
    gs_store.delete(f"shards/set/{shard(5)}")
    report = verify_dataset(url)
    due = [f"{shard(3)} has sha256 ", f"{shard(4)} has 5 bytes,", f"{shard(5)} is missing"]
    assert [p[: len(start)] for p, start in zip(report.problems, due, strict=True)] == due
    assert report.rows == 320


def test_inspect_fetches_what_it_shows(url, gs_store, directory, cache, capsys):
    there = [url, f"--cache_dir={cache}"]
    inspect_shards.main([*there, "--row=250"])
    shown = capsys.readouterr().out
    inspect_shards.main([str(directory), "--row=250"])
    assert shown.splitlines()[1:] == capsys.readouterr().out.splitlines()[1:]
    documents = "train-00002-of-00006.documents"
    assert gets(gs_store, shard(2)) == gets(gs_store, documents) == 1
    inspect_shards.main([*there, "--stats"])
    assert gets(gs_store, "train-") == 2
    capsys.readouterr()
    inspect_shards.main([*there, "--search=w10", "--limit=0"])
    assert "of 620 rows" in capsys.readouterr().out
    assert kept(cache).count(shard(2)) == 1 and shard(3) not in kept(cache)


def test_documents_are_fetched_when_they_are_requested(url, gs_store, directory, cache):
    shards = opened(url, cache)
    read_all(shards)
    assert [name for name in kept(cache) if name.endswith(".documents")] == []
    assert shards.documents_of("train", [0]) == ShardSet(directory).documents_of("train", [0])
    assert [name for name in kept(cache) if name.endswith(".documents")] == [
        "train-00000-of-00006.documents"
    ]
