"""The display of a run: progress from the journal, and a line where there is none."""

import io
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.filesize import decimal

from tests.tools.places import ROOT
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
        assert display.state().startswith("300.0 kB of 300.0 kB read, ")
        assert f", 14 {what} written, " in display.state()


def test_the_rate_is_of_the_last_seconds(tmp_path, now):
    journal = Journal(str(tmp_path))
    display = Display(str(tmp_path), 200_000_000, "x", Console(file=io.StringIO()))
    read = {60: 6, 61: 10, 66: 10, 71: 10, 76: 10, 100: 0, 110: 154}  # seconds: megabytes
    due = {60: 0.1, 61: 16 / 61, 66: 26 / 66, 71: 2.0, 76: 2.0, 100: 10 / 29, 110: 200 / 110}
    for now[0], megabytes in read.items():
        journal.add(bytes_read=megabytes * 1_000_000)
        display.update()
        assert f" read, {decimal(int(due[now[0]] * 1e6))}/s" in display.state(), now[0]
    assert display.state() == "200.0 MB of 200.0 MB read, 1.8 MB/s on average, 110 s"


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
        "build_corpus: 200 bytes of 200 bytes read, 40 bytes/s on average, 5 s",
        "build_corpus: exact duplicates: 1 of 64, 10 s",
        "build_corpus: waiting for s3://b/x\\x1b: 503; retry 3 in 4 s",
        "build_corpus: writing documents: 0 of 64, 1,234 documents written, 15 s",
        "build_corpus: writing the report, 1,234 documents written, 20 s",
    ]


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
