"""Metrics files that are cut back on resume, rates, the progress line."""

import io
import math
import tracemalloc
from pathlib import Path

import pytest

from tests.tools.run_reading import read_metrics
from textmill.trainers.run import journal
from textmill.trainers.run.journal import (
    MetricsFile,
    ProgressLine,
    Rates,
    cut_metrics,
    duration,
    each_metrics,
)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    """NaN is written as null, and read as NaN."""
    path = str(tmp_path / "metrics.jsonl")
    assert cut_metrics(path, 2) is None and not Path(path).exists() and read_metrics(path) == []
    file = MetricsFile(path)
    for step in range(1, 6):
        file.write({"kind": "train", "step": step, "loss": 1 / step})
    file.close()
    with open(path, "a") as broken:
        broken.write('{"kind": "train", "st')  # killed while writing
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4, 5]
    cut_metrics(path, 3)
    file = MetricsFile(path)
    file.write({"kind": "evaluation", "step": 4, "loss": 2.0, "auc": float("nan")})
    file.close()
    assert cut_metrics(path, 4) is None
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[2]["loss"] == 1 / 3  # every bit of it
    assert math.isnan(lines[3]["auc"]) and lines[3]["loss"] == 2.0
    last = '{"kind": "evaluation", "step": 4, "loss": 2.0, "auc": null}'
    assert Path(path).read_text().splitlines()[-1] == last
    cut_metrics(path, 0)
    assert read_metrics(path) == []


GOOD = [b'{"kind": "train", "step": 1, "loss": 2.5}', b'{"kind": "train", "step": 2, "loss": NaN}']
WRONG = [
    b'{"kind": "train", "st{"kind": "train", "step": 2, "loss": 2.0}',
    b'{"kind": "train", "loss": 2.0}',
    b'{"kind": "train", "step": 2.0, "loss": 2.0}',
    b'{"kind": "train", "step": 2, "loss": "2"}',
    b'{"kind": "train", "step": 2}',
    b'{"step": 2, "loss": 2.0}',
    b"[1]",
    b"",
    b"\0\0\0",
    b"\xff\xfe",
    b"[" * 100_000,
]


BROKEN = [b"\n".join([wrong, GOOD[1], b""]) for wrong in WRONG]
CUT_OFF = [b'{"kind": "train", "st', b'{"kind": "tr' + bytes(900), bytes(4096)]  # by a power cut


@pytest.mark.parametrize("rest", [*BROKEN, *CUT_OFF], ids=lambda rest: repr(rest[:40]))
def test_a_file_is_cut_at_its_first_damaged_line(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([*GOOD, rest]))
    assert cut_metrics(str(path), 2) == f"{path}: line 3 is broken; removed it and all later lines"
    assert path.read_bytes() == b"\n".join([*GOOD, b""])
    before = path.stat().st_mtime_ns
    assert cut_metrics(str(path), 2) is None and path.stat().st_mtime_ns == before
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_long_file_is_read_a_line_at_a_time(tmp_path):
    path, lines = tmp_path / "metrics.jsonl", 20_000
    path.write_bytes((GOOD[0] + b"\n") * lines)
    tracemalloc.start()
    assert cut_metrics(str(path), 2) is None
    assert sum(1 for _ in each_metrics(str(path))) == lines
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000 < path.stat().st_size


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets by hand."""
    now = [100.0]
    monkeypatch.setattr(journal.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    return now


def test_rates_by_hand(clock):
    rates = Rates()
    clock[0] += 2.0
    rates.count_wait(0.5)
    assert rates.count_step(100) == (0.5, 50.0, 0.25)
    clock[0] += 7.0  # an evaluation
    rates.skip(7.0)
    clock[0] += 2.0
    assert rates.count_step(300) == (0.5, 100.0, 0.125) == rates.mean()


def test_rates_forget_what_is_long_ago(clock):
    rates = Rates()
    for _ in range(30):
        clock[0] += 1.0
        rates.count_step(10)
    for _ in range(11):
        clock[0] += 1.0
        found = rates.count_step(50)
    assert found == (1.0, 50.0, 0.0)
    assert rates.mean() == (1.0, (30 * 10 + 11 * 50) / 41, 0.0)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_progress_is_one_line_on_a_terminal(clock):
    stream = Terminal()
    line = ProgressLine(stream)
    for step in range(4):
        line.update(f"step {step}")
        clock[0] += 0.15
    line.say("done")
    assert stream.getvalue() == "\r\x1b[Kstep 0\r\x1b[Kstep 2\r\x1b[Kdone\n"


def test_progress_is_a_line_now_and_then_in_a_log(clock):
    stream = io.StringIO()
    line = ProgressLine(stream)
    for step in range(25):
        line.update(f"step {step}")
        clock[0] += 1.0
    assert stream.getvalue() == "step 0\nstep 10\nstep 20\n"


def test_durations():
    assert [duration(s) for s in (0.9, 59, 61, 3661)] == ["0 s", "59 s", "1 min 01 s", "1 h 01 min"]
