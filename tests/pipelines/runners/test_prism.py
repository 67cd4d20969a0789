"""Prism, Beam's runner in Go: whatever fails is an error of one line."""

import json
import os
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from tests.tools.places import ROOT
from tests.tools.run_processes import free_port
from textmill.pipelines import build_shards
from textmill.pipelines.runners import job_servers
from textmill.pipelines.runners.launch import IN_PROCESS, find_program
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.metadata import read_set

PRISM = "--runner=PrismRunner"
pytestmark = pytest.mark.usefixtures("prism")


def answers(port):
    """Whether something on this machine listens there."""
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


@pytest.fixture(scope="module")
def pool(tmp_path_factory, wait_for):
    """A worker pool: Beam's flags for it, and its process."""
    port = free_port()
    # It starts `python`, whichever comes first.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    with open(tmp_path_factory.mktemp("pool") / "log", "w") as log:
        process = subprocess.Popen(
            [*command, f"--service_port={port}"],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    wait_for(lambda: answers(port))
    flags = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]
    yield flags, psutil.Process(process.pid)
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()


def build(corpus, tokenizer, output, *flags):
    """Runs build_shards; the sha256 of each shard."""
    own = [f"--input={corpus}", f"--tokenizer={tokenizer}", f"--output={output}"]
    build_shards.main([*own, "--num_shards=5", "--max_length=64", *flags])
    return {f.path: f.sha256 for f in read_set(str(output)).manifest.files if f.split}


@pytest.fixture
def long_corpus(topics, tmp_path, small_blocks):
    """Enough text to be in the middle of."""
    path = tmp_path / "long.jsonl"
    with open(path, "w") as file:
        for copy in range(20):
            file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in topics)
    return str(path)


@pytest.mark.timeout(180)
def test_prism_ends_with_a_killed_command(long_corpus, tokenizer_path, tmp_path, wait_for):
    flags = [f"--input={long_corpus}", f"--tokenizer={tokenizer_path}", PRISM]
    command = [sys.executable, "-m", "pipelines.build_shards", f"--output={tmp_path / 'set'}"]
    process = subprocess.Popen([*command, *flags], cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "set" / ".staging" / "progress").exists)
    children = psutil.Process(process.pid).children(recursive=True)
    assert "prism" in [child.name() for child in children]
    process.kill()
    assert psutil.wait_procs(children, timeout=10)[1] == []
    process.wait()


@pytest.fixture
def build_and_kill(wait_for, long_corpus, tokenizer_path, tmp_path):
    """Runs build_shards, and kills what `victim()` finds as soon as documents are read."""
    output = tmp_path / "set"

    def kill(victim):
        wait_for((output / ".staging" / "progress").exists)
        victim().kill()

    def run_and_kill(victim, *flags):
        killer = threading.Thread(target=kill, args=(victim,))
        killer.start()
        try:
            build(long_corpus, tokenizer_path, output, PRISM, *flags)
        finally:
            killer.join()

    yield run_and_kill
    assert os.listdir(output) == [".lock"]


def prism_process():
    (found,) = [p for p in psutil.Process().children() if p.name() == "prism"]
    return found


def test_prism_killed_in_the_middle(build_and_kill):
    with pytest.raises(DataError, match=r"^Prism, the runner, ended .*SIGKILL: killed, or out of"):
        build_and_kill(prism_process)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle(build_and_kill, corpus, tokenizer_path, tmp_path, pool):
    of_pool, process = pool
    with pytest.raises(DataError, match="^a worker process died"):
        build_and_kill(lambda: process.children()[-1], *of_pool)
    alone = build(corpus, tokenizer_path, tmp_path / "alone", f"--runner={IN_PROCESS}")
    assert build(corpus, tokenizer_path, tmp_path / "again", PRISM, *of_pool) == alone


@pytest.mark.timeout(300)
def test_a_lost_worker_that_prism_overlooks(prism, tmp_path, monkeypatch):
    """Prism does so now and then; here a process that only waits prints the same line."""
    with open(prism, "rb") as file:
        assert job_servers.LOST_WORKER in file.read()  # else a new Prism says something else
    monkeypatch.setattr(job_servers, "_LOST_SECONDS", 0.1)
    script = tmp_path / "prism.py"
    script.write_text(
        "import socket, time\n"
        "listens = socket.create_server(('localhost', 0))\n"
        f"print('x' * 70_000, {job_servers.LOST_WORKER.decode()!r}, flush=True)\n"
        "time.sleep(3600)\n"
    )
    place = tmp_path / "prism"
    place.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    place.chmod(0o755)
    with (
        pytest.raises(job_servers.LostWorker),
        job_servers.start_prism([PRISM, f"--prism_location={place}"]) as arguments,
    ):
        (endpoint,) = [x for x in arguments if x.startswith("--job_endpoint=localhost:")]
        with socket.create_connection(("localhost", int(endpoint.rsplit(":", 1)[1]))) as job:
            job.recv(1)  # as a job is waited for: until the process ends
        raise ConnectionError("lost")


def test_a_job_may_take_longer_than_a_request(
    prism, long_corpus, tokenizer_path, tmp_path, wait_for
):
    """On a Prism that the user started; Beam by itself would give up after the request's time."""
    port = free_port()
    command = [prism, f"--job_port={port}", "--serve_http=false", "--log_level=error"]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: answers(port))
            flags = [PRISM, f"--job_endpoint=localhost:{port}", "--job_server_timeout=1"]
            assert build(long_corpus, tokenizer_path, tmp_path / "set", *flags)
        finally:
            process.kill()


def test_flags_of_prism_that_are_rejected(corpus, tokenizer_path, tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        wrong = {
            "--prism_location=/dev/null": "there is no such program",
            "--prism_location=/bin/true": r"/bin/true .*does not start as Prism .*\(exit code 0\)",
            "--prism_location=https://example.org/prism.zip": "does not download it",
            f"--job_port={port}": f"--job_port={port} does not start .*address already in use",
            "--environment_type=NONSENSE": "Unknown environment type: NONSENSE",
            "--environment_type=EXTERNAL": "external_service_address is required",
            "--prism_log_level=loud": "invalid choice: 'loud'",
        }
        for flag, said in wrong.items():
            with pytest.raises((UsageError, DataError), match=f"^[^\n]*{said}[^\n]*$"):
                build(corpus, tokenizer_path, tmp_path / "set", PRISM, flag)
    flags = [PRISM, "--environment_type=EXTERNAL", f"--environment_config=localhost:{free_port()}"]
    with pytest.raises(DataError, match="unable to start sdk worker.*connection refused"):
        build(corpus, tokenizer_path, tmp_path / "set", *flags)
    assert os.listdir(tmp_path / "set") == [".lock"]


def test_where_the_program_is_looked_for(prism, tmp_path, monkeypatch):
    assert find_program(prism) == prism
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="build it with `make prism`"):
        find_program()
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "bin" / "prism", tmp_path / "prism"):
        place.symlink_to(prism)
        assert find_program() == str(place)
