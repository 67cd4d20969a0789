"""Batches of a dataset: every row comes once, and any number of hosts reads the same."""

import multiprocessing
import pickle
import threading
import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.python_process import run_python
from tests.tools.shard_factory import replace_file, write_manifest, write_mlm_set
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.digests import Digests
from textmill.schemas.typed_json import to_json
from textmill.trainers.data.batches import read_ahead
from textmill.trainers.reader import ShardSet

TRAIN = 40


@pytest.fixture(scope="module", params=["array_record", "tfrecord"])
def small_set(request, tmp_path_factory):
    """(directory, columns by split) of 40 training rows in 2 shards, 10 of validation."""
    directory = tmp_path_factory.mktemp(request.param) / "set"
    return directory, write_mlm_set(directory, train=TRAIN, file_formats=(request.param,))


@pytest.fixture(params=["dataset", "mixture"])
def reader(request, small_set, tmp_path, monkeypatch):
    """The set of 40 rows, or a mixture of it and 7 of a different encoding; few batches a read."""
    monkeypatch.setattr("textmill.trainers.data.batches._BYTES_PER_READ", 2000)
    if request.param == "dataset":
        return ShardSet(small_set[0])
    write_mlm_set(tmp_path / "other", train=7, seed=3, encoding="int64_list")
    return ShardSet.mix({str(small_set[0]): 0.7, str(tmp_path / "other"): 0.3}, seed=5)


def test_the_fingerprint_is_of_the_rows_and_what_they_mean(tmp_path):
    """One row less changes it; the place, the report and the format that is read do not.

    The rows of two formats count once.
    """
    formats = ("array_record", "tfrecord")
    for name, rows in (("one", 6), ("same", 6), ("fewer", 5)):
        write_mlm_set(tmp_path / name, train=rows, file_formats=formats)
    write_mlm_set(tmp_path / "seed", train=6, file_formats=formats, seed=7)
    replace_file(tmp_path / "same", "report.html", b"<p>Another report.</p>")
    one, same, fewer, seed = (
        ShardSet(tmp_path / name, file_format=file_format)
        for name, file_format in zip(("one", "same", "fewer", "seed"), formats * 2, strict=True)
    )
    assert one.schema.fingerprint == fewer.schema.fingerprint != seed.schema.fingerprint
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, fewer.fingerprint, seed.fingerprint}) == 3
    assert ShardSet(tmp_path / "one").file_format == "array_record"
    assert one.rows("train") == same.rows("train") == 6
    batches = [shards.batches("train", batch_size=4, seed=0, stop_step=9) for shards in (one, same)]
    assert_same_batches(*map(list, batches))


@pytest.mark.parametrize("start, stride, hosts", [(1, 1, 1), (9, 1, 2), (0, 1, 6), (2, 3, 3)])
def test_any_step_and_any_number_of_hosts_read_the_same(reader, start, stride, hosts):
    asked: dict[str, Any] = {"batch_size": 6, "seed": 0, "stop_step": 60}
    whole = list(reader.batches("train", **asked))
    asked.update(start_step=start, stride=stride, process_count=hosts)
    parts = [reader.batches("train", **asked, process_index=host) for host in range(hosts)]
    joined = [
        {name: np.concatenate([part[name] for part in step]) for name in step[0]}
        for step in zip(*parts, strict=True)
    ]
    assert_same_batches(whole[start::stride], joined)


@pytest.mark.parametrize("batch_size, hosts", [(1, 1), (4, 1), (4, 2), (4, 4), (10, 1), (16, 2)])
def test_in_order_counts_every_row_once(small_set, batch_size, hosts):
    directory, columns = small_set
    shards = ShardSet(directory)
    seen = []
    for host in range(hosts):
        share = {"process_index": host, "process_count": hosts}
        batches = list(shards.sequential_batches("validation", batch_size=batch_size, **share))
        assert len(batches) == -(-10 // batch_size)
        for batch in batches:
            real = batch["row_weights"] == 1
            assert batch["input_ids"].shape == (batch_size // hosts, 16)
            assert not batch["segment_ids"][~real].any()
            assert not batch["masked_weights"][~real].any()
            indices = batch["row_index"][real]
            expected = columns["validation"]["input_ids"][indices]
            np.testing.assert_array_equal(batch["input_ids"][real], expected)
            seen.extend(indices.tolist())
    assert sorted(seen) == list(range(10))


def test_may_be_sent_to_another_process(reader):
    rows = np.array([3, reader.rows("train") - 1])
    ids = reader.read("train", rows)["input_ids"]  # files are open
    copy = pickle.loads(pickle.dumps(reader))
    reader.close()
    for shards in (copy, reader):
        np.testing.assert_array_equal(shards.read("train", rows)["input_ids"], ids)


def test_may_be_forked(small_set):
    """Parent and child read from files that were open before, and a lock that was held."""
    shards = ShardSet(small_set[0])
    rows = np.arange(20)
    expected = shards.read("train", rows)["input_ids"]
    with shards._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, where other tests have imported it
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.starmap(shards.read, [("train", rows)] * 8)
    for batch in [*found, shards.read("train", rows)]:
        np.testing.assert_array_equal(batch["input_ids"], expected)


def test_a_split_is_a_dataset_of_rows(small_set):
    directory, columns = small_set
    shards = ShardSet(directory)
    rows = shards.split("train")
    assert len(rows) == shards.rows("train") == TRAIN and shards.rows("validation") == 10
    for index, row in enumerate(pickle.loads(pickle.dumps(rows))):
        for name, values in columns["train"].items():
            np.testing.assert_array_equal(row[name], values[index])
            np.testing.assert_array_equal(rows[index - TRAIN][name], values[index])
    assert index == TRAIN - 1
    wanted = [39, 0, 21, 0, 19, 20]  # both shards, out of order, one row twice
    for index, row in zip(wanted, rows.__getitems__(wanted), strict=True):
        assert list(row) == [feature.name for feature in shards.schema.features]
        for feature in shards.schema.features:
            assert row[feature.name].dtype == feature.dtype
            np.testing.assert_array_equal(row[feature.name], columns["train"][feature.name][index])
    for outside in (TRAIN, -TRAIN - 1):
        with pytest.raises(IndexError, match="40 rows"):
            rows[outside]
    with pytest.raises(UsageError, match="no split 'test'"):
        shards.split("test")


def test_a_split_in_the_order_of_batches(reader):
    due = list(reader.batches("train", batch_size=10, seed=5, stop_step=11))
    rows = pickle.loads(pickle.dumps(reader.split("train", seed=5, count=110)))
    assert len(rows) == 110 and len(reader.split("train", seed=5)) == reader.rows("train")
    ids = [row["input_ids"].tolist() for row in rows]
    assert ids == [row.tolist() for batch in due for row in batch["input_ids"]]
    assert rows[-1]["input_ids"].tolist() == ids[-1]
    assert "110 rows, seed 5" in repr(rows) != repr(reader.split("train", seed=6, count=110))


@pytest.mark.parametrize("rank", [0, 1])
def test_grain_reads_them_in_that_order_and_goes_on_from_its_state(small_set, rank):
    import grain  # takes a second, which no other test of this file needs

    shards = ShardSet(small_set[0])
    rows = shards.split("train", seed=5, count=96)

    def steps():
        return iter(grain.MapDataset.source(rows)[rank::2].batch(4).to_iter_dataset())

    batches = shards.batches("train", batch_size=8, seed=5, stop_step=12)
    due = [batch["input_ids"][rank::2].tolist() for batch in batches]
    stopped, again = steps(), steps()
    assert [next(stopped)["input_ids"].tolist() for _ in range(5)] == due[:5]
    again.set_state(stopped.get_state())
    assert [batch["input_ids"].tolist() for batch in again] == due[5:]


def test_a_record_is_decoded_by_itself(small_set):
    directory, columns = small_set
    shards = ShardSet(directory)
    paths = [Path(path).name for path in shards.paths("train")]
    assert paths == [f"train-0000{i}-of-00002.{shards.file_format}" for i in (0, 1)]
    codec = shards.schema.codec()
    record = codec.encode({name: values[5:6] for name, values in columns["train"].items()})
    row = shards.decode(record.tobytes())
    np.testing.assert_array_equal(row["input_ids"], columns["train"]["input_ids"][5])
    with pytest.raises(DataError, match="do not match this schema"):
        shards.decode(b"short")


def test_one_changed_byte_is_refused(tmp_path):
    """test_damaged_sets.py damages every file."""
    write_mlm_set(tmp_path / "set")
    path = tmp_path / "set" / "train-00001-of-00002.tfrecord"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path.name} was changed after it was published"):
        ShardSet(path.parent)
    ShardSet(path.parent, verify=False)  # sizes are right


@pytest.mark.parametrize(
    ("file_format", "said"),
    [("tfrecord", "bytes, but 21 rows take"), ("array_record", "has 20 rows instead of")],
)
def test_files_must_hold_the_rows_of_the_manifest(tmp_path, file_format, said):
    directory = tmp_path / "set"
    write_mlm_set(directory, file_formats=(file_format,))
    info = read_dataset(str(directory))
    files = [(f.path, f.split, f.rows and f.rows + 1) for f in info.manifest.files]
    write_manifest(directory, info.schema, files)
    with pytest.raises(DataError, match="has 21 rows, but stats.json 20"):
        ShardSet(directory)
    shards = {name: replace(s, rows=s.rows + 1) for name, s in info.stats.shards.items()}
    stats = replace(info.stats, shards=shards).to_dict(info.schema.row_tokens)
    (directory / "stats.json").write_bytes(to_json(stats))
    write_manifest(directory, info.schema, files)
    with pytest.raises(DataError, match=said):
        ShardSet(directory).read("train", np.array([0]))


def test_wrong_arguments_are_refused(small_set):
    shards = ShardSet(small_set[0])
    with pytest.raises(UsageError, match="no split 'test': it has train, validation"):
        shards.rows("test")
    with pytest.raises(UsageError, match="batch of 7 rows cannot be shared by 2 processes"):
        shards.batches("train", batch_size=7, seed=0, process_count=2)
    for rows in (0, -2):
        with pytest.raises(UsageError, match=f"^a batch of {rows} rows: give at least 1$"):
            shards.batches("train", batch_size=rows, seed=0)
    with pytest.raises(UsageError, match="110 rows of .* give a seed too"):
        shards.split("train", count=110)
    with pytest.raises(UsageError, match="process 2 of 2"):
        shards.batches("train", batch_size=8, seed=0, process_index=2, process_count=2)
    other = {"array_record": "tfrecord", "tfrecord": "array_record"}[shards.file_format]
    with pytest.raises(UsageError, match=f"has no {other} files"):
        ShardSet(small_set[0], file_format=other)


def assert_same_batches(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert sorted(one) == sorted(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])


# Reading ahead


def test_read_ahead_keeps_order_and_errors():
    def items():
        yield from range(5)
        raise DataError("shard gone")

    for depth in (0, 1, 9):
        seen = read_ahead(items(), depth)
        assert list(islice(seen, 5)) == [0, 1, 2, 3, 4]
        with pytest.raises(DataError, match="shard gone"):
            next(seen)


def test_read_ahead_ends_its_thread():
    made = []

    def items():
        for number in range(10**9):
            made.append(number)
            yield number

    seen = read_ahead(items(), 2)
    assert next(seen) == 0
    seen.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "read_ahead"]
    assert len(made) <= 5  # one taken, two ready, one waiting, one begun


def test_a_process_may_end_in_the_middle():
    code = (
        "import itertools; from textmill.trainers.data.batches import read_ahead\n"
        "seen = read_ahead(itertools.count(), 2); print(next(seen))"
    )
    found = run_python("-c", code)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")


def test_a_process_that_ends_waits_for_what_is_computed():
    """A thread that Python stops in the middle of numpy's C++ aborts the process."""
    code = """
import threading, time
from textmill.trainers.data.batches import read_ahead
begun = threading.Event()
def items():
    yield 0
    begun.set()
    time.sleep(0.5)
    print("computed")
    yield 1
seen = read_ahead(items(), 2)
print(next(seen))
begun.wait()
"""
    found = run_python("-c", code)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\ncomputed\n", "")


def test_reads_do_not_fault_in_new_memory_each_time(tmp_path):
    """Each read's arrays take some 800 pages of 4 KiB."""
    write_mlm_set(tmp_path / "set", train=2000, max_length=512)
    code = f"""
import resource
from textmill.trainers.reader import ShardSet
batches = ShardSet({str(tmp_path / "set")!r}).batches("train", batch_size=256, seed=0, prefetch=0)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    next(batches)
before = faults()
for _ in range(200):
    next(batches)
print(faults() - before)
"""
    found = run_python("-c", code)
    assert int(found.stdout) < 200, found.stderr


def test_rows_and_steps_that_are_none_are_refused_in_words(reader):
    rows = reader.rows("train")
    for index in (rows, -1):
        due = f"has no row {index} of 'train': it has {rows} rows, from 0"
        with pytest.raises(IndexError, match=due):
            reader.read("train", [0, index])
    for read in (lambda i: reader.read("train", [i]), lambda i: reader.split("train", seed=0)[i]):
        with pytest.raises(TypeError, match="row .*2.5.* of .*: give whole numbers"):
            read(2.5)
    for wrong in ({"start_step": -1}, {"stride": 0}):
        with pytest.raises(UsageError, match="steps count from 0, and a stride from 1"):
            reader.batches("train", batch_size=4, seed=0, **wrong)
    assert len(reader.read("train", [])["input_ids"]) == 0


def test_rows_tell_their_documents(tmp_path):
    """Each segment of the factory's rows is a document of its own."""
    columns = write_mlm_set(tmp_path / "set", shards={"train": 3, "validation": 1})
    shards = ShardSet(tmp_path / "set")
    counts = columns["train"]["segment_ids"].max(axis=1)
    found = shards.documents_of("train", [39, 2, 39])
    assert [part.row_index for part in found] == [
        row for row in (39, 2, 39) for _ in range(counts[row])
    ]
    assert {part.first for part in found} == {0}
    whole = shards.documents_of("train", range(40))
    assert len({part.digest for part in whole}) == len(whole) == counts.sum()
    assert found[: counts[39]] == whole[-counts[39] :]
    for part in whole:
        assert shards.rows_of("train", part.digest).tolist() == [part.row_index]
    assert shards.rows_of("validation", whole[0].digest).tolist() == []
    listed = Digests(b"".join(part.digest for part in whole[::4]) + b"?" * 16)
    assert shards.find_documents("train", listed) == {
        part.digest: [part.row_index] for part in whole[::4]
    }
    assert shards.find_documents("validation", listed) == {}
    again = pickle.loads(pickle.dumps(shards))
    assert again.documents_of("train", [2]) == shards.documents_of("train", [2])
    with pytest.raises(IndexError, match="has no row 40 of 'train'"):
        shards.documents_of("train", [40])


def test_documents_of_other_rows_are_refused(tmp_path):
    write_mlm_set(tmp_path / "set", shards={"train": 2, "validation": 1})
    name, other = (
        f"{shard}.documents" for shard in ("train-00001-of-00002", "validation-00000-of-00001")
    )
    replace_file(tmp_path / "set", name, (tmp_path / "set" / other).read_bytes())
    shards = ShardSet(tmp_path / "set")
    with pytest.raises(DataError, match=f"{name} has the documents of 10 rows, not of .* 20: copy"):
        shards.documents_of("train", [39])
