"""Exit codes and what the user sees, in a real process."""

import signal
import subprocess
import sys
import time

import pytest

_ENTRY = """
from schemas.commands.entry import run_entry
from schemas.errors import DataError, UsageError

def main(argv):
    {body}

run_entry(main)
"""


def _run(body: str, *argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", _ENTRY.format(body=body), *argv],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("pass", 0, ""),
        ("raise DataError('train.txt is cut')", 1, "error: train.txt is cut\n"),
        ("raise UsageError('--seed=x: a number')", 2, "error: --seed=x: a number\n"),
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        (
            "raise KeyboardInterrupt('go on with --resume')",
            130,
            "interrupted: go on with --resume\n",
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
    done = _run(body)
    assert (done.returncode, done.stderr, done.stdout) == (code, stderr, "")


def test_main_gets_the_arguments():
    assert _run("print(argv)", "--seed=3", "x").stdout == "['--seed=3', 'x']\n"


@pytest.mark.parametrize("argument", ["--output=~/run", "--input=~"])
def test_a_tilde_that_no_shell_expands_is_refused(argument):
    done = _run("print('reached')", argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {argument}: shells do not expand ~ after =; write "
        f"{argument.replace('~', '$HOME')}\n"
    )
    assert _run("print(argv)", "--input=~a.txt", "~/x").stdout == "['--input=~a.txt', '~/x']\n"


def test_a_defect_keeps_its_traceback():
    done = _run("print(1 / 0, '\\x1b[2J')")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "ZeroDivisionError" in done.stderr
    done = _run("raise KeyError('\\x1b[2J')")
    assert "Traceback" in done.stderr and "\x1b" not in done.stderr


def test_a_reader_that_goes_away_is_no_failure():
    body = "import sys; [print('x' * 99) for _ in range(10**5)]"
    entry = subprocess.Popen(
        [sys.executable, "-c", _ENTRY.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert entry.stdout and entry.stderr
    entry.stdout.read(100)
    entry.stdout.close()
    assert entry.wait() == 0
    assert entry.stderr.read() == b""
    entry.stderr.close()


@pytest.mark.parametrize(
    ("ending", "left", "said"),
    [
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
        ("sys.exit(130)", 130, ""),
        ("sys.exit(143)", 143, ""),
    ],
)
def test_an_interruption_does_not_wait_for_compiled_code_nor_abort_in_it(
    tmp_path, ending, left, said
):
    """The interpreter, taken down under ArrayRecord's writer, would end by SIGABRT."""
    code = """
import sys, threading
from array_record.python.array_record_module import ArrayRecordWriter
from schemas.commands.entry import run_entry

at_work = threading.Event()

def write(path):
    record = bytes(2_000_000)
    while True:
        writer = ArrayRecordWriter(path, "group_size:1,zstd:9")
        at_work.set()
        writer.write(record)
        writer.close()

def main(argv):
    for path in argv:
        threading.Thread(target=write, args=[path], daemon=True).start()
    at_work.wait()
    print("said before")
    ENDING

run_entry(main)
""".replace("ENDING", ending)
    paths = [str(tmp_path / name) for name in "abcdefgh"]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (left, "said before\n")
    assert done.stderr == said


def test_ctrl_c_as_the_interpreter_ends_shows_no_traceback():
    code = """
import signal, threading, time
from schemas.commands.entry import run_entry

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it

def main(argv):
    threading.Thread(target=time.sleep, args=[60]).start()  # the interpreter waits for it
    print("done", flush=True)

run_entry(main)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"done\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGINT, "which shells report as 130"
