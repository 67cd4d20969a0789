"""The display of a run: progress from the journal, and a line where there is none."""

import io
import os
import pty
import re
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.filesize import decimal

from tests.tools.file_sums import file_sums
from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.runners import console
from textmill.pipelines.runners.console import Console, Display, Journal
from textmill.schemas.errors import DataError


@pytest.fixture
def now(monkeypatch):
    """The time in seconds, as the only item of a list."""
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_journals_of_many_workers_are_added_up_and_torn_lines_are_passed_over(tmp_path):
    """A disk that is full and machines that append to one file leave such lines."""
    journal = Journal(str(tmp_path))
    journal.add(bytes_read=100_000)
    with open(tmp_path / "progress", "ab") as file:
        file.write(b"12\n\n7 8 9\n\0\0\xff 5\n2x0 1\nbegin x y\nbegin\nend\n")
    Journal(str(tmp_path)).add(bytes_read=200_000, rows=3)
    journal.add(rows=11)
    for command, what in {"build_shards": "rows", "build_corpus": "documents"}.items():
        display = Display(str(tmp_path), 300_000, command, Console(file=io.StringIO()))
        display.update()
        assert display.state().startswith("reading: 300.0 kB of 300.0 kB, ")
        assert f", 14 {what} written, " in display.state()


def test_the_rate_is_of_the_last_seconds(tmp_path, now):
    journal = Journal(str(tmp_path))
    display = Display(str(tmp_path), 200_000_000, "x", Console(file=io.StringIO()))
    read = {60: 6, 61: 10, 66: 10, 71: 10, 76: 10, 100: 0, 110: 154}  # seconds: megabytes
    due = {60: 0.1, 61: 16 / 61, 66: 26 / 66, 71: 2.0, 76: 2.0, 100: 10 / 29, 110: 200 / 110}
    for now[0], megabytes in read.items():
        journal.add(bytes_read=megabytes * 1_000_000)
        display.update()
        assert f" MB, {decimal(int(due[now[0]] * 1e6))}/s" in display.state(), now[0]
    assert display.state() == "reading: 200.0 MB of 200.0 MB, 1.8 MB/s on average, 110 s"


def test_silence_is_remarked_on_once(tmp_path, now):
    said = io.StringIO()
    display = Display(str(tmp_path), 10, "build_shards", Console(file=said, width=500))
    for now[0] in (5.0, 10.0, 19.0, 21.0, 120.0, 125.0):
        display.update()
    *waiting, last = said.getvalue().splitlines()
    start = "build_shards: workers are starting, no report yet"
    assert waiting == [f"{start}, {seconds} s" for seconds in (10, 21, 120)]
    assert last.startswith("build_shards: no worker has reported for 120 s (none does")


def test_a_run_in_this_process_has_no_workers_to_wait_for(tmp_path, now):
    said = io.StringIO()
    display = Display(str(tmp_path), 10, "x", Console(file=said, width=500), has_workers=False)
    for now[0] in (10.0, 150.0):
        display.update()
    assert said.getvalue().splitlines() == ["x: starting, 10 s", "x: starting, 150 s"]


def test_after_reading_the_phase_is_shown_with_its_share(tmp_path, now):
    said = io.StringIO()
    journal, display = (
        Journal(str(tmp_path)),
        Display(str(tmp_path), 200, "build_corpus", Console(file=said, width=500)),
    )
    journal.add(bytes_read=200)
    now[0] = 5.0
    display.update()
    with journal.phase("exact duplicates", 64):
        pass
    with journal.phase("exact duplicates", 64):
        now[0] = 10.0
        display.update()
        journal.note("waiting for s3://b/x\x1b: 503; retry 3 in 4 s")
    with journal.phase("writing documents", 64):
        journal.add(rows=1234)
        now[0] = 15.0
        display.update()
    with journal.phase("writing the report"):
        now[0] = 20.0
        display.update()
    assert said.getvalue().splitlines() == [
        "build_corpus: reading: 200 bytes of 200 bytes, 40 bytes/s on average, 5 s",
        "build_corpus: exact duplicates: 1 of 64, 10 s",
        "build_corpus: waiting for s3://b/x\\x1b: 503; retry 3 in 4 s",
        "build_corpus: writing documents: 0 of 64, 1,234 documents written, 15 s",
        "build_corpus: writing the report, 1,234 documents written, 20 s",
    ]


def test_a_phase_has_a_rate_and_the_time_left(tmp_path, now):
    """Of 4 parts of 100 MB; a second of two phases that run at once does not reset the first."""
    journal = Journal(str(tmp_path))
    display = Display(str(tmp_path), 400_000_000, "x", Console(file=io.StringIO()))
    journal.add(bytes_read=100_000_000, rows=5)
    now[0] = 2.0
    display.update()
    assert display.state() == "reading: 100.0 MB of 400.0 MB, 50.0 MB/s, 5 rows written, 6 s left"
    journal.add(bytes_read=300_000_000)
    now[0], states = 10.0, []
    for seconds in (0.5, 10.0, 10.0):
        with journal.phase("packing", 4):
            display.update()
            with journal.phase("listing"):
                now[0] += seconds
        display.update()
        with journal.phase("packing", 4):
            display.update()
            states.append(display.state())
    assert states == [
        "packing: 1 of 4, 5 rows written, 10 s",  # too short for a rate
        "packing: 3 of 4, 28.6 MB/s, 5 rows written, 4 s left",
        "packing: 4 of 4, 19.5 MB/s, 5 rows written, 30 s",
    ]


SHOWN = """
import sys, time
from textmill.pipelines.runners import console
console._PLAIN_SECONDS = 0.0
journal = console.Journal(sys.argv[1])
display = console.Display(sys.argv[1], 400_000_000, "build_shards")
def show():
    display.update()
    time.sleep(0.3)  # a terminal is refreshed ten times a second
journal.add(bytes_read=100_000_000)
show()
with journal.phase("packing and writing shards", 4):
    show()
with journal.phase("writing the report, and publishing"):
    show()
display.close()
"""
PHASES = (
    r"reading: 100.0 MB of 400.0 MB, [\d.]+ GB/s, 1 s left",
    "packing and writing shards: 0 of 4, [01] s",
    "writing the report, and publishing, [01] s",
)


def run_in_terminal(*command: str) -> str:
    """Standard error of a command that succeeds, whose terminal is 120 columns wide."""
    terminal, stderr = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )
    os.close(stderr)
    shown = b""
    try:
        while part := os.read(terminal, 1 << 16):
            shown += part
    except OSError:  # Linux's end of a terminal
        pass
    os.close(terminal)
    assert process.wait() == 0, shown.decode()
    return shown.decode()


def test_phases_are_a_bar_on_a_terminal_and_lines_in_a_pipe(tmp_path):
    (tmp_path / "a").mkdir()
    shown = run_in_terminal("-c", SHOWN, str(tmp_path / "a"))
    for phase in PHASES:
        assert re.search(f"build_shards .*━.* {phase}", re.sub("\x1b\\[[0-9;]*m", "", shown)), phase
    assert shown.endswith("\x1b[2K"), "the bar is removed at its end"
    done = run_python("-c", SHOWN, tmp_path, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == len(PHASES)
    for line, phase in zip(lines, PHASES, strict=True):
        assert re.fullmatch(f"build_shards: {phase}", line)


@pytest.mark.slow
def test_a_run_in_a_terminal_writes_the_same_bytes_as_one_in_a_pipe(tmp_path):
    (tmp_path / "text.txt").write_text("a dog, and another dog\n" * 9)
    flags = [f"--input={tmp_path / 'text.txt'}", "--document=line", "--near_duplicates=jaccard:0.8"]
    command = ["-m", "pipelines.build_corpus", *flags]
    shown = run_in_terminal(*command, f"--output={tmp_path / 'a'}")
    assert "\x1b[" in shown and "build_corpus" in shown and "━" in shown
    done = run_python(*command, f"--output={tmp_path / 'b'}", check=True)
    assert "\x1b" not in done.stderr and "━" not in done.stderr
    kept = file_sums(tmp_path / "a")
    assert kept == file_sums(tmp_path / "b") and len(kept) > 3


def test_a_note_without_a_display_is_on_stderr(tmp_path, capsys):
    Journal(str(tmp_path / "published")).note("waiting for s3://b/x")
    assert capsys.readouterr().err == "waiting for s3://b/x\n"


def test_finished_shards_are_counted_where_no_journal_is(tmp_path, now):
    answers = [3, DataError("the store does not answer"), FileNotFoundError(), 5]

    def count():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    said = io.StringIO()
    display = Display(str(tmp_path), 10, "x", Console(file=said, width=500), count)
    for now[0] in (9.0, 30.0, 39.0, 61.0, 121.0, 200.0, 201.0):
        display.update()
    finished = [(3, 30), (3, 61), (3, 121), (5, 200)]
    assert said.getvalue().splitlines() == [f"x: {n} shards finished, {s} s" for n, s in finished]


def test_a_journal_that_was_published_away_is_no_silence(tmp_path, now):
    journal, said = Journal(str(tmp_path)), io.StringIO()
    journal.add(bytes_read=10)
    display = Display(str(tmp_path), 10, "build_shards", Console(file=said, width=500))
    display.update()
    (tmp_path / "progress").unlink()
    for now[0] in (121.0, 300.0):
        display.update()
    assert said.getvalue() == ""


def test_names_of_emoji_are_printed_as_they_are():
    file = io.StringIO()
    Console(file=file).print(":smile:.txt")
    assert file.getvalue() == ":smile:.txt\n"


def test_work_is_a_line_at_once_and_now_and_then_where_no_terminal_is(monkeypatch):
    monkeypatch.setattr(console, "_LINE_SECONDS", 0.05)
    said = io.StringIO()
    with Console(file=said).working("installing [all]"):
        while said.getvalue().count("\n") < 3:
            time.sleep(0.01)
    first, *more = said.getvalue().splitlines()
    assert first == "installing [all]"
    assert set(more) == {"installing [all]: 0 s"}


@pytest.mark.parametrize(("lost", "kept"), [("stdout", "stderr"), ("stderr", "stdout")])
def test_a_run_goes_on_where_nobody_reads_its_output_or_its_messages(lost, kept):
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys\nfrom textmill.pipelines.runners.console import Console\n"
        f"for line in 'one', 'more': Console(stderr={lost == 'stderr'}).print(line)\n"
        f"print('done', file=sys.{kept})"
    )
    streams: dict[str, Any] = {lost: write, kept: subprocess.PIPE}
    done = subprocess.run([sys.executable, "-c", code], **streams, text=True, cwd=ROOT)
    os.close(write)
    assert (done.returncode, getattr(done, kept)) == (0, "done\n")


def test_names_and_numbers_in_a_table_are_whole_on_a_narrow_terminal():
    """What is too long is wrapped; only a bar may be cut."""
    said = io.StringIO()
    rows = [("a name that is longer than the terminal", 1_234_567, "99.9%"), ("b", 1, "0.1%")]
    Console(file=said, width=30).print(console.bars_table(rows))
    shown = "".join(said.getvalue().split())
    for word in "a name that is longer than the terminal 1,234,567 99.9%".split():
        assert word in shown
    assert "…" not in shown
