"""A command forks its worker processes where that is safe, and leaves none behind."""

import json
import subprocess
import sys

import psutil
import pytest

from tests.tools.python_process import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")

WAITING = """
import os
import signal
import threading

from textmill.pipelines.runners.forked_workers import can_fork, forked_workers, take_worker
from textmill.schemas.commands.entry import run_entry


def main(argv):
    assert can_fork()
    with forked_workers(3):
        killed = take_worker()
        os.kill(killed.process, signal.SIGKILL)
        try:
            killed.work({})
        except RuntimeError as error:
            print(str(error).replace(str(killed.process), "N"))
    try:
        os.wait()
    except ChildProcessError:
        print("none is left")
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    with forked_workers(1):
        print("beside a thread:", take_worker())
    ends.set()
    thread.join()


assert not can_fork()  # the process is the user's
print("written once")
run_entry(main)
"""


def test_workers_that_wait_end_with_the_run_and_none_is_forked_beside_a_thread():
    done = run_python("-c", WAITING)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "written once",
        "worker process N ended with code -9",
        "none is left",
        "beside a thread: None",
    ]


def test_workers_of_a_command_are_forked_and_have_none_of_its_files(
    topics, tokenizer_path, tmp_path, wait_for
):
    """A new interpreter would have a command of its own; the lock is to end with the launcher."""
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": t}) + "\n" for _ in range(20) for t in topics))
    flags = [f"--input={text}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"]
    flags += ["--task=clm", "--max_length=64", "--direct_running_mode=multi_processing"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.build_shards", *flags, "--direct_num_workers=2"],
        stdout=subprocess.DEVNULL,
    )
    launcher = psutil.Process(process.pid)
    # A worker that works has connections; it has closed the launcher's files by then.
    workers = wait_for(
        lambda: [child for child in launcher.children() if len(child.net_connections()) > 1]
    )
    for worker in workers:
        assert worker.cmdline() == launcher.cmdline()
        assert not [file for file in worker.open_files() if file.path.endswith(".lock")]
    assert process.wait(60) == 0
    assert (tmp_path / "set" / "MANIFEST.json").exists()
