"""A child answers, is ended when it takes too much, and is started again."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tools.python_process import run_python
from textmill.schemas.errors import DataError
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded

PROGRAM = """
kept = []
def answer(data):
    if data == b"work":
        while True: pass
    if data == b"grow": return b"." * (1 << 31)
    if data == b"keep": kept.append(bytes(300 << 20))
    if data == b"die": os._exit(3)
    if data == b"names": return " ".join(sorted(os.environ)).encode()
    if data == b"crash": os.kill(os.getpid(), 11)
    if data == b"who": return str(os.getpid()).encode()
    print("not an answer")
    return data[::-1]
"""


@pytest.fixture
def child():
    made = LimitedProcess(PROGRAM, seconds=0.2, size=1 << 30)
    yield made
    assert made.ask(b"abc") == b"cba", "after whatever went before"
    made.close()


def test_one_child_answers_again_and_again(child):
    assert child.ask(b"who") == child.ask(b"who") != str(os.getpid()).encode()
    assert [child.ask(data) for data in (b"", b"ab", bytes(3_000_000) + b"a")] == [
        b"",
        b"ba",
        b"a" + bytes(3_000_000),
    ]
    requests = [str(n).encode() * 1000 for n in range(200)]
    with ThreadPoolExecutor(8) as threads:  # which take turns
        assert list(threads.map(child.ask, requests)) == [data[::-1] for data in requests]


TIME = "takes more than 0.2 s"
END = "ends its process, whose memory limit is 1,024 MiB"
COSTLY = {b"work": TIME, b"grow": END, b"die": END, b"crash": END}


@pytest.mark.parametrize("request_", COSTLY)
@pytest.mark.timeout(50)
def test_what_takes_too_much_is_ended(child, request_):
    before = int(child.ask(b"who"))
    with pytest.raises(LimitExceeded, match=COSTLY[request_]):
        child.ask(request_)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_a_child_has_no_credentials(child, monkeypatch):
    """Whatever the variables are called: the child gets those that it needs, and no others."""
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    needed = {"LANG": "C.UTF-8", "LD_LIBRARY_PATH": "/usr/lib", "PATH": "/usr/bin"}
    secret = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "MY_PASSWORD")
    for name in (*needed, *secret, "TEXTMILL_S3_FLAGS", "HOME"):
        monkeypatch.setenv(name, needed.get(name, "secret"))
    assert child.ask(b"names").decode().split() == sorted(needed)


def test_of_many_requests_only_those_that_take_too_much_have_no_answer(child):
    assert child.ask_all([]) == []
    requests = [b"die", b"ab", bytes(1 << 20), b"work", b"grow", b"bc", b"crash", b"cd"]
    expected = [COSTLY.get(data, data[::-1]) for data in requests]
    for _ in range(2):  # by a new child, and by one that has worked
        found = child.ask_all(requests)
        assert [a if isinstance(a, bytes) else str(a) for a in found] == expected


def test_what_earlier_requests_left_does_not_count(child):
    assert child.ask_all([b"keep"] * 9) == [b"peek"] * 9  # three fit into the limit


def test_a_long_request_may_take_more():
    made = LimitedProcess(PROGRAM, seconds=0.1, size=100 << 20, more_seconds=1e-6, more_size=3)
    long = bytes(60 << 20)  # whose answer takes another 60 MiB
    assert made.ask_all([long, b"work", b"die"])[0] == long
    for data, message in ((b"work", "takes more than 0.100004 s"), (b"die", "limit is 100 MiB")):
        with pytest.raises(LimitExceeded, match=message):
            made.ask(data)
    made.close()
    made = LimitedProcess(PROGRAM, size=100 << 20)
    with pytest.raises(LimitExceeded, match="limit is 100 MiB"):
        made.ask(long)


def test_time_in_which_others_work_does_not_count(child):
    child.ask(b"")
    pid = int(child.ask(b"who"))
    threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()
    os.kill(pid, signal.SIGSTOP)
    assert child.ask(b"ab") == b"ba"
    assert int(child.ask(b"who")) == pid


def test_ctrl_c_does_not_end_a_child(child):
    pid = int(child.ask(b"who"))
    os.kill(pid, signal.SIGINT)  # a terminal sends it to all processes of a command
    assert int(child.ask(b"who")) == pid


def test_a_process_that_is_forked_during_a_request_has_its_own_child():
    code = f"""
import os
from textmill.schemas.limited_process import LimitedProcess
child = LimitedProcess({PROGRAM!r})
mine = child.ask(b"who")
with child._locks[os.getpid()]:  # as a thread would
    if not os.fork():
        os._exit(child.ask(b"who") in (mine, b""))
    _, status = os.wait()
print(status, child.ask(b"who") == mine)
"""
    assert run_python("-c", code).stdout == "0 True\n"


def test_a_child_that_cannot_start_is_an_error():
    with pytest.raises(DataError, match="ends at its start with code 1: free memory"):
        LimitedProcess("import no_such_module").ask(b"")


def test_a_child_ends_with_its_parent():
    code = f"""
import os
from textmill.schemas.limited_process import LimitedProcess
print(LimitedProcess({PROGRAM!r}).ask(b"who").decode(), flush=True)
os._exit(9)
"""
    done = run_python("-c", code)
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{int(done.stdout)}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")
