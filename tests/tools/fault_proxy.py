"""An HTTP proxy on loopback that does to requests what networks and stores do to them.

    with FaultProxy(server_port) as proxy:
        rule = proxy.answer(503, "GET", "train-00000", times=2)
        ...                                    # requests to proxy.port
        assert rule.hits == 2 and proxy.count("GET", "train-00000") == 3

A request is read whole, passed on over a connection of its own, and its answer is read whole before
it is given back: a server that serves one connection at a time is never held up. Every connection
carries one request.
"""

import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

_WAIT = 60.0  # seconds, of a test that has lost its way


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
      content: body of an answer.
      hits: requests it was done to.
    """

    action: str
    method: str
    path: str
    times: int | None
    value: int | None = None
    seconds: float = 0.0
    content: bytes = b""
    hits: int = 0


class Request(NamedTuple):
    """A request as it came."""

    method: str
    target: str
    head: bytes
    body: bytes

    @property
    def path(self) -> str:
        return unquote(self.target)


class _Gone(Exception):
    """The other end hung up, or is to see that this one does."""


@dataclass
class _Lag:
    """Listings of a bucket as they were `seconds` ago."""

    bucket: str
    seconds: float
    # States that ended: when, and the entries of all objects by name.
    ended: list[tuple[float, dict[str, bytes]]] = field(default_factory=list)


class FaultProxy:
    """Passes HTTP requests on to a server on this machine, but for those that a rule picks.

    Attributes:
      port: where it listens, on 127.0.0.1.
      requests: (method, unquoted path with query) of all since the last `clear`.
    """

    def __init__(self, server_port: int):
        self._server_port = server_port
        self._rules: list[Rule] = []
        self._over: set[str] = set()  # buckets of tests that are over
        self._lag: _Lag | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._cleared = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="fault_proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> "FaultProxy":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening."""
        if self._closed:
            return
        self._closed = True
        self.clear()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._listener.close()
        self._thread.join()

    def clear(self, bucket: str = "") -> None:
        """Forgets rules and requests; what hangs goes on.

        Args:
          bucket: whose requests count no more and meet no rule: threads of a test that is over may
            still read ahead.
        """
        with self._lock:
            self._over.update([bucket] if bucket else [])
            self._rules, self._lag = [], None
            self.requests.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def count(self, method: str, path: str) -> int:
        """Requests so far that match."""
        with self._lock:
            return sum(
                bool(re.fullmatch(method, m) and re.search(path, p)) for m, p in self.requests
            )

    def answer(
        self, status: int, method: str, path: str, *, times: int | None = 1, content: bytes = b""
    ) -> Rule:
        """The server is not asked: the answer is this status, such as 503."""
        return self._add(Rule("answer", method, path, times, status, content=content))

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

    def lag(self, bucket: str, seconds: float) -> None:
        """From now on listings of a bucket are as of so many seconds ago; objects are current.

        Objects from before the first such call are always seen. 0: listings are current again.
        """
        with self._lock:
            if self._lag is None or self._lag.bucket != bucket:
                self._lag = _Lag(bucket, seconds)
            self._lag.seconds = seconds

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                print(f"fault_proxy: {error!r}", file=sys.stderr)  # of one connection
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(_WAIT)
            try:
                self._answer(client)
            except _Gone:
                # Closing with this set sends RST, which the other end sees as a reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass  # it does not want its answer any more, or the server has stopped

    def _answer(self, client: socket.socket) -> None:
        head, rest = _read_head(client)
        first_line = head.split(b"\r\n", 1)[0].decode("latin-1")
        method, target, _ = first_line.split(" ", 2)
        rule = None
        with self._lock:
            if not any(bucket in target for bucket in self._over):
                self.requests.append((method, unquote(target)))
                rule = self._matching(method, unquote(target))
            cleared, lag = self._cleared, self._lag
        if b"100-continue" in head.lower():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = _without(head, b"expect")
        stop = rule.value if rule and rule.action == "cut_upload" else None
        body = _read_body(client, head, rest, stop)
        if rule and rule.action == "corrupt_upload":
            body = _with_flipped_bit(body, rule.value or 0)
        request = Request(method, target, head, body)
        if rule and rule.action == "hang":
            cleared.wait(_WAIT)
            raise _Gone
        if rule and rule.action == "answer":
            head = f"HTTP/1.1 {rule.value} Fault\r\nContent-Length: {len(rule.content)}\r\n"
            client.sendall(head.encode() + b"Connection: close\r\n\r\n" + rule.content)
            return
        if lag and method not in ("GET", "HEAD"):
            self._remember(lag, request)
        answer_head, answer_body = self._ask(request)
        if lag and method == "GET" and _lists(request, lag.bucket):
            answer_body = self._as_of(lag, request, answer_body)
            length = b"Content-Length: %d\r\n\r\n" % len(answer_body)
            answer_head = _without(answer_head, b"content-length")[:-2] + length
        if method == "HEAD":
            answer_body = b""
        self._give(client, rule, answer_head, answer_body)

    def _matching(self, method: str, path: str) -> Rule | None:
        for rule in self._rules:
            if rule.times is not None and rule.hits >= rule.times:
                continue
            if re.fullmatch(rule.method, method) and re.search(rule.path, path):
                rule.hits += 1
                return rule
        return None

    def _ask(self, request: Request) -> tuple[bytes, bytes]:
        """Head and body of the server's answer."""
        head = _without(_without(request.head, b"connection"), b"keep-alive")
        with socket.create_connection(("127.0.0.1", self._server_port), timeout=_WAIT) as server:
            server.sendall(head[:-2] + b"Connection: close\r\n\r\n" + request.body)
            answer = b"".join(iter(lambda: server.recv(1 << 16), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        head = _without(_without(head + b"\r\n\r\n", b"connection"), b"keep-alive")
        return head[:-2] + b"Connection: close\r\n\r\n", body

    def _give(self, client: socket.socket, rule: Rule | None, head: bytes, body: bytes) -> None:
        action = rule.action if rule else ""
        if rule is None or action in ("cut_upload", "corrupt_upload"):
            client.sendall(head + body)
        elif action == "corrupt":
            client.sendall(head + _with_flipped_bit(body, rule.value or 0))
        elif action == "cut_download":
            if rule.value is not None:
                client.sendall(head + body[: rule.value])
                time.sleep(0.05)  # a reset overtakes what has not been read
            raise _Gone
        elif action == "slow":
            client.sendall(head)
            step = rule.value or 1
            for start in range(0, len(body), step):
                time.sleep(rule.seconds)
                client.sendall(body[start : start + step])

    def _remember(self, lag: _Lag, request: Request) -> None:
        """Notes the objects that are there before a request that may change them."""
        entries = self._entries(lag, request)
        with self._lock:
            lag.ended.append((time.monotonic(), entries))

    def _entries(self, lag: _Lag, request: Request) -> dict[str, bytes]:
        """Name to entry, as its kind of listing has it, of all objects of the bucket."""
        google = _google(request)
        path = f"/storage/v1/b/{lag.bucket}/o" if google else f"/{lag.bucket}?list-type=2"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        _, body = self._ask(Request("GET", path, head, b""))
        return _entries_of(body, google)

    def _as_of(self, lag: _Lag, request: Request, body: bytes) -> bytes:
        """A listing without what was not there at that time, and with what was deleted since."""
        then = time.monotonic() - lag.seconds
        with self._lock:
            # A state that ended after `then` was the one at `then`, the first such.
            states = [entries for ended, entries in lag.ended if ended > then]
        if not states:
            return body
        google, query = _google(request), parse_qs(urlsplit(request.target).query)
        prefix = query.get("prefix", [""])[0]
        divider = query.get("delimiter", ["\0"])[0]
        wanted = {
            name: entry
            for name, entry in states[0].items()
            if name.startswith(prefix) and divider not in name[len(prefix) :]
        }
        if google:
            content = json.loads(body)
            content["items"] = [json.loads(entry) for _, entry in sorted(wanted.items())]
            return json.dumps(content).encode()
        body = re.sub(rb"<Contents>.*?</Contents>", b"", body, flags=re.DOTALL)
        entries = b"".join(entry for _, entry in sorted(wanted.items()))
        return body.replace(b"</ListBucketResult>", entries + b"</ListBucketResult>")


def _with_flipped_bit(body: bytes, at: int) -> bytes:
    changed = bytearray(body)
    if changed:
        changed[at % len(changed)] ^= 1
    return bytes(changed)


def _google(request: Request) -> bool:
    return "/b/" in request.target or request.target.startswith("/batch/")


def _lists(request: Request, bucket: str) -> bool:
    path, query = urlsplit(request.path).path, urlsplit(request.target).query
    if path.endswith(f"/b/{bucket}/o"):
        return True
    others = ("location", "versioning", "uploads", "acl", "policy")
    return path.rstrip("/") == f"/{bucket}" and not any(query.startswith(o) for o in others)


def entry_names(listing: bytes) -> list[str]:
    """Names of the objects that a listing of either kind holds."""
    return list(_entries_of(listing, google=listing.lstrip().startswith(b"{")))


def _entries_of(body: bytes, google: bool) -> dict[str, bytes]:
    if google:
        items = json.loads(body).get("items", [])
        return {item["name"]: json.dumps(item).encode() for item in items}
    entries = re.findall(rb"<Contents>.*?</Contents>", body, flags=re.DOTALL)
    return {_key(entry): entry for entry in entries}


def _key(entry: bytes) -> str:
    match = re.search(rb"<Key>(.*?)</Key>", entry, flags=re.DOTALL)
    assert match, entry
    return unescape(match[1].decode())


def _receive(client: socket.socket) -> bytes:
    data = client.recv(1 << 16)
    if not data:
        raise _Gone
    return data


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head with its empty line, and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(client)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _read_body(client: socket.socket, head: bytes, rest: bytes, stop: int | None) -> bytes:
    """The body as it was sent, chunks and all.

    Args:
      client: that sends it.
      head: of the request.
      rest: what came with the head.
      stop: hang up after so many bytes of a longer body.
    """
    body = rest
    whole = _body_end(head)
    while not whole(body):
        if stop is not None and len(body) >= stop:
            raise _Gone
        body += _receive(client)
    if stop is not None and len(body) > stop:
        raise _Gone
    return body


def _body_end(head: bytes) -> Callable[[bytes], bool]:
    """Tells whether a body is whole."""
    if re.search(rb"(?im)^transfer-encoding:\s*chunked", head):
        # Trailers, as of checksums, are between the last chunk and an empty line.
        return lambda body: bool(re.search(rb"(?:\A|\r\n)0\r\n(?:[^\r\n]+\r\n)*\r\n\Z", body))
    found = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    length = int(found[1]) if found else 0
    return lambda body: len(body) >= length


def _without(head: bytes, name: bytes) -> bytes:
    """A head without one of its fields."""
    return re.sub(rb"(?im)^" + re.escape(name) + rb":[^\r\n]*\r\n", b"", head)
