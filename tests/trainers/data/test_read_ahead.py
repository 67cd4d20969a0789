"""Items in order, errors where they came, no thread left behind."""

import threading
from itertools import islice

import pytest

from schemas.errors import DataError
from tests.tools.python_process import run_python
from trainers.data.batches import read_ahead


def test_read_ahead_keeps_order_and_errors():
    def items():
        yield from range(5)
        raise DataError("shard gone")

    for depth in (0, 1, 9):
        seen = read_ahead(items(), depth)
        assert list(islice(seen, 5)) == [0, 1, 2, 3, 4]
        with pytest.raises(DataError, match="shard gone"):
            next(seen)


def test_read_ahead_ends_its_thread():
    made = []

    def items():
        for number in range(10**9):
            made.append(number)
            yield number

    seen = read_ahead(items(), 2)
    assert next(seen) == 0
    seen.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "read_ahead"]
    assert len(made) <= 5  # one taken, two ready, one waiting, one begun


def test_a_process_may_end_in_the_middle():
    code = (
        "import itertools; from trainers.data.batches import read_ahead\n"
        "seen = read_ahead(itertools.count(), 2); print(next(seen))"
    )
    found = run_python("-c", code)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")
