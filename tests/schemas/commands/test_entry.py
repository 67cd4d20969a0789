"""How a command ends, in a real process: exit code, message, and what interrupts it."""

import signal
import subprocess
import sys
import time

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python

_ENTRY = """
import os, sys
from schemas.commands.entry import run_entry
from schemas.errors import DataError, UsageError

def main(argv):
    {body}

run_entry(main)
"""


def run(body: str, *argv: str, redirection: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", _ENTRY.format(body=body), *argv]
    if redirection:
        command = ["bash", "-c", f'set -o pipefail; "$@" {redirection}', "bash", *command]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("pass", 0, ""),
        ("raise DataError('train.txt is cut')", 1, "error: train.txt is cut\n"),
        ("raise UsageError('--seed=x: a number')", 2, "error: --seed=x: a number\n"),
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        (
            "raise KeyboardInterrupt('add --resume')",
            130,
            "interrupted: add --resume\n",
        ),
        ("raise SystemExit(2)", 2, ""),
        ("raise DataError('\\x1b[2J\\n\u202eé')", 1, "error: \\x1b[2J\n\\u202eé\n"),
        (
            "raise PermissionError(13, 'No', 'a.json')",
            1,
            "error: a.json: No; ask its owner for permission (chmod -R a+rX), or run as its "
            "owner\n",
        ),
        (
            "raise MemoryError('Unable to allocate 74.5 GiB')",
            1,
            "error: memory is short (MemoryError: Unable to allocate 74.5 GiB): give the process "
            "more memory, or use fewer workers, smaller batches or smaller shards; then run the "
            "same command again\n",
        ),
    ],
)
def test_exit_code_and_message_without_traceback(body, code, stderr):
    done = run(body)
    assert (done.returncode, done.stderr, done.stdout) == (code, stderr, "")


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        ("--output=~/run", "shells do not expand ~ after =; write --output=$HOME/run"),
        ("--input=~", "shells do not expand ~ after =; write --input=$HOME"),
        ("--output=gs:/bucket/set", "write --output=gs://bucket/set"),
    ],
)
def test_a_tilde_and_a_url_that_no_shell_mends_are_refused(argument, remedy):
    done = run("print('reached')", argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {argument}: {remedy}\n"


def test_a_tilde_elsewhere_is_kept():
    assert run("print(argv)", "--input=~a.txt", "~/x").stdout == "['--input=~a.txt', '~/x']\n"


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = run("print('語')")
    assert (done.returncode, done.stdout) == (0, "\\u8a9e\n")


def test_a_defect_keeps_its_traceback():
    done = run("raise KeyError('\\x1b[2J')")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "KeyError" in done.stderr and "\x1b" not in done.stderr


def test_a_pipe_of_the_run_that_breaks_is_a_failure():
    done = run("reader, writer = os.pipe(); os.close(reader); os.write(writer, b'x')")
    assert done.returncode == 1
    assert done.stderr.startswith("error: a process that this one wrote to has ended")
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_failure():
    body = 'for number in range(100_000): print("line", number)'
    done = run(body, redirection="| head -2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "line 0\nline 1\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>&1 >&- | true"])
def test_streams_that_are_closed_change_no_exit_code(closed):
    done = run("raise DataError('no data')", redirection=closed)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("ending", "code", "stderr"),
    [
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        ("sys.exit(130)", 130, ""),
        ("sys.exit(143)", 143, ""),
    ],
)
def test_an_interruption_does_not_wait_for_compiled_code_nor_abort_in_it(
    tmp_path, ending, code, stderr
):
    """The interpreter, taken down under ArrayRecord's writer, would end by SIGABRT."""
    body = f"""
    import threading
    from array_record.python.array_record_module import ArrayRecordWriter

    at_work = threading.Event()

    def write(path):
        record = bytes(2_000_000)
        while True:
            writer = ArrayRecordWriter(path, "group_size:1,zstd:9")
            at_work.set()
            writer.write(record)
            writer.close()

    for path in argv:
        threading.Thread(target=write, args=[path], daemon=True).start()
    at_work.wait()
    print("said before")
    {ending}
"""
    done = run(body, *[str(tmp_path / name) for name in "abcdefgh"])
    assert (done.returncode, done.stdout, done.stderr) == (code, "said before\n", stderr)


def test_ctrl_c_as_the_interpreter_ends_shows_no_traceback():
    body = """
    import signal, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    threading.Thread(target=time.sleep, args=[60]).start()  # the interpreter waits for it
    print("done", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", _ENTRY.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"done\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGINT, "which shells report as 130"


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("pipelines.verify", "tyro", "pipelines"),
        ("pipelines.build_shards", "pyarrow", "pipelines"),
        ("trainers.tf_qa", "tyro", "tf"),
    ],
)
def test_a_missing_package_is_one_line(command, package, extra, tmp_path):
    """Whether it is missed when the entry is imported, or by what that imports later."""
    (tmp_path / f"{package}.py").write_text(
        f"raise ModuleNotFoundError('No module named {package}', name='{package}')"
    )
    found = run_python("-m", command, str(tmp_path), PYTHONPATH=str(tmp_path))
    name = command.partition(".")[2]
    assert (found.returncode, found.stderr) == (
        1,
        f"error: {name} needs the package {package}, which is not installed here: pip install "
        f"'/path/to/textmill[{extra}]'\n",
    )
