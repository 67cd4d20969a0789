"""The roll call before JAX's coordination service: checks that each process has its own number.

The service aborts with a stack trace if two processes have the same number, or another program has
its port. So the first process listens on that port before the service does. Each other process
sends "textmill 1 of 2" and gets "go" once all have called, or the reason why the run cannot start.
"""

import errno
import os
import re
import socket
import time
from contextlib import ExitStack, suppress

from textmill.schemas.errors import DataError, flag

_CALL = re.compile(rb"textmill (\d{1,9}) of (\d{1,9})")
_GO, _END = b"go", b"end "
_REMEDY = "start all processes again, with one address and numbers from 0 on, each once"


def call_roll(address: str, count: int, index: int, seconds: float) -> None:
    """Waits until all `count` processes have called; `address` is the first one's HOST:PORT.

    Raises:
      DataError: not all called in time, two have the same number, or the port is another program's.
    """
    deadline = time.monotonic() + seconds
    if index:
        _answer(address, count, index, deadline)
    else:
        _listen(address, count, deadline)


def _listen(address: str, count: int, deadline: float) -> None:
    try:
        server = _server(int(address.rpartition(":")[2]))
    except OSError as error:
        raise DataError(
            f"{flag('coordinator_address', address)}: process 0 cannot use this port "
            f"({os.strerror(error.errno or 0)}): another program has it, or another process 0 of "
            "this run. Give another port, or end that one"
        ) from error
    there: dict[int, socket.socket] = {}
    with ExitStack() as stack:
        stack.enter_context(server)
        while len(there) < count - 1:
            try:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                caller = stack.enter_context(server.accept()[0])
                caller.settimeout(5)
                call = _CALL.fullmatch(_line(caller))
            except TimeoutError:
                if time.monotonic() < deadline:  # a caller that sends nothing
                    continue
                missing = _listed([n for n in range(1, count) if n not in there])
                _refuse(there, f"process {missing} of {count} did not come to {address} in time")
            except OSError:
                continue
            if call is None:  # a port scanner
                caller.close()
                continue
            number, others = int(call[1]), int(call[2])
            is_twice = number == 0 or number in there and _is_open(there[number])
            there[-1 if is_twice else number] = caller
            if others != count:
                _refuse(
                    there,
                    f"process 0 has {flag('num_processes', count)}, and process {number} has "
                    f"{flag('num_processes', others)}",
                )
            if is_twice:
                _refuse(there, f"two processes have {flag('process_id', number)} at {address}")
        server.close()  # before the service's own server, and no caller mistakes it for that
        _tell(there, _GO)


def _server(port: int) -> socket.socket:
    """A server on a port of all interfaces, like JAX's."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError) as error:  # a host without IPv6
        if getattr(error, "errno", 0) == errno.EADDRINUSE:
            raise
        return socket.create_server(("", port))


def _answer(address: str, count: int, index: int, deadline: float) -> None:
    host, _, port = address.rpartition(":")
    reason = ""
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as first:
                first.sendall(b"textmill %d of %d\n" % (index, count))
                # The first process reports why the run cannot start, and which process is missing.
                first.settimeout(left + 5)
                answer = _line(first)
        except OSError as error:  # the first process has not begun
            answer, reason = b"", str(error)
        if answer == _GO:
            return
        if answer.startswith(_END):
            raise DataError(answer[len(_END) :].decode("utf-8", "replace"))
        if answer:
            reason = f"it is the port of another program, which answers {answer[:40]!r}"
        time.sleep(0.2 if not answer else 1)
    reason = reason or "another program has the port, or process 0 ended"
    raise DataError(
        f"process {index} of {count} did not meet process 0 at {address} ({reason}): {_REMEDY}"
    )


def _refuse(there: dict[int, socket.socket], what: str) -> None:
    """Ends all processes that came, and this one."""
    text = f"{what}: {_REMEDY}"
    _tell(there, _END + text.encode())
    raise DataError(text)


def _tell(there: dict[int, socket.socket], answer: bytes) -> None:
    for caller in there.values():
        with suppress(OSError):  # it has ended; the others wait for it in vain, and report that
            caller.sendall(answer + b"\n")


def _line(connection: socket.socket) -> bytes:
    """A line of at most 1,000 bytes without its end; b"" if the connection ends before."""
    data = b""
    while not data.endswith(b"\n") and len(data) < 1000:
        part = connection.recv(1000)
        if not part:
            return b""
        data += part
    return data.rstrip(b"\n")


def _is_open(connection: socket.socket) -> bool:
    """Whether a process that waits for an answer is still there."""
    try:
        connection.setblocking(False)
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(5)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:9])) + (" and others" if len(numbers) > 9 else "")
