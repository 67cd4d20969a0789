"""A disk that fills up: every mode ends with a clear error, and no reader would open the rest."""

import os
import subprocess
import sys

import pytest

from tests.tools.places import ROOT
from textmill.pipelines.runners.worker_log import stderr_in

MODES = {
    "in this process": ["--direct_running_mode=in_memory"],
    "threads": ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
    "processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}
# In a namespace of its own: the disk is gone with the command.
ON_A_SMALL_DISK = ["unshare", "--mount", "sh", "-c"]
SMALL_DISK = 'mount -t tmpfs -o size={} none "$0" && "$@"; code=$?; ls -A "$0/out"; exit $code'


def can_mount() -> bool:
    try:
        done = subprocess.run([*ON_A_SMALL_DISK, "mount -t tmpfs none /mnt"], capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def test_what_workers_say_is_taken_and_commands_no_terminal(tmp_path, capfd):
    """A worker that could not report its failure would block the run."""
    code = r"import sys; print('x\x1b[2J\n' * 99_999, file=sys.stderr, flush=True)"
    with stderr_in("/dev/full"):
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert capfd.readouterr().err == ""
    with stderr_in(str(tmp_path / "workers.log")):
        os.write(2, b"failed on \x1b]0;owned\x07 caf\xe9\nand \xe6\xbc\xa2")
    log = (tmp_path / "workers.log").read_text()
    assert log == "failed on \\x1b]0;owned\\x07 caf\\xe9\nand 漢"


@pytest.mark.skipif(not can_mount(), reason="may not mount a disk")
@pytest.mark.parametrize(
    ("command", "mode"),
    [
        ("build_shards", "in this process"),
        ("train_tokenizer", "in this process"),
        pytest.param("build_shards", "processes", marks=pytest.mark.slow),
        pytest.param("build_shards", "threads", marks=pytest.mark.slow),
        pytest.param("train_tokenizer", "threads", marks=pytest.mark.slow),
        pytest.param("train_tokenizer", "processes", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_ends_a_run_in_words(command, mode, corpus, tokenizer_path, tmp_path):
    flag, size = {
        "build_shards": (f"--tokenizer={tokenizer_path}", "64k"),
        "train_tokenizer": ("--vocab_size=5000", "24k"),
    }[command]
    run = [sys.executable, "-m", f"pipelines.{command}", f"--input={corpus}", flag, *MODES[mode]]
    on_disk = [*ON_A_SMALL_DISK, SMALL_DISK.format(size), str(tmp_path)]
    run = [*on_disk, *run, f"--output={tmp_path}/out"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: no space left while writing") and "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == ".lock"  # and nothing else is left
