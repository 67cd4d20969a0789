"""Tokenizers and datasets read from and written into object stores equal those of a disk."""

import functools
from pathlib import Path
from types import SimpleNamespace

import pytest

from textmill.pipelines.build_shards import main as build_shards
from textmill.pipelines.train_tokenizer import main as train_tokenizer
from textmill.pipelines.writers import staging
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files import lock, object_store
from textmill.schemas.files import store as stores

# Google's library leaves the connection of an answer that was cut to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def shard_flags(given, tokenizer, output, *more):
    flags = [f"--input={given}", f"--tokenizer={tokenizer}", f"--output={output}"]
    return [*flags, "--num_shards=3", "--max_length=64", "--file_format=both", *more]


def tokenizer_flags(given, output, *more):
    return [f"--input={given}", f"--output={output}", "--vocab_size=600", *more]


def on_disk(folder):
    """Name to content of all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def in_store(store, prefix):
    return {name.removeprefix(prefix): store.get(name) for name in store.names(prefix)}


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """A run without a heartbeat counts as dead soon."""
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.3)
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 4.0)  # a busy machine beats late
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.1)


@pytest.fixture(scope="module")
def local(corpus, tmp_path_factory):
    """A tokenizer and a set on this disk."""
    folder = tmp_path_factory.mktemp("local")
    train_tokenizer(tokenizer_flags(corpus, folder / "bpe"))
    build_shards(shard_flags(corpus, folder / "bpe", folder / "set"))
    return folder


def test_what_a_bucket_already_holds(gs_store, local, corpus, capsys):
    """test_store_whole builds from a bucket into it."""
    text = gs_store.upload(Path(corpus).parent, "text")
    bpe, made = (gs_store.upload(local / name, name) for name in ("bpe", "set"))
    train_tokenizer(tokenizer_flags(corpus, bpe))
    build_shards(shard_flags(corpus, f"{bpe}/", made))
    printed = capsys.readouterr().out
    assert "already contains this tokenizer" in printed
    assert "already contains this dataset" in printed
    with pytest.raises(UsageError, match="contains a different dataset .*seed"):
        build_shards(shard_flags(corpus, bpe, made, "--seed=1"))
    with pytest.raises(UsageError, match="contains the input .*corpus.jsonl"):
        build_shards(shard_flags(f"{text}/*.jsonl", bpe, text))
    train_tokenizer(
        [f"--from_histogram={bpe}/histogram.parquet", "--vocab_size=500", f"--output={bpe}2"]
    )
    assert "bpe2/tokenizer.json" in gs_store.names()
    capsys.readouterr()
    for output, said in (
        (made, "a dataset of these settings"),
        (f"{made}2", "no dataset: the run"),
    ):
        build_shards(shard_flags(corpus, bpe, output, "--dry_run"))
        assert said in capsys.readouterr().out
    assert not gs_store.names("set2")


def faults_of_a_bad_day(store, shard):
    """Each strikes some of the requests for a shard; what they hit goes through in the end."""
    proxy = store.proxy
    if store.scheme == "gs":
        send, copy = ("POST", "/upload/"), "rewriteTo/.*"
    else:
        send, copy = ("PUT", f"staging/[^.]*{shard}"), ""
    return [
        proxy.answer(503, *send),
        proxy.cut_upload(*send, after=1000),
        proxy.cut_download("POST" if copy else "PUT", f"{copy}set/[^.]*{shard}", after=None),
    ]


@pytest.mark.parametrize("kind", ["gs", pytest.param("s3", marks=pytest.mark.slow)])
def test_a_bad_day_changes_nothing(kind, local, corpus, monkeypatch, request):
    store = request.getfixturevalue(f"{kind}_store")
    flags = shard_flags(corpus, local / "bpe", store.url("set/"))
    rules = faults_of_a_bad_day(store, "train-00001-of-00003.array_record")
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_list", lambda *_: {})  # a listing that lags
        build_shards(flags)
    store.proxy.clear()
    assert [rule.action for rule in rules if not rule.hits] == []
    made = in_store(store, "set/")
    hidden = {name for name in made if name.startswith(".staging/")}
    assert {name: made[name] for name in made.keys() - hidden} == on_disk(local / "set")
    store.put("set/my-notes.txt", b"mine")
    store.put("set/train-00004-of-00005.tfrecord", b"of an older dataset")
    build_shards([*flags, "--overwrite"])
    assert in_store(store, "set/") == on_disk(local / "set") | {"my-notes.txt": b"mine"}


@pytest.mark.slow
def test_what_was_finished_before_a_store_failed_is_not_made_again(
    gs_store, local, corpus, written, monkeypatch
):
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 0.5)
    flags = shard_flags(corpus, local / "bpe", gs_store.url("set"))
    shard = "train-00000-of-00003"
    rule = gs_store.proxy.answer(403, "PUT|POST", f"set/{shard}", times=None)
    for more in ([], ["--resume"]):
        with pytest.raises(DataError, match=f"{shard}.*the object store rejected"):
            build_shards([*flags, *more])
        assert "set/MANIFEST.json" not in gs_store.names()
        assert bool(gs_store.names("set/.")) == bool(more)
    assert rule.hits and len(written) == 8
    gs_store.proxy.clear()
    [damaged] = [n for n in gs_store.names("set/.staging/") if "-train-00001-of-00003.arr" in n]
    gs_store.put(damaged, gs_store.get(damaged)[:-1] + b"?")
    written.clear()
    build_shards([*flags, "--resume"])
    assert written == ["train-00001-of-00003"]
    assert in_store(gs_store, "set/") == on_disk(local / "set")


@pytest.mark.slow
def test_one_run_at_a_time_writes_into_a_bucket(gs_store, local, corpus, monkeypatch, wait_for):
    rejected = []

    def reject(path, content):
        rejected.append(path)
        raise UsageError(f"{path}: these credentials are over")

    flags = shard_flags(corpus, local / "bpe", gs_store.url("set"))
    output = gs_store.url("set")
    path = f"{output}/.lock"
    check = functools.partial(staging.check_turn, gs_store.url("set/.staging"), publishes=True)
    with lock.hold(output) as run:
        check(run)
        with pytest.raises(UsageError, match="another run writes into gs://.*/set:"):
            build_shards(flags)
    with lock.hold(output) as run:  # one that the store refuses for a while beats on
        with monkeypatch.context() as patch:
            patch.setattr(lock.store, "write_file", reject)
            wait_for(lambda: len(rejected) > 1)
        before = stores.read(path)
        wait_for(lambda: stores.read(path) != before)
    monkeypatch.setattr(lock, "BEAT_SECONDS", 60.0)
    with lock.hold(output) as run:
        stores.write_file(path, b"another 0")
        with pytest.raises(DataError, match="another run has begun in"):
            check(run)
    # That run was killed: nothing beats, and its staged files are removed.
    gs_store.put("set/.staging/0123456789abcdef-train-00000-of-00003.tfrecord", b"rows")
    build_shards(flags)
    assert in_store(gs_store, "set/") == on_disk(local / "set")


def test_the_lock_of_a_left_job_ends_with_the_job(gs_store, monkeypatch):
    output, waits = gs_store.url("left"), []
    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=waits.append))
    with lock.hold(output, hands_over=True) as run:
        lock.end_left(output, run)  # the command still holds it
    with lock.hold(output, hands_over=True) as run:
        pass
    assert waits == [0.1, 4.0, 0.1]  # the job may be running
    lock.end_left(output, run)
    lock.end_left(output, run)
    assert lock.is_held_by(output, run)  # for a last step that Beam repeats
    with lock.hold(output) as another:
        assert not lock.is_held_by(output, run)
        lock.end_left(output, run)
        assert lock.is_held_by(output, another)
    assert waits[3:] == [0.1]


def test_what_is_not_to_be_had_is_named(gs_store, local, corpus):
    with pytest.raises(UsageError, match="names with .* are patterns"):
        build_shards(shard_flags(corpus, local / "bpe", gs_store.url("set[1]")))
    with pytest.raises(UsageError, match=r"--tokenizer=gs://.*/none"):
        build_shards(shard_flags(corpus, gs_store.url("none"), gs_store.url("set")))
    with pytest.raises(UsageError, match=r"--from_histogram=gs://.*no such file"):
        flags = ["--vocab_size=500", f"--output={gs_store.url('bpe')}"]
        train_tokenizer([f"--from_histogram={gs_store.url('none')}", *flags])
    gs_store.put("bpe/tokenizer.json", b"{")
    with pytest.raises(DataError, match=r"gs://.*/bpe/tokenizer.json .* a tokenizer"):
        build_shards(shard_flags(corpus, gs_store.url("bpe"), gs_store.url("set")))
