"""How a command ends, in a real process: exit code, message, interruptions and short memory."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from tests.tools.shard_factory import write_mlm_set
from textmill.pipelines.tasks.mlm import Mlm
from textmill.schemas.commands.entry import out_of_memory_error
from textmill.schemas.errors import DataError, UsageError

_ENTRY = """
import os, sys
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError, UsageError

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


@pytest.mark.parametrize(
    ("error", "place"),
    [
        ("OSError(24, 'Too many open files', '/a')", "/a"),
        ("OSError(24, 'Too many open files')", "a file"),
        ("ImportError('b.so: cannot open shared object file: Too many open files')", "a file"),
        ("RuntimeError('DataError: pipe: Too many open files [while running X]')", "a file"),
    ],
)
def test_too_few_files_are_one_line(error, place):
    done = run(f"raise {error}")
    words = f"error: {place}: Too many open files; allow more open files (ulimit -n)\n"
    assert (done.returncode, done.stderr) == (1, words)


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
    import threading, time
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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "print('x' * 100_000)"])
def test_output_that_cannot_be_written_is_named(ending, unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _ENTRY.format(body=f"print('x')\n    {ending}")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        )
    words = "standard output: No space left on device; free some space, or use another directory"
    assert (done.returncode, done.stderr) == (1, f"error: {words}\n")


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


# Short memory


def raised(act) -> BaseException:
    with pytest.raises(Exception) as caught:
        act()
    return caught.value


WITH_CAUSE = UsageError("the package a is not installed")
WITH_CAUSE.__cause__ = ImportError("a.so: failed to map segment from shared object")
SHORT = {
    "Python": (raised(lambda: bytes(1 << 60)), "MemoryError"),
    "numpy": (
        raised(lambda: np.ones((1 << 24, 1 << 24))),
        "MemoryError: Unable to allocate 2.00 PiB",
    ),
    "pyarrow": (raised(lambda: pa.allocate_buffer(1 << 60)), "MemoryError: malloc of size"),
    "its cause": (WITH_CAUSE, "ImportError: a.so: failed to map segment"),
    "threads": (RuntimeError("can't start new thread"), "RuntimeError: can't start new"),
    "the system": (OSError(12, "Cannot allocate memory", "a"), "OSError: [Errno 12] Cannot"),
    "JAX": (
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes."),
        "RuntimeError: RESOURCE_E",
    ),
    "a worker": (RuntimeError("Traceback ...\n  x = y\nMemoryError\n"), "MemoryError"),
}


@pytest.mark.parametrize(("error", "said"), SHORT.values(), ids=SHORT)
def test_a_shortage_is_known(error, said):
    found = out_of_memory_error(error)
    assert isinstance(found, DataError)
    assert str(found).startswith(f"memory is short ({said}")
    assert "fewer workers" in str(found)


def test_other_errors_are_none():
    own_cause = ValueError("x")
    own_cause.__cause__ = own_cause
    others = ZeroDivisionError("x"), OSError(13, "Permission denied"), DataError("a is cut")
    assert [*map(out_of_memory_error, (*others, own_cause))] == [None] * 4


@pytest.mark.parametrize("copies", [0, 1001, 10**9])
def test_masked_copies_that_no_memory_holds_are_refused(copies):
    with pytest.raises(UsageError, match=rf"--mask_copies={copies}: must be from 1 to 1,000"):
        Mlm(mask_copies=copies)


BUILD = [
    "pipelines.build_shards",
    "--input={d}/in.txt",
    "--document=line",
    "--tokenizer={t}",
    "--output={d}/out",
]
TRAIN = [
    "pipelines.train_tokenizer",
    "--input={d}/in.txt",
    "--document=line",
    "--vocab_size=300",
    "--output={d}/out",
]
THREADS = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]


@pytest.mark.parametrize(
    ("megabytes", "command", "said"),
    [
        (600, BUILD, "build_shards needs at least 2.4 GB of addresses, and `ulimit -v` allows 0.6"),
        (600, [*BUILD, *THREADS], "build_shards needs at least 2.4 GB"),
        (2800, [*BUILD, *THREADS], "a run in threads or processes needs at least 3.2 GB"),
        (1800, [*TRAIN, *THREADS], "train_tokenizer needs at least 2 GB"),
        (1000, ["trainers.flax_mlm", "--shards={d}/set"], "JAX needs at least 3.2 GB"),
    ],
)
def test_too_few_addresses_are_seen_beforehand(megabytes, command, said, tokenizer_path, tmp_path):
    """Else libraries abort the process, or wait for threads that never came."""
    (tmp_path / "in.txt").write_text("a document\n" * 9)
    write_mlm_set(tmp_path / "set")
    argv = [word.format(d=tmp_path, t=tokenizer_path) for word in command]
    limited = ["sh", "-c", f'ulimit -v {megabytes}000; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, sys.executable, "-m", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {said}") and last.endswith(
        "(`ulimit -v unlimited`) and run again"
    )
    assert "Traceback" not in done.stderr
