"""A child answers, is ended when it takes too much, and is started again."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas.limited_process import LimitedProcess, LimitExceeded
from tests.tools.python_process import run_python

PROGRAM = """
import time
def answer(data):
    if data == b"sleep": time.sleep(60)
    if data == b"grow": return b"." * (1 << 31)
    if data == b"die": os._exit(3)
    if data == b"names": return " ".join(sorted(os.environ)).encode()
    if data == b"who": return str(os.getpid()).encode()
    print("not an answer")
    return data[::-1]
"""


@pytest.fixture
def child():
    made = LimitedProcess(PROGRAM, seconds=1, size=1 << 30)
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


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (b"sleep", "takes more than 1 s"),
        (b"grow", "ends its process, whose memory limit is 1,024 MiB"),
        (b"die", "ends its process"),
    ],
)
@pytest.mark.timeout(50)  # of the 60 s that it sleeps
def test_what_takes_too_much_is_ended(child, request_, says):
    before = int(child.ask(b"who"))
    with pytest.raises(LimitExceeded, match=says):
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


def test_a_child_ends_with_its_parent():
    code = f"""
import os
from schemas.limited_process import LimitedProcess
print(LimitedProcess({PROGRAM!r}).ask(b"who").decode(), flush=True)
os._exit(9)
"""
    done = run_python("-c", code)
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{int(done.stdout)}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")
