"""The servers and the proxy that stand in for stores do what the tests that use them rely on."""

import http.client
import os
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

from schemas.stores.store import package_of
from tests.tools.store_servers import SIGNED


def fetch(store, name):
    """An object through the proxy, with no library that tries again: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", store.proxy.port, timeout=30)
    try:
        if store.scheme == "gs":
            path = f"/storage/v1/b/{store.bucket}/o/{quote(name, safe='')}?alt=media"
        else:
            path = f"/{store.bucket}/{name}"
        connection.request("GET", path, headers=SIGNED)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def listed(store):
    """Names that a client's listing has."""
    files = package_of(store.url())(use_listings_cache=False, skip_instance_cache=True)
    return sorted(path.split("/", 1)[1] for path in files.find(store.bucket, refresh=True))


def test_objects_are_put_read_listed_and_deleted(store):
    assert store.names() == []
    store.put("a/b c.bin", b"\0\1\2")
    store.put("a/d", b"x" * 100_000)
    assert store.names() == ["a/b c.bin", "a/d"] and store.names("a/d") == ["a/d"]
    assert store.get("a/b c.bin") == b"\0\1\2" and len(store.get("a/d")) == 100_000
    store.put("a/d", b"")
    assert store.get("a/d") == b""
    store.delete("a/d")
    assert store.names() == ["a/b c.bin"]
    with pytest.raises(FileNotFoundError, match="a/d"):
        store.get("a/d")
    assert store.proxy.requests == []  # these went past it


@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_a_server_that_died_is_started_again_for_the_next_test(kind, request, capsys):
    server = request.getfixturevalue(f"{kind}_session_server")
    before = server.program.process
    before.kill()
    before.wait()
    again = request.getfixturevalue(f"{kind}_store")  # as a test after the death gets it
    assert server.program.process is not before
    assert "had died (exit -9)" in capsys.readouterr().out
    again.put("a", b"x")
    assert again.get("a") == b"x"


def test_a_directory_is_uploaded_with_its_manifest_last(store, tmp_path):
    (tmp_path / "rejects").mkdir()
    for name in ("MANIFEST.json", "a", "rejects/z"):
        (tmp_path / name).write_text(name)
    assert store.upload(tmp_path, "set") == f"{store.scheme}://{store.bucket}/set"
    assert store.names() == ["set/MANIFEST.json", "set/a", "set/rejects/z"]
    assert store.get("set/rejects/z") == b"rejects/z"


def test_fsspec_finds_it_by_the_environment_also_in_another_process(store):
    store.put("x", b"content")
    script = (
        "from schemas.stores.store import package_of\n"
        f"url = {store.url('x')!r}\n"
        "print(package_of(url)().cat_file(url))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.strip() == "b'content'", result.stderr
    assert all(os.environ[name] == value for name, value in store.environment.items())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:google")
def test_beam_writes_and_reads_it(store):
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    FileSystems.set_options(PipelineOptions([]))  # s3:// wants some, as every pipeline gives it
    with FileSystems.create(store.url("d/x.txt"), "application/octet-stream") as file:
        file.write(b"from beam")
    assert store.get("d/x.txt") == b"from beam"
    with FileSystems.open(store.url("d/x.txt")) as file:
        assert file.read() == b"from beam"
    FileSystems.rename([store.url("d/x.txt")], [store.url("d/y.txt")])
    assert [m.path for m in FileSystems.match([store.url("d/*")])[0].metadata_list] == [
        store.url("d/y.txt")
    ]
    FileSystems.delete([store.url("d/y.txt")])
    assert store.names() == []
    assert store.proxy.count(".*", ".") > 3


def test_an_answer_of_503_so_many_times(store):
    store.put("x", b"content")
    rule = store.proxy.answer(503, "GET", "/x", times=2)
    assert [fetch(store, "x") for _ in range(3)] == [(503, b""), (503, b""), (200, b"content")]
    assert rule.hits == 2 and store.proxy.count("GET", "/x") == 3


def test_a_download_is_cut(store):
    store.put("x", b"content")
    store.proxy.cut_download("GET", "/x", after=3)
    store.proxy.cut_download("GET", "/x", after=None)
    for _ in range(2):
        with pytest.raises((ConnectionError, http.client.IncompleteRead)):
            fetch(store, "x")
    assert fetch(store, "x") == (200, b"content")


def test_an_upload_is_cut_and_nothing_arrives(store):
    import boto3
    from botocore.config import Config
    from botocore.exceptions import HTTPClientError

    if store.scheme == "gs":
        connection = http.client.HTTPConnection("127.0.0.1", store.proxy.port, timeout=30)
        store.proxy.cut_upload("POST", "name=x", after=1000)
        path = f"/upload/storage/v1/b/{store.bucket}/o?uploadType=media&name=x"
        with pytest.raises(ConnectionError):
            connection.request("POST", path, body=b"x" * 5_000_000)
            connection.getresponse()
        connection.close()
    else:
        store.proxy.cut_upload("PUT", "/x", after=1000)
        client = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
        with pytest.raises(HTTPClientError):
            client.put_object(Bucket=store.bucket, Key="x", Body=b"x" * 5_000_000)
        client.put_object(Bucket=store.bucket, Key="x", Body=b"x" * 5_000_000)
        assert len(store.get("x")) == 5_000_000
        client.close()
        store.delete("x")
    assert store.names() == []


def test_a_download_trickles_or_is_corrupt(store):
    store.put("x", b"content")
    store.proxy.slow("GET", "/x", chunk=2, seconds=0.05, times=1)
    began = time.monotonic()
    assert fetch(store, "x") == (200, b"content")
    assert time.monotonic() - began >= 0.2
    rule = store.proxy.corrupt("GET", "/x", at=1)
    assert fetch(store, "x") == (200, b"cnntent")
    assert fetch(store, "x") == (200, b"content") and rule.hits == 1


def test_what_hangs_goes_on_when_rules_are_cleared(store):
    store.put("x", b"content")
    store.proxy.hang("GET", "/x")
    connection = http.client.HTTPConnection("127.0.0.1", store.proxy.port, timeout=0.2)
    connection.request("GET", "/x", headers=SIGNED)
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    store.proxy.clear()
    assert fetch(store, "x")[1] == b"content"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_listing_lags(store):
    store.put("d/old", b"1")
    files = package_of(store.url())(skip_instance_cache=True)
    store.lag(3600)
    files.pipe_file(f"{store.bucket}/d/new", b"2")
    files.rm_file(f"{store.bucket}/d/old")
    assert listed(store) == ["d/old"] and store.names() == ["d/new"]
    assert fetch(store, "d/new") == (200, b"2")  # objects themselves are current
    store.lag(0)
    assert listed(store) == ["d/new"]


def test_a_store_of_each_kind_at_once(gs_store, s3_store):
    gs_store.put("x", b"g")
    s3_store.put("x", b"s")
    assert gs_store.get("x") + s3_store.get("x") == b"gs"
