"""Processes meet on a port before JAX does: each number once, and no other program's port."""

import errno
import re
import socket
import threading
import time

import pytest

from tests.tools.run_processes import free_port
from textmill.schemas.errors import DataError
from textmill.trainers.on_flax.jax_processes import _forward
from textmill.trainers.on_flax.roll_call import call_roll


def call(*callers, port=None, seconds=10.0, before=lambda port: None):
    """Each caller is (index, count); returns what each was told, "go" for nothing."""
    port = port or free_port()
    told = ["no end"] * len(callers)

    def take_part(number, index, count):
        try:
            call_roll(f"127.0.0.1:{port}", count, index, seconds)
            told[number] = "go"
        except DataError as error:
            told[number] = str(error)

    threads = [
        threading.Thread(target=take_part, args=(number, *caller))
        for number, caller in enumerate(callers)
    ]
    before(port)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


REMEDY = "start all processes again, with one address and numbers from 0 on, each once"


def test_all_go_once_all_are_there():
    assert call((0, 4), (3, 4), (1, 4), (2, 4)) == ["go"] * 4
    assert call((0, 1)) == ["go"]


def test_nobody_listens_when_the_call_is_over():
    """A caller who connected then would take the closing socket for the service's."""
    port, found = free_port(), []

    def answer():
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"textmill 1 of 2\n")
            assert caller.recv(100) == b"go\n"
        with socket.socket() as later:
            found.append(later.connect_ex(("127.0.0.1", port)))

    late = threading.Timer(0.3, answer)
    late.start()
    call_roll(f"127.0.0.1:{port}", 2, 0, 10.0)
    late.join()
    assert found == [errno.ECONNREFUSED]


def test_a_service_that_begins_late_is_waited_for():
    port = free_port()
    host, _, near_port = _forward(f"127.0.0.1:{port}", lambda: None).rpartition(":")
    with socket.create_connection((host, int(near_port))) as near:
        near.sendall(b"early")
        time.sleep(0.5)
        with socket.create_server(("127.0.0.1", port)) as service, service.accept()[0] as far:
            assert far.recv(100) == b"early"
            far.sendall(b"late")
            assert near.recv(100) == b"late"


def test_two_processes_of_one_number_end_all():
    port = free_port()
    due = f"two processes have --process_id=1 at 127.0.0.1:{port}: {REMEDY}"
    assert call((0, 3), (1, 3), (1, 3), port=port) == [due] * 3


def test_another_number_of_processes_ends_all():
    due = f"process 0 has --num_processes=2, and process 1 has --num_processes=3: {REMEDY}"
    assert call((0, 2), (1, 3)) == [due] * 2


def test_who_does_not_come_is_named():
    port = free_port()
    due = f"process 1, 3 of 4 did not come to 127.0.0.1:{port} in time: {REMEDY}"
    assert call((0, 4), (2, 4), port=port, seconds=1.0) == [due] * 2
    [alone] = call((1, 2), port=port, seconds=0.5)
    assert re.search(rf"^process 1 of 2 did not meet process 0 at .*:{port} \(.*refused", alone)


def test_a_port_of_another_program_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer():
            for _ in range(3):
                try:
                    caller, _ = other.accept()
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    caller.close()
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        first, second = call((0, 2), (1, 2), port=port, seconds=1.5)
    assert first.startswith(f"--coordinator_address=127.0.0.1:{port}: process 0 cannot use this p")
    assert "(Address already in use): another program has it" in first
    assert f"did not meet process 0 at 127.0.0.1:{port} (it is the port of another" in second


def test_what_calls_otherwise_or_ends_does_not_count():
    """A program that tries ports, and a process that was started, killed and started again."""

    def disturb(port):
        def run():
            for line in (b"GET / HTTP/1.1\r\n\r\n", b"textmill 1 of 3\n"):
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    try:
                        with socket.create_connection(("127.0.0.1", port)) as caller:
                            caller.sendall(line)
                            time.sleep(0.2)
                            break
                    except OSError:
                        time.sleep(0.05)

        thread = threading.Thread(target=run)
        thread.start()
        late = threading.Timer(1.5, lambda: told.extend(call((1, 3), (2, 3), port=port)))
        late.start()
        waited.extend((thread, late))

    told, waited = [], []
    assert call((0, 3), before=disturb) == ["go"]
    for thread in waited:
        thread.join()
    assert told == ["go"] * 2


@pytest.mark.parametrize("length", [1, 2000])
def test_a_caller_that_says_nothing_or_too_much_is_passed_over(length):
    port = free_port()

    def disturb(port):
        def run():
            time.sleep(0.3)
            with socket.create_connection(("127.0.0.1", port)) as caller:
                caller.sendall(b"x" * length)
            with socket.create_connection(("127.0.0.1", port)) as caller:
                caller.sendall(b"textmill 1 of 2\n")
                told.append(caller.recv(100))

        waited.append(threading.Thread(target=run))
        waited[0].start()

    told, waited = [], []
    assert call((0, 2), port=port, before=disturb) == ["go"]
    waited[0].join()
    assert told == [b"go\n"]
