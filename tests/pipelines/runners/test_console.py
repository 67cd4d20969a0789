"""What is shown of a run: read from the journal, and said once where there is none."""

import io
import os
import subprocess
import sys
import time

from pipelines.runners import console
from pipelines.runners.console import Console, Display, Journal
from schemas.errors import DataError
from tests.tools.places import ROOT


def test_a_journal_of_many_workers_is_added_up(tmp_path):
    for journal in (Journal(str(tmp_path)), Journal(str(tmp_path))):
        journal.add(bytes_read=300_000)
        journal.add(rows=7)
    display = Display(str(tmp_path), 600_000, "x", Console(file=io.StringIO()))
    display.update()
    assert display.state().startswith("600.0 kB of 600.0 kB read, ")
    assert display.state().endswith("14 rows written")
    corpus = Display(str(tmp_path), 600_000, "build_corpus", Console(file=io.StringIO()))
    corpus.update()
    assert corpus.state().endswith("14 documents written")


def test_torn_lines_are_passed_over(tmp_path):
    """A disk that is full and machines that append to one file leave such."""
    journal = Journal(str(tmp_path))
    journal.add(bytes_read=100)
    display = Display(str(tmp_path), 600, "x", Console(file=io.StringIO()))
    with open(tmp_path / "progress", "ab") as file:
        file.write(b"12\n\n7 8 9\n\0\0\xff 5\n2x0 1\n")
    journal.add(bytes_read=200, rows=3)
    display.update()
    assert display.state().startswith("300 bytes of 600 bytes read, ")
    assert ", 3 rows written" in display.state()


def test_the_rate_is_of_the_last_seconds(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    journal = Journal(str(tmp_path))
    display = Display(str(tmp_path), 200_000_000, "x", Console(file=io.StringIO()))
    read = {60: 6, 61: 10, 66: 10, 71: 10, 76: 10, 100: 0, 110: 154}  # seconds: megabytes
    due = {60: 0.1, 61: 16 / 61, 66: 26 / 66, 71: 2.0, 76: 2.0, 100: 10 / 29, 110: 200 / 110}
    for now[0], megabytes in read.items():
        journal.add(bytes_read=megabytes * 1_000_000)
        display.update()
        assert f" read, {due[now[0]]:.1f} MB/s" in display.state(), now[0]
    assert display.state() == "200.0 MB of 200.0 MB read, 1.8 MB/s on average"


def test_silence_is_remarked_on_once(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    said = io.StringIO()
    display = Display(str(tmp_path), 10, "build_shards", Console(file=said, width=500))
    for now[0] in (5.0, 10.0, 19.0, 21.0, 120.0, 125.0):
        display.update()
    *waiting, last = said.getvalue().splitlines()
    start = "build_shards: workers are starting, no report yet"
    assert waiting == [f"{start}, {seconds} s" for seconds in (10, 21, 120)]
    assert last.startswith("build_shards: no worker has reported for 120 s (none does")


def test_finished_shards_are_counted_where_no_journal_is(tmp_path, monkeypatch):
    now, answers = [0.0], [3, DataError("the store does not answer"), 5]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])

    def count():
        answer = answers.pop(0)
        if isinstance(answer, DataError):
            raise answer
        return answer

    said = io.StringIO()
    display = Display(str(tmp_path), 10, "x", Console(file=said, width=500), count)
    for now[0] in (9.0, 30.0, 39.0, 61.0, 200.0, 201.0):
        display.update()
    finished = [(3, 30), (3, 61), (5, 200)]
    assert said.getvalue().splitlines() == [f"x: {n} shards finished, {s} s" for n, s in finished]


def test_a_journal_that_was_published_away_is_no_silence(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    journal, said = Journal(str(tmp_path)), io.StringIO()
    journal.add(bytes_read=10)

    def asked():
        raise FileNotFoundError(str(tmp_path))

    plain = Console(file=said, width=500)
    display = Display(str(tmp_path), 10, "build_shards", plain, asked)
    display.update()
    (tmp_path / "progress").unlink()
    for now[0] in (121.0, 300.0):
        display.update()
    assert said.getvalue() == ""
    other = Display(str(tmp_path), 10, "build_shards", plain, asked)  # saw no journal at all
    now[0] = 340.0
    other.update()


def test_work_is_a_line_at_once_and_now_and_then_where_no_terminal_is(monkeypatch):
    monkeypatch.setattr(console, "_LINE_SECONDS", 0.05)
    said = io.StringIO()
    with Console(file=said).working("installing [all]"):
        while said.getvalue().count("\n") < 3:
            time.sleep(0.01)
    first, *more = said.getvalue().splitlines()
    assert first == "installing [all]"
    assert set(more) == {"installing [all]: 0 s"}


def test_a_run_goes_on_where_nobody_reads_its_output():
    body = "Console().print('a line'); Console().print('more')\nprint('done', file=sys.stderr)"
    read, write = os.pipe()
    os.close(read)
    code = f"import sys\nfrom pipelines.runners.console import Console\n{body}"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "done\n")


def test_output_stays_where_nobody_reads_the_messages():
    body = "Console(stderr=True).print('a line'); Console(stderr=True).print('more')\nprint('done')"
    read, write = os.pipe()
    os.close(read)
    code = f"from pipelines.runners.console import Console\n{body}"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=write, text=True, cwd=ROOT
    )
    os.close(write)
    assert (done.returncode, done.stdout) == (0, "done\n")
