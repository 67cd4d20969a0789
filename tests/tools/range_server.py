"""A web server on loopback that answers range requests, and the requests of the Hugging Face Hub.

`tests.tools.hub_server` has a Hub that takes uploads, too.

with RangeServer(directory) as server:
    server.url                      # http://127.0.0.1:PORT
    server.url + "/set/..."         # files of the directory
    # with HF_ENDPOINT=server.url, the directory is the repository hf://datasets/me/data
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

_COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"


class RangeServer(ThreadingHTTPServer):
    """Serves a directory.

    Attributes:
      url: its address.
      served: path and bytes of each file or part of a file that was sent.
    """

    requests: "type[Request]"

    def __init__(self, directory: Path):
        super().__init__(("127.0.0.1", 0), self.requests)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.directory = directory
        self.served: list[tuple[str, int]] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def folder(self, revision: str) -> Path:
        """The files of a revision of the repository; "" for those of the server."""
        return self.directory

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        if path.startswith("api/"):
            self.answer(self.describe(path))
            return
        in_repo = re.fullmatch("datasets/me/data/resolve/([^/]+)/(.+)", path)
        revision, name = in_repo.groups() if in_repo else ("", path)
        file = self.server.folder(revision) / name
        if not file.is_file():
            self._send(404, b"")
            return
        content, status = file.read_bytes(), 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(match[1]), int(match[2] or len(content) - 1)
            content, status = content[start : end + 1], 206 if start < len(content) else 416
        self.server.served.append((name, len(content)))
        self._send(status, content)

    do_HEAD = do_GET

    def describe(self, path: str) -> object:
        """The Hub's answer about the repository, or the list of a folder."""
        tree = re.fullmatch("api/datasets/me/data/tree/([^/]+)/?(.*)", path)
        if not tree:
            return {"id": "me/data", "sha": _COMMIT, "siblings": [], "tags": [], "private": False}
        root = self.server.folder(tree[1])
        found = (root / tree[2]).glob("**/*" if "recursive=true" in self.path else "*")
        return [self.entry(path, path.relative_to(root).as_posix()) for path in sorted(found)]

    def entry(self, path: Path, name: str) -> dict[str, object]:
        """The Hub's description of a file or folder."""
        kind = "file" if path.is_file() else "directory"
        return {"type": kind, "path": name, "size": path.stat().st_size, "oid": _COMMIT}

    def answer(self, value: object, status: int = 200) -> None:
        """Sends JSON."""
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


RangeServer.requests = Request
