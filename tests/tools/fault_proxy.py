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
      value: of the action, see FaultProxy.
      seconds: pause of the action.
      hits: requests it was done to.
    """

    action: str
    method: str
    path: str
    times: int | None
    value: Any = None
    seconds: float = 0.0
    hits: int = 0

    def matches(self, method: str, path: str) -> bool:
        return bool(re.fullmatch(self.method, method) and re.search(self.path, path))


_NO_FAULT = Rule("", "", "", None)


class _Gone(Exception):
    """The connection is to be reset."""


class FaultProxy(ThreadingHTTPServer):
    """Passes HTTP requests on to a server on this machine, except for those that a rule picks.

    Attributes:
      port: where it listens, on 127.0.0.1.
      requests: (method, unquoted path with query) of all since the last `clear`.
    """

    request_queue_size = 128

    def __init__(self, behind: int):
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.port, self.behind = self.server_address[1], behind
        self.requests: list[tuple[str, str]] = []
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
        asked = Rule("", method, path, None)
        with self._lock:
            return sum(asked.matches(*request) for request in self.requests)

    def answer(
        self, status: int, method: str, path: str, *, times: int | None = 1, content: bytes = b""
    ) -> Rule:
        """The server is not asked: the answer is this status, such as 503."""
        return self._add(Rule("answer", method, path, times, (status, content)))

    def cut_upload(self, method: str, path: str, *, after: int, times: int | None = 1) -> Rule:
        """The connection is reset once so many bytes of the body have come; none arrives."""
        return self._add(Rule("cut_upload", method, path, times, after))

    def corrupt_upload(self, method: str, path: str, *, at: int, times: int | None = 1) -> Rule:
        """A bit of the request's body is flipped, in byte `at` modulo its length."""
        return self._add(Rule("corrupt_upload", method, path, times, at))

    def cut_download(
        self, method: str, path: str, *, after: int | None, times: int | None = 1
    ) -> Rule:
        """The server answers; the connection is reset after so many bytes of the answer's body.

        None: before the first byte, so that the request is done and the client does not know.
        """
        return self._add(Rule("cut_download", method, path, times, after))

    def slow(
        self, method: str, path: str, *, chunk: int, seconds: float, times: int | None = None
    ) -> Rule:
        """The answer's body trickles: a chunk of so many bytes, then a wait."""
        return self._add(Rule("slow", method, path, times, chunk, seconds))

    def corrupt(self, method: str, path: str, *, at: int, times: int | None = 1) -> Rule:
        """A bit of the answer's body is flipped, in byte `at` modulo its length."""
        return self._add(Rule("corrupt", method, path, times, at))

    def hang(self, method: str, path: str, *, times: int | None = None) -> Rule:
        """The answer waits until `clear`."""
        return self._add(Rule("hang", method, path, times))

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def rule_for(self, method: str, target: str) -> Rule | None:
        """Notes a request; the first rule that is due to it."""
        path = unquote(target)
        with self._lock:
            if any(bucket in target for bucket in self._over):
                return None
            self.requests.append((method, path))
            for rule in self._rules:
                if (rule.times is None or rule.hits < rule.times) and rule.matches(method, path):
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
        action, value, cleared = rule.action, rule.value, self.server.cleared
        body = self._read_body(value if action == "cut_upload" else None)
        if action == "hang":
            cleared.wait(_WAIT)
            raise _Gone
        if action == "answer":
            status, content = value
            self._send_head(status, [("Content-Length", str(len(content)))])
            self.wfile.write(content)
            return
        if action == "corrupt_upload":
            body = _with_flipped_bit(body, value)
        status, headers, content = self._ask(body)
        if action == "cut_download" and value is None:
            raise _Gone
        self._send_head(status, headers)
        if action == "corrupt":
            content = _with_flipped_bit(content, value)
        if action == "cut_download":
            self.wfile.write(content[:value])
            time.sleep(0.05)  # a reset overtakes what has not been read
            raise _Gone
        step = value if action == "slow" else len(content) or 1
        for start in range(0, len(content), step):
            time.sleep(rule.seconds)
            self.wfile.write(content[start : start + step])

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
