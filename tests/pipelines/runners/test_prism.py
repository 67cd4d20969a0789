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
from tests.tools.prism import prism_running
from tests.tools.run_processes import free_port
from textmill.pipelines import build_shards
from textmill.pipelines.runners.launch import IN_PROCESS
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset


def answers(port):
    """Whether something on this machine listens there."""
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


@pytest.fixture(scope="module")
def pool(tmp_path_factory, wait_for):
    """A worker pool: Beam's flags for it."""
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
    yield flags
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()


def build(corpus, tokenizer, output, *flags):
    """Runs build_shards; the sha256 of each shard."""
    own = [f"--input={corpus}", f"--tokenizer={tokenizer}", f"--output={output}"]
    build_shards.main([*own, "--num_shards=5", "--max_length=64", *flags])
    return {f.path: f.sha256 for f in read_dataset(str(output)).manifest.files if f.split}


@pytest.fixture
def long_corpus(topics, tmp_path, small_blocks):
    """Enough text to be in the middle of."""
    path = tmp_path / "long.jsonl"
    with open(path, "w") as file:
        for copy in range(20):
            file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in topics)
    return str(path)


@pytest.mark.usefixtures("prism")
def test_prism_killed_in_the_middle(long_corpus, tokenizer_path, tmp_path, wait_for):
    output = tmp_path / "set"
    with prism_running() as (flags, process):

        def kill():
            wait_for((output / ".staging" / "progress").exists)
            process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(DataError, match=r"^the job server at localhost:\d+ ended during the"):
            build(long_corpus, tokenizer_path, output, *flags)
        killer.join()
    assert os.listdir(output) == [".lock"]


@pytest.mark.slow
def test_workers_of_a_pool(prism, corpus, tokenizer_path, tmp_path, pool):
    alone = build(corpus, tokenizer_path, tmp_path / "alone", f"--runner={IN_PROCESS}")
    assert build(corpus, tokenizer_path, tmp_path / "pool", *prism, *pool) == alone


def test_a_job_may_take_longer_than_a_request(prism, long_corpus, tokenizer_path, tmp_path):
    """Beam by itself would give up after the request's time."""
    flags = [*prism, "--job_server_timeout=1"]
    assert build(long_corpus, tokenizer_path, tmp_path / "set", *flags)


def test_flags_that_are_rejected(prism, corpus, tokenizer_path, tmp_path):
    wrong = {
        "--environment_type=NONSENSE": "Unknown environment type: NONSENSE",
        "--environment_type=EXTERNAL": "external_service_address is required",
        "--prism_log_level=loud": "invalid choice: 'loud'",
    }
    for flag, said in wrong.items():
        with pytest.raises((UsageError, DataError), match=f"^[^\n]*{said}[^\n]*$"):
            build(corpus, tokenizer_path, tmp_path / "set", *prism, flag)
    assert os.listdir(tmp_path / "set") == [".lock"]


@pytest.mark.usefixtures("prism")
def test_a_pool_that_does_not_answer(corpus, tokenizer_path, tmp_path):
    """Prism ends."""
    nowhere = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{free_port()}"]
    with prism_running() as (flags, _):
        with pytest.raises(DataError, match=r"^the job server at localhost:\d+ ended during the"):
            build(corpus, tokenizer_path, tmp_path / "set", *flags, *nowhere)
    assert os.listdir(tmp_path / "set") == [".lock"]


def test_a_prism_that_is_not_started(corpus, tokenizer_path, tmp_path):
    with pytest.raises(UsageError, match="needs a running Prism: start it with `prism --job_port"):
        build(corpus, tokenizer_path, tmp_path / "set", "--runner=PrismRunner")
    assert not (tmp_path / "set").exists()
