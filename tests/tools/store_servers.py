"""Stores to test with: real server programs for gs:// and s3:// on loopback, behind a fault proxy.

    def test_something(gs_store):
        gs_store.put("shards/x", b"...")
        path = gs_store.url("shards/x")             # gs://bucket-of-this-test/shards/x
        gs_store.proxy.answer(503, "GET", "shards/x", times=2)

The environment, also of processes that are started from here, is such that Beam, fsspec, boto and
Google's libraries find the server without flags or accounts. A server lives as long as the session,
a bucket as long as a test.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.tools.fault_proxy import FaultProxy
from tests.tools.run_processes import free_port

_START_SECONDS = 60.0
# The libraries would rather ask a metadata service, which is not there, than read the file.
_CREDENTIALS = {
    "type": "authorized_user",
    "client_id": "x",
    "client_secret": "x",
    "refresh_token": "x",
    "token": "fake",
    "expiry": "2099-01-01T00:00:00Z",
}
# The server requires a signature for an object of s3://, and does not check it.
_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=x"
}
_JSON = {"Content-Type": "application/json"}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Server:
    """A server program that keeps its data in memory, and the proxy in front of it.

    Attributes:
      kind: "gs" or "s3".
      port: the program's, also after it was started again.
      process: that runs the program now.
      environment: variables by which clients find the proxy.
    """

    process: subprocess.Popen

    def __init__(self, kind: str, words: list[str], port_flag: str, alive: str, directory: Path):
        """Starts it, and waits until it answers at the path `alive`."""
        self.kind, self.port, self._log = kind, free_port(), directory / "server.log"
        self._command = [sys.executable, *words, port_flag.format(self.port)]
        self._alive = f"http://127.0.0.1:{self.port}{alive}"
        self._start()
        self.proxy = FaultProxy(self.port)
        self.environment = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.close()
        self._stop()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """Asks the server itself, past the proxy."""
        headers = {"Content-Type": "application/octet-stream", **_SIGNED, **headers}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        with _DIRECT.open(request, timeout=60) as answer:
            return answer.read()

    def revive(self) -> None:
        """Starts it again where it died or answers no more, and prints the end of its log."""
        if self.process.poll() is None and self._answers():
            return
        self._stop()
        print(f"{self._alive} had died (exit {self.process.returncode}):\n{self._end_of_log()}")
        self._start()

    def _stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _start(self) -> None:
        with open(self._log, "ab") as out:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                raise RuntimeError(f"{self._alive} did not start:\n{self._end_of_log()}")
            time.sleep(0.05)

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def _answers(self) -> bool:
        try:
            with _DIRECT.open(self._alive, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            return False


class Store:
    """A bucket of its own.

    Attributes:
      scheme: "gs" or "s3".
      bucket: its name.
      proxy: that all clients go through; `put`, `get` and `names` do not.
      environment: variables by which clients find it; they are set while a fixture is in use.
    """

    def __init__(self, server: Server):
        self._server = server
        self.scheme, self.proxy = server.kind, server.proxy
        self.environment = dict(server.environment)
        self.bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        self.proxy.clear()
        if self.scheme == "gs":
            content = json.dumps({"name": self.bucket}).encode()
            server.request("POST", "/storage/v1/b?project=p", content, **_JSON)
        else:
            server.request("PUT", f"/{self.bucket}")

    def url(self, name: str = "") -> str:
        """gs://BUCKET/name."""
        return f"{self.scheme}://{self.bucket}/{name}"

    def put(self, name: str, content: bytes) -> None:
        """Makes an object."""
        quoted = urllib.parse.quote(name, safe="")
        if self.scheme == "gs":
            path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quoted}"
            headers = {}
            if not content:  # the server stumbles over an empty body, but not over an empty part
                path = path.replace("=media", "=multipart")
                headers = {"Content-Type": "multipart/related; boundary=x"}
                content = b"--x\r\n\r\n{}\r\n--x\r\n\r\n\r\n--x--\r\n"
            self._server.request("POST", path, content, **headers)
        else:
            self._server.request("PUT", f"/{self.bucket}/{urllib.parse.quote(name)}", content)

    def get(self, name: str) -> bytes:
        """The content of an object.

        Raises:
          FileNotFoundError: there is none.
        """
        try:
            return self._server.request("GET", self._object(name) + ("?alt=media" * self._google))
        except urllib.error.HTTPError as error:
            with error:
                raise FileNotFoundError(self.url(name)) from error

    def delete(self, name: str) -> None:
        """Removes an object."""
        self._server.request("DELETE", self._object(name))

    def names(self, prefix: str = "") -> list[str]:
        """All objects, sorted."""
        path = f"/storage/v1/b/{self.bucket}/o" if self._google else f"/{self.bucket}?list-type=2"
        listing = self._server.request("GET", path)
        if self._google:
            found = [item["name"] for item in json.loads(listing).get("items", [])]
        else:
            keys = ElementTree.fromstring(listing).iterfind("{*}Contents/{*}Key")
            found = [key.text or "" for key in keys]
        return sorted(name for name in found if name.startswith(prefix))

    def upload(self, directory: Path | str, name: str) -> str:
        """Puts all files of a directory under a name, MANIFEST.json last; gives its URL."""
        files = sorted(path for path in Path(directory).rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path.name == "MANIFEST.json"):
            self.put(f"{name}/{path.relative_to(directory).as_posix()}", path.read_bytes())
        return self.url(name)

    @property
    def _google(self) -> bool:
        return self.scheme == "gs"

    def _object(self, name: str) -> str:
        if self._google:
            quoted = urllib.parse.quote(name, safe="")
            return f"/storage/v1/b/{self.bucket}/o/{quoted}"
        return f"/{self.bucket}/{urllib.parse.quote(name)}"


@contextlib.contextmanager
def gs_server(directory: Path) -> Iterator[Server]:
    """gcp-storage-emulator; `directory` gets its log and the fake credentials."""
    credentials = directory / "credentials.json"
    credentials.write_text(json.dumps(_CREDENTIALS))
    words = ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", "--in-memory", "--quiet"]
    with Server("gs", words, "--port={}", "/", directory) as server:
        endpoint = f"http://127.0.0.1:{server.proxy.port}"
        server.environment |= {
            "STORAGE_EMULATOR_HOST": endpoint,
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint,  # of array_record's own reader
            "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
            "GOOGLE_CLOUD_PROJECT": "p",
            "NO_GCE_CHECK": "true",
            "GCE_METADATA_HOST": "127.0.0.1:1",
            "GCE_METADATA_IP": "127.0.0.1:1",
        }
        yield server


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[Server]:
    """moto's server; `directory` gets its log."""
    words = ["-c", "from moto.server import main; main()", "-H", "127.0.0.1"]
    with Server("s3", words, "-p{}", "/moto-api/", directory) as server:
        server.environment |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.proxy.port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield server


@pytest.fixture(scope="session")
def gs_session_server(tmp_path_factory):
    """Started by the first test that needs it."""
    with gs_server(tmp_path_factory.mktemp("gs_server")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_session_server(tmp_path_factory):
    """Started by the first test that needs it."""
    with s3_server(tmp_path_factory.mktemp("s3_server")) as server:
        yield server


class _Hasty:
    """asyncio for gcsfs's retries, which wait for a second and more."""

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


@pytest.fixture
def gs_store(gs_session_server, monkeypatch):
    """An empty bucket, `gs://`, which clients in this process ask again soon."""
    yield from _fresh(gs_session_server, monkeypatch)


@pytest.fixture
def s3_store(s3_session_server, monkeypatch):
    """An empty bucket, `s3://`, for clients that know nothing of the environment of before."""
    import s3fs  # takes half a second, which most tests need not wait

    s3fs.S3FileSystem.clear_instance_cache()
    yield from _fresh(s3_session_server, monkeypatch)


@pytest.fixture(params=["gs", "s3"])
def store(request):
    """An empty bucket, of each kind in turn."""
    return request.getfixturevalue(f"{request.param}_store")


def _fresh(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if server.kind == "gs":  # Google's packages read the environment when they are imported
        monkeypatch.setattr("gcsfs.retry.asyncio", _Hasty)
    server.revive()
    store = Store(server)
    yield store
    server.proxy.clear(store.bucket)
