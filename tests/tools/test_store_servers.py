"""Faults of the proxy have their effect, and a server that died is started again."""

import http.client
from urllib.parse import quote

import pytest

from schemas.stores.store import package_of
from tests.tools import fault_proxy
from tests.tools.store_servers import SIGNED


def fetch(store, name, timeout=30.0):
    """An object through the proxy, with no library that tries again: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", store.proxy.port, timeout=timeout)
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
    assert server.proxy.requests == []  # these went past it


def test_downloads_are_answered_with_each_fault_in_turn(gs_store, monkeypatch):
    proxy, pauses = gs_store.proxy, []
    gs_store.put("x", b"content")
    rule = proxy.answer(503, "GET", "/x", times=2)
    assert [fetch(gs_store, "x") for _ in range(2)] == [(503, b"")] * 2
    proxy.corrupt("GET", "/x", at=1)
    assert fetch(gs_store, "x") == (200, b"cnntent")
    proxy.cut_download("GET", "/x", after=3)
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        fetch(gs_store, "x")
    proxy.cut_download("GET", "/x", after=None)
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        fetch(gs_store, "x")
    monkeypatch.setattr(fault_proxy.time, "sleep", pauses.append)
    proxy.slow("GET", "/x", chunk=2, seconds=0.05, times=1)
    assert fetch(gs_store, "x") == (200, b"content") and pauses == [0.05] * 4
    assert fetch(gs_store, "x") == (200, b"content")
    assert rule.hits == 2 and proxy.count("GET", "/x") == 7


def test_an_upload_that_is_cut_does_not_arrive(gs_store):
    connection = http.client.HTTPConnection("127.0.0.1", gs_store.proxy.port, timeout=30)
    gs_store.proxy.cut_upload("POST", "name=x", after=1000)
    path = f"/upload/storage/v1/b/{gs_store.bucket}/o?uploadType=media&name=x"
    with pytest.raises(ConnectionError):
        connection.request("POST", path, body=b"x" * 5_000_000)
        connection.getresponse()
    connection.close()
    assert gs_store.names() == []


def test_a_request_hangs_until_the_rules_are_cleared(gs_store):
    gs_store.put("x", b"content")
    gs_store.proxy.hang("GET", "/x")
    with pytest.raises(TimeoutError):
        fetch(gs_store, "x", timeout=0.2)
    gs_store.proxy.clear()
    assert fetch(gs_store, "x")[1] == b"content"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_listing_lags(store):
    def listed():
        files = package_of(store.url())(use_listings_cache=False, skip_instance_cache=True)
        return sorted(path.split("/", 1)[1] for path in files.find(store.bucket, refresh=True))

    store.put("d/old", b"1")
    files = package_of(store.url())(skip_instance_cache=True)
    store.lag(3600)
    files.pipe_file(f"{store.bucket}/d/new", b"2")
    files.rm_file(f"{store.bucket}/d/old")
    assert listed() == ["d/old"] and store.names() == ["d/new"]
    assert fetch(store, "d/new") == (200, b"2")  # objects themselves are current
    store.lag(0)
    assert listed() == ["d/new"]
