"""An HTTP proxy on loopback that does to requests what networks and stores do to them.

    with FaultProxy(server_port) as proxy:
        rule = proxy.answer(503, "GET", "train-00000", times=2)
        ...                                    # requests to proxy.port
        assert rule.hits == 2 and proxy.count("GET", "train-00000") == 3

Every connection carries one request. The proxy reads a request whole, passes it on over a
connection of its own, and reads the answer whole before it returns it.
"""

import http.client
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_WAIT = 60.0  # seconds, of a test that has lost its way
_OF_A_CONNECTION = {"connection", "keep-alive", "expect", "transfer-encoding"}


@dataclass
class Rule:
    """A fault of the requests that match.

    Attributes:
      action: answer, cut_upload, corrupt_upload, cut_download, slow, corrupt, hang.
      method: a regular expression that the whole method matches.
      path: a regular expression that is found in the unquoted path and query.
      times: it is done to the first so many; None: to all.
      every: it is done to one of so many that match, the first of them included.
      status: of an answer that comes in place of the server's.
      content: of this answer.
      after: bytes of a body before the connection is reset; None: before the first.
      at: byte whose lowest bit is flipped, modulo the length of the body.
      chunk: bytes between two pauses.
      seconds: of a pause.
      hits: requests it was done to.
      seen: requests that match.
    """

    action: str
    method: str
    path: str
    times: int | None = 1
    every: int = 1
    status: int = 0
    content: bytes = b""
    after: int | None = None
    at: int = 0
    chunk: int = 0
    seconds: float = 0.0
    hits: int = 0
    seen: int = 0

    def matches(self, method: str, path: str) -> bool:
        return bool(re.fullmatch(self.method, method) and re.search(self.path, path))


_NO_FAULT = Rule("", "", "")


class _Gone(Exception):
    """The connection is to be reset."""


class FaultProxy(ThreadingHTTPServer):
    """Passes HTTP requests on to a server on this machine, except for those that a rule picks.

    Attributes:
      port: where it listens, on 127.0.0.1.
      requests: (method, unquoted path with query) of all since the last `clear`.
      sent: bytes of the bodies of answers so far.
    """

    request_queue_size = 128

    def __init__(self, behind: int):
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.port, self.behind = self.server_address[1], behind
        self.requests: list[tuple[str, str]] = []
        self.sent = 0
        self.cleared = threading.Event()
        self._rules: list[Rule] = []
        self._over: set[str] = set()  # buckets of tests that are over
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening."""
        self.clear()
        self.shutdown()
        self.server_close()

    def clear(self, bucket: str = "") -> None:
        """Forgets rules and requests; what hangs goes on.

        Args:
          bucket: whose requests count no more and meet no rule: threads of a test that is over may
            still read ahead.
        """
        with self._lock:
            self._over.update([bucket] if bucket else [])
            self._rules = []
            self.requests.clear()
            self.cleared.set()
            self.cleared = threading.Event()

    def count(self, method: str, path: str) -> int:
        """Requests so far that match."""
        asked = Rule("", method, path)
        with self._lock:
            return sum(asked.matches(*request) for request in self.requests)

    def answer(self, status: int, method: str, path: str, **settings: Any) -> Rule:
        """The server is not asked: the answer is this status, such as 503."""
        return self._add("answer", method, path, status=status, **settings)

    def _add(self, action: str, method: str, path: str, **settings: Any) -> Rule:
        """Adds a rule; the settings are its attributes."""
        rule = Rule(action, method, path, **settings)
        with self._lock:
            self._rules.append(rule)
        return rule

    # The connection is reset after some bytes of the request's body; none arrives.
    cut_upload = partialmethod(_add, "cut_upload")
    corrupt_upload = partialmethod(_add, "corrupt_upload")
    # The server answers; with after=None, the request is done and the client does not know.
    cut_download = partialmethod(_add, "cut_download")
    corrupt = partialmethod(_add, "corrupt")
    slow = partialmethod(_add, "slow", times=None)
    hang = partialmethod(_add, "hang", times=None)  # until `clear`

    def note_sent(self, size: int) -> None:
        """Counts bytes of a body."""
        with self._lock:
            self.sent += size

    def rule_for(self, method: str, target: str) -> Rule | None:
        """Notes a request; the first rule that is due to it."""
        path = unquote(target)
        with self._lock:
            if any(bucket in target for bucket in self._over):
                return None
            self.requests.append((method, path))
            for rule in self._rules:
                if (rule.times is None or rule.hits < rule.times) and rule.matches(method, path):
                    rule.seen += 1
                    if (rule.seen - 1) % rule.every == 0:
                        rule.hits += 1
                        return rule
        return None


class _Exchange(BaseHTTPRequestHandler):
    """A request and its answer."""

    protocol_version = "HTTP/1.1"
    timeout = _WAIT
    server: FaultProxy

    def _exchange(self) -> None:
        self.close_connection = True
        try:
            self._answer(self.server.rule_for(self.command, self.path) or _NO_FAULT)
        except _Gone:
            # A socket that closes with this option sends RST, which the client sees as a reset.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        except OSError:
            pass  # the client does not want its answer any more, or the server has stopped

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _exchange

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""

    def _answer(self, rule: Rule) -> None:
        action, cleared = rule.action, self.server.cleared
        body = self._read_body(rule.after if action == "cut_upload" else None)
        if action == "hang":
            cleared.wait(_WAIT)
            raise _Gone
        if action == "answer":
            self._send_head(rule.status, [("Content-Length", str(len(rule.content)))])
            self.wfile.write(rule.content)
            return
        if action == "corrupt_upload":
            body = _with_flipped_bit(body, rule.at)
        status, headers, content = self._ask(body)
        if action == "cut_download" and rule.after is None:
            raise _Gone
        self._send_head(status, headers)
        if action == "corrupt":
            content = _with_flipped_bit(content, rule.at)
        if action == "cut_download":
            self._send(content[: rule.after])
            time.sleep(0.05)  # a reset overtakes what has not been read
            raise _Gone
        step = rule.chunk or len(content) or 1
        for start in range(0, len(content), step):
            time.sleep(rule.seconds)
            self._send(content[start : start + step])

    def _send(self, content: bytes) -> None:
        self.wfile.write(content)
        self.server.note_sent(len(content))

    def _read_body(self, stop: int | None) -> bytes:
        """The body as it was sent, chunks and all; resets after `stop` bytes of a longer one."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length if stop is None else min(length, stop + 1))
        else:
            body, size = b"", 1
            while size:
                line = self.rfile.readline()
                size = int(line.split(b";")[0], 16)
                body += line + self.rfile.read(size)
                # An empty line ends a chunk; the last one has trailers before it, as of checksums.
                while (line := self.rfile.readline()).strip():
                    body += line
                body += line
        if stop is not None and len(body) > stop:
            raise _Gone
        return body

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body of the server's answer."""
        server = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=_WAIT)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _OF_A_CONNECTION or name.lower() == "transfer-encoding":
                server.putheader(name, value)
        server.putheader("Connection", "close")
        server.endheaders(body)
        answer = server.getresponse()
        content = answer.read()
        headers = [(n, v) for n, v in answer.getheaders() if n.lower() not in _OF_A_CONNECTION]
        if answer.getheader("Content-Length") is None:
            headers.append(("Content-Length", str(len(content))))
        server.close()
        return answer.status, headers, content

    def _send_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.send_response_only(status)
        for name, value in (*headers, ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()


def _with_flipped_bit(body: bytes, at: int) -> bytes:
    changed = bytearray(body)
    if changed:
        changed[at % len(changed)] ^= 1
    return bytes(changed)
