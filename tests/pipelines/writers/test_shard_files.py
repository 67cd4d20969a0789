"""Shards are written atomically, and a dataset appears with its manifest."""

import errno
import os

import numpy as np
import pytest

from tests.tools.shard_factory import with_heads
from textmill.pipelines.writers import shard_files
from textmill.pipelines.writers.output_directory import refuse_others
from textmill.pipelines.writers.staging import STAGING
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus, DatasetInfo, TokenizerInfo
from textmill.schemas.files.lock import LOCK
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.records import open_rows


def rows(count, stride=40, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, stride)).astype(np.uint8)


@pytest.mark.parametrize("count", [100, 0])
def test_a_shard_in_both_formats_holds_the_same_rows(tmp_path, count):
    matrix = rows(count)
    files = shard_files.write_shard(
        [with_heads(matrix[:60]), with_heads(matrix[60:])] if count else [],
        str(tmp_path),
        "my_split-00000-of-00002",
        ("array_record", "tfrecord"),
        40,
    )
    assert sorted(os.listdir(tmp_path)) == sorted(shard_files.staged_name(file) for file in files)
    for file in files:
        path = str(tmp_path / shard_files.staged_name(file))
        assert (file.rows, file.split) == (count, "my_split")
        assert (file.bytes, file.sha256) == (os.path.getsize(path), store.sha256(path))
        assert (open_rows(path, 40).read_range(0, count) == matrix).all()


def test_a_failure_leaves_no_file(tmp_path):
    def chunks():
        yield rows(10)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match=r"no space left while writing .*train-00000.*MB free"):
        shard_files.write_shard(
            chunks(), str(tmp_path), "train-00000-of-00001", ("array_record", "tfrecord"), 40
        )
    assert os.listdir(tmp_path) == []
    with pytest.raises(DataError, match=r"cannot write .*here: Permission denied"):
        with store.disk_errors("here"):
            raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(
    ("own", "name"),
    [
        (DatasetInfo, "test-00000-of-00003.parquet"),  # as Hugging Face names files
        (Corpus, "config.yaml"),
        (Corpus, "schema.json"),
        (Corpus, "rejects/rejects.jsonl"),
        (TokenizerInfo, "histogram.parquet"),
        (TokenizerInfo, "rejects/rejects.jsonl"),
        (TokenizerInfo, "tokenizer.json"),
    ],
)
def test_a_directory_with_a_users_file_that_a_run_would_replace_is_refused(tmp_path, own, name):
    refuse_others(str(tmp_path), own)
    (tmp_path / "my.parquet").touch()
    refuse_others(str(tmp_path), own)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"already has a file {name}, which the run would replace"):
        refuse_others(str(tmp_path), own)
    (tmp_path / LOCK).touch()  # of a run that was interrupted
    refuse_others(str(tmp_path), own)


def staged(output, name, content):
    path = output / STAGING / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return ManifestFile(name, len(content), store.sha256(str(path)))


def test_publishing_moves_all_and_replaces_an_older_set(tmp_path):
    others = ("dataset_info.json", "features.json", "evaluation.jsonl", "decontamination.json")
    others += ("hosts.json",)
    for name in ("train-00000-of-00007.tfrecord", *others, "MANIFEST.json", "my-notes.txt"):
        (tmp_path / name).write_text("old")
    files = (staged(tmp_path, "rejects/r.jsonl", b"x"), staged(tmp_path, "schema.json", b"{}"))
    shard_files.publish(DatasetInfo, str(tmp_path), "", "f" * 64, files, {})
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"MANIFEST.json", "my-notes.txt", "rejects", "schema.json"}
    assert (tmp_path / "rejects" / "r.jsonl").read_bytes() == b"x"
    (tmp_path / "MANIFEST.json").unlink()
    (tmp_path / STAGING).mkdir()
    with pytest.raises(DataError, match="is gone"):  # a file that is not staged
        shard_files.publish(
            DatasetInfo, str(tmp_path), "", "f" * 64, [ManifestFile("a", 3, "0" * 64)], {}
        )
    assert not (tmp_path / "MANIFEST.json").exists()


def test_a_manifest_is_written_when_all_else_is_on_the_disk(tmp_path, monkeypatch):
    """The bytes of a shard are synced before it is named, and its name before the manifest's."""
    events, fsync, replace = [], os.fsync, os.replace

    def note_fsync(file):
        events.append(("fsync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def note_replace(old, new):
        events.append(("replace", new))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    (tmp_path / STAGING).mkdir()
    name = "train-00000-of-00001"
    files = shard_files.write_shard([rows(3)], str(tmp_path / STAGING), name, ("tfrecord",), 40)
    shard_files.publish(DatasetInfo, str(tmp_path), "", "f" * 64, files, {})
    staged = events.index(("replace", str(tmp_path / STAGING / shard_files.staged_name(files[0]))))
    moved = events.index(("replace", f"{tmp_path}/{name}.tfrecord"))
    manifest = events.index(("replace", f"{tmp_path}/MANIFEST.json"))
    assert any(kind == "fsync" and name in path for kind, path in events[:staged])
    assert ("fsync", str(tmp_path)) in events[moved:manifest]
