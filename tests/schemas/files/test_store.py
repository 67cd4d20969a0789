"""Files of an object store: big, changed, deleted, and read on a bad day."""

import hashlib
import os
import random
import re
import time
from pathlib import Path

import fsspec
import pytest
import s3fs.core

from textmill.pipelines.readers.files import open_file
from textmill.schemas.errors import DataError
from textmill.schemas.files import object_store
from textmill.schemas.files import store as stores

MB = 1 << 20
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
]


def _content(size):
    """Random bytes; the emulator of gs loses a carriage return at the end of an upload."""
    return random.Random(0).randbytes(size - 1) + b"."


def put(store, name, content, folder):
    local = folder / "local"
    local.write_bytes(content)
    stores.put(str(local), store.url(name))


@pytest.mark.timeout(20)
def test_a_pipe_or_device_is_refused_at_once(tmp_path):
    """Also a name that was a file when the run was planned."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(DataError, match=f"{path} is not a regular file but a pipe or a device"):
            stores.read(path)
        with pytest.raises(DataError, match="is not a regular file"), open_file(path):
            pass
        with pytest.raises(DataError, match="is not a regular file"):
            stores.sha256(path)


@pytest.mark.slow
def test_a_big_file_travels_in_parts_on_a_bad_day(store, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_PART_BYTES", 5 * MB)
    monkeypatch.setattr(stores, "_BUFFER_BYTES", 4 * MB)
    content = _content(11 * MB)
    part = ("PUT", "partNumber=2") if store.scheme == "s3" else ("POST", "upload_id")
    whole = ("GET", "d/big" if store.scheme == "s3" else "download/.*d/big")
    rules = [
        store.proxy.answer(503, *part),
        store.proxy.cut_upload(*part, after=MB),
        store.proxy.cut_download(*whole, after=MB),
    ]
    put(store, "d/big", content, tmp_path)
    assert rules[-1].hits == 0  # the store's checksum proves the upload: nothing is read back
    assert store.get("d/big") == content and store.proxy.count(*part) > 2
    assert stores.sizes(store.url("d")) == {"big": 11 * MB}
    copy = stores.local_copy(store.url("d/big"), str(tmp_path))
    assert Path(copy).read_bytes() == content
    assert [rule.action for rule in rules if not rule.hits] == []


@pytest.mark.parametrize(
    ("kind", "size"), [("gs", 100_000), ("s3", 100_000), ("s3", 11 * MB)], ids=str
)
def test_an_upload_that_arrives_changed_is_repeated(kind, size, tmp_path, monkeypatch, request):
    store = request.getfixturevalue(f"{kind}_store")
    monkeypatch.setattr(stores, "_PART_BYTES", 5 * MB)
    # As where a checksum in the request is not compared: AWS refuses this upload.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    content = _content(size)
    rule = store.proxy.corrupt_upload(
        "PUT|POST", r"d/x$|partNumber|uploadType=multipart|upload_id", at=50_000
    )
    put(store, "d/x", content, tmp_path)
    assert rule.hits == 1 and store.get("d/x") == content
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 0.2)
    store.proxy.corrupt_upload(rule.method, rule.path, at=50_000, times=None)
    with pytest.raises(DataError, match="d/x cannot be written: it has other bytes than were"):
        put(store, "d/x", content, tmp_path)


def test_requests_are_sent_again_one_by_one(s3_store, tmp_path, monkeypatch):
    """An upload in parts is not begun anew when one part fails; no request waits for long."""
    monkeypatch.setattr(stores, "_PART_BYTES", 5 * MB)
    content = _content(11 * MB)
    s3_store.proxy.answer(503, ".*", "d/big", times=None, every=2)
    began = time.monotonic()
    put(s3_store, "d/big", content, tmp_path)
    assert s3_store.proxy.count("PUT", "partNumber") <= 6
    path = s3_store.url("d/big")
    assert [stores.read(path, 5, 10) for _ in range(8)] == [content[5:15]] * 8
    assert s3_store.proxy.count("GET", "d/big") == 16
    assert time.monotonic() - began < 30, "half a second a request on average"


@pytest.mark.parametrize("every", [2, 1], ids=["passing", "lasting"])
def test_a_stalled_answer_is_given_up_and_reported(every, store, monkeypatch, capsys):
    for name, seconds in {"STALL": 0.3, "SILENT": 0.1, "PATIENCE": 1.0, "ANSWER": 3.0}.items():
        monkeypatch.setattr(object_store, f"{name}_SECONDS", seconds)
    monkeypatch.setattr(object_store, "_AGAIN_SECONDS", 0.1)
    store.put("d/x", b"content")
    path = store.url("d/x")
    store.proxy.hang("GET", "d/x", every=every)
    if every == 2:
        assert stores.read(path) == b"content"
    else:
        with pytest.raises(DataError, match=f"{path} cannot be read: .*check the address"):
            stores.read(path)
    assert f"waiting for {path}: no answer yet, " in capsys.readouterr().err


def test_a_retry_is_reported_with_its_reason(s3_store, monkeypatch, capsys):
    for name, seconds in {"SILENT_SECONDS": 0.0, "PATIENCE_SECONDS": 1.0}.items():
        monkeypatch.setattr(object_store, name, seconds)
    monkeypatch.setattr(object_store, "_AGAIN_SECONDS", 0.0)
    path = s3_store.url("d/x")
    s3_store.put("d/x", b"content")
    s3_store.proxy.answer(503, "GET", "d/x", times=None)
    with pytest.raises(DataError, match=f"{path} cannot be read: "):
        stores.read(path)
    said = capsys.readouterr().err
    assert re.search(rf"^waiting for {path}: 503; retry [1-9] in [012] s$", said, re.M), said


def test_a_checksum_that_is_none_of_the_content_is_followed_by_a_comparison(
    store, tmp_path, monkeypatch
):
    """As of s3:// with encryption, whose ETag is not an MD5."""
    monkeypatch.setattr(stores, "_checksum", lambda *_, **__: "other")
    content = "download/.*d/x" if store.scheme == "gs" else "d/x"
    store.proxy.corrupt("GET", content, at=10)
    put(store, "d/x", b"y" * 1000, tmp_path)
    assert store.proxy.count("GET", content) >= 2 and store.get("d/x") == b"y" * 1000


def test_s3_copies_a_very_big_file_in_parts(s3_store, tmp_path, monkeypatch):
    put(s3_store, "a", b"x" * 1000, tmp_path)
    monkeypatch.setattr(s3fs.core, "MANAGED_COPY_THRESHOLD", 999)  # of 5 GB
    stores.copy_all({s3_store.url("a"): s3_store.url("b")}, {s3_store.url("b"): 1000})
    assert s3_store.get("b") == b"x" * 1000 and s3_store.proxy.count("POST", "b\\?uploads")


def test_a_copy_of_another_size_is_refused(gs_store, monkeypatch):
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 0.2)
    gs_store.put("a", b"four")
    with pytest.raises(DataError, match="b cannot be written: the copy has 4 bytes, not 5"):
        stores.copy_all({gs_store.url("a"): gs_store.url("b")}, {gs_store.url("b"): 5})


def test_empty_files_and_those_that_are_not_there(store, tmp_path):
    put(store, "empty", b"", tmp_path)
    stores.write_file(store.url("d/x"), b"")
    assert store.get("empty") == store.get("d/x") == b""
    assert stores.read(store.url("empty")) == stores.read(store.url("empty"), 5, 5) == b""
    assert stores.has_sha256(store.url("d/x"), hashlib.sha256(b"").hexdigest())
    assert stores.exists(store.url("d/x")) and not stores.exists(store.url("d"))
    assert not stores.exists(store.url("none")) and not stores.has_sha256(store.url("none"), "")
    with pytest.raises(FileNotFoundError, match="there is no such file: '.*://.*/none'"):
        stores.read(store.url("none"))
    stores.delete([store.url("none"), store.url("empty")])
    stores.delete_folder(store.url("d"))
    assert store.names() == [] and stores.sizes(store.url("d")) == {}
    nowhere = f"{store.scheme}://no-bucket-of-ours/x"
    assert not stores.exists(nowhere) and stores.sizes(nowhere) == {}
    with pytest.raises(DataError, match="no-bucket-of-ours/x cannot be written: there is no such"):
        stores.write_file(nowhere, b"x")


def test_a_file_that_shrinks_while_it_is_read(gs_store, monkeypatch):
    monkeypatch.setattr(stores, "_BUFFER_BYTES", 10)
    gs_store.put("x", b"0123456789" * 3)
    with open_file(gs_store.url("x")) as file:
        assert file.read(10) == b"0123456789"
        gs_store.put("x", b"0123456789" + b"abc")
        with pytest.raises(DataError, match="x returned 3 bytes instead of 10"):
            file.read(10)


@pytest.mark.parametrize("is_remote", [False, True], ids=["disk", "memory"])
def test_a_path_and_a_url_are_read_alike(is_remote, tmp_path):
    folder = "memory://b/alike" if is_remote else str(tmp_path)
    path, missing = f"{folder}/x", f"{folder}/none"
    assert stores.is_url(path) == is_remote
    with stores.workspace(folder) as local:
        Path(local, "new").write_bytes(b"0123456789")
        stores.put(f"{local}/new", path)
    stores.write_file(f"{folder}/y", b"")
    assert stores.sizes(folder) == {"x": 10, "y": 0}
    assert stores.exists(path) and stores.size(path) == 10
    assert not stores.exists(missing) and stores.size(missing) is None
    assert [stores.read(path), stores.read(path, 8, 5), stores.read(path, 2, 3)] == [
        b"0123456789",
        b"89",
        b"234",
    ]
    with stores.open_file(path) as file:
        assert (file.seek(-2, os.SEEK_END), file.read(), file.tell()) == (8, b"89", 10)
    assert Path(stores.local_copy(path, str(tmp_path))).read_bytes() == b"0123456789"
    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert stores.sha256(path) == digest and stores.has_sha256(path, digest)
    assert not stores.has_sha256(path, "") and not stores.has_sha256(missing, digest)
    for read in (stores.read, stores.open_file, stores.sha256):
        with pytest.raises(FileNotFoundError):
            read(missing)
    stores.delete_folder(folder)
    assert not stores.exists(path)


def test_a_store_of_another_package():
    """A file system that is not asynchronous, and knows nothing of parts."""
    stores.write_file("memory://b/d/x", b"content")
    stores.copy_all({"memory://b/d/x": "memory://b/y"}, {"memory://b/y": 7})
    assert stores.sizes("memory://b") == {"d/x": 7, "y": 7}
    stores.delete_folder("memory://b")
    assert not fsspec.filesystem("memory").find("/b")
