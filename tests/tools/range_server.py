"""A web server on loopback that answers range requests, and the requests of the Hugging Face Hub.

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

    def __init__(self, directory: Path):
        super().__init__(("127.0.0.1", 0), _Request)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.directory = directory
        self.served: list[tuple[str, int]] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        if path.startswith("api/"):
            self._send(200, json.dumps(self._answer(path)).encode())
            return
        name = re.sub("^datasets/me/data/resolve/main/", "", path)
        file = self.server.directory / name
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

    def _answer(self, path: str) -> object:
        if "/tree/main" not in path:
            return {"id": "me/data", "sha": _COMMIT, "siblings": [], "tags": [], "private": False}
        folder = self.server.directory / path.split("/tree/main")[1].strip("/")
        return [
            {
                "type": "file" if entry.is_file() else "directory",
                "path": entry.relative_to(self.server.directory).as_posix(),
                "size": entry.stat().st_size,
                "oid": _COMMIT,
            }
            for entry in sorted(folder.iterdir())
        ]

    def _send(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""
