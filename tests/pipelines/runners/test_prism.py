"""Prism, Beam's runner in Go: the same bytes, and whatever fails said in words."""

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from pipelines import build_shards, train_tokenizer
from pipelines.readers import sources
from pipelines.runners import job_servers
from pipelines.runners.launch import IN_PROCESS, find_program
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set
from schemas.records import DOCUMENT_FORMATS
from tests.tools.places import CHAT_TEMPLATE, ROOT

PRISM = "--runner=PrismRunner"
LOCAL = f"--runner={IN_PROCESS}"
PROCESSES = [LOCAL, "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
TASKS = {
    "mlm": ["--max_length=64"],
    "clm": ["--packing=concat", "--max_length=64"],
    "chat": [f"--chat_template={CHAT_TEMPLATE}", "--max_length=64"],
    "classification": ["--max_length=48"],
    "qa": ["--qa_form=prefix", "--max_length=160"],
    "span_corruption": ["--max_length=128"],
    "tokens": [f"--file_format={','.join(DOCUMENT_FORMATS)}", "--max_length=64"],
}
OWN = {"inputs.json", "config.yaml", "report.html"}  # they name inputs and the machine


@pytest.fixture(scope="session", autouse=True)
def program():
    """Where Prism is; without it nothing here can be shown."""
    try:
        return find_program()
    except UsageError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def corpus(topics, tmp_path_factory):
    """Documents with all that any task reads, in three files; some are there twice."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [text for text in topics if 80 < len(text) < 3000][:600]
    lines = []
    for number, text in enumerate([*texts, *texts[:30]]):
        start = number * 7919 % (len(text) - 20)
        answer = {"text": text[start : start + 1 + number % 19], "answer_start": start}
        lines.append(
            {
                "text": text,
                "label": len(text) % 3,
                "id": f"help-{number}",
                "question": f"What is at {start}?",
                "context": text,
                "answers": [answer],
                "messages": [
                    {"role": "user", "content": f"What is at {start}?"},
                    {"role": "assistant", "content": text},
                ],
            }
        )
    for number in range(3):
        own = lines[number::3]
        (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in own))
    return str(folder)


@pytest.fixture
def small_blocks(monkeypatch):
    """Cuts inputs as if they were large: into a dozen blocks."""
    plan = sources.plan_blocks
    monkeypatch.setattr(
        sources, "plan_blocks", lambda source: plan(replace(source, block_bytes=100_000))
    )


def build(corpus, sentinels, output, task, *flags):
    build_shards.main(
        [
            f"--input={corpus}",
            f"--tokenizer={sentinels}",
            f"--output={output}",
            f"--task={task}",
            "--num_shards=5",
            "--splits=train:0.8,validation:0.2",
            *TASKS[task],
            *flags,
        ]
    )
    return content(output)


def content(output):
    """Every file of a set with its hash, but for what names the inputs and the machine."""
    files = read_set(str(output)).manifest.files
    return {file.path: file.sha256 for file in files if file.path not in OWN}


@pytest.fixture(scope="module")
def local(corpus, sentinels, tmp_path_factory):
    """Sets made in this process by FnApiRunner, each once."""
    folder, sets = tmp_path_factory.mktemp("local"), {}

    def make(task):
        if task not in sets:
            sets[task] = build(corpus, sentinels, folder / task, task, LOCAL)
        return sets[task]

    return make


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """A worker pool; yields its port and its process. It starts `python`, whichever comes first."""
    port = free_port()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    with open(tmp_path_factory.mktemp("pool") / "log", "w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "apache_beam.runners.worker.worker_pool_main",
                f"--service_port={port}",
            ],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    wait_for(lambda: accepts(port))
    yield port, process
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()


def accepts(port):
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


def wait_for(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)


def of_pool(port):
    return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
@pytest.mark.parametrize("task", TASKS)
def test_the_same_bytes_in_this_process(
    local, corpus, sentinels, tmp_path, small_blocks, task, shuffle_by
):
    flags = [PRISM, f"--shuffle_by={shuffle_by}"]
    assert build(corpus, sentinels, tmp_path / "set", task, *flags) == local(task)


def test_the_same_bytes_as_worker_processes_make(local, corpus, sentinels, tmp_path):
    """Of the other tasks, test_task_sets.py and test_qa.py tell."""
    assert build(corpus, sentinels, tmp_path / "set", "mlm", *PROCESSES) == local("mlm")


@pytest.mark.parametrize("task", TASKS)
def test_the_same_bytes_by_a_pool(local, corpus, sentinels, tmp_path, small_blocks, pool, task):
    """Prism asks a pool for one worker, whatever --sdk_worker_parallelism says."""
    port, process = pool
    pool_process, seen, done = psutil.Process(process.pid), set(), threading.Event()

    def count():
        while not done.wait(0.05):
            seen.update(child.pid for child in pool_process.children())

    counting = threading.Thread(target=count)
    counting.start()
    flags = [PRISM, "--shuffle_by=runner", "--sdk_worker_parallelism=2", *of_pool(port)]
    try:
        made = build(corpus, sentinels, tmp_path / "set", task, *flags)
    finally:
        done.set()
        counting.join()
    assert made == local(task)
    assert len(seen) == 1


def test_the_same_tokenizer(corpus, tmp_path, small_blocks, pool):
    made = []
    ways = {"local": [LOCAL], "prism": [PRISM], "pool": [PRISM, *of_pool(pool[0])]}
    for way, flags in ways.items():
        output = tmp_path / way
        train_tokenizer.main(
            [f"--input={corpus}", f"--output={output}", "--vocab_size=1000", *flags]
        )
        names = ("tokenizer.json", "report.json", "histogram.parquet")
        made.append([(output / name).read_bytes() for name in names])
    assert made[0] == made[1] == made[2]


def test_a_truncated_file_is_said_in_one_paragraph(sentinels, tmp_path):
    source = tmp_path / "cut.txt.gz"
    source.write_bytes(gzip.compress(os.urandom(1000).hex().encode() * 50)[:-300])
    with pytest.raises(DataError, match=r"^[^\n]*cut\.txt\.gz is truncated or damaged[^\n]*$"):
        build(source, sentinels, tmp_path / "set", "mlm", PRISM)
    assert os.listdir(tmp_path / "set") == [".lock"]


@pytest.fixture
def long_corpus(topics, tmp_path, small_blocks):
    """Enough text to be in the middle of."""
    path = tmp_path / "long.jsonl"
    with open(path, "w") as file:
        for copy in range(20):
            file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in topics)
    return str(path)


def killed_at_work(output, victim, run):
    """Runs a command, and kills what `victim()` finds as soon as documents are read."""

    def kill():
        wait_for((output / ".staging" / "progress").exists)
        victim().kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run()
    finally:
        killer.join()


def prism_process():
    (found,) = [p for p in psutil.Process().children() if p.name() == "prism"]
    return found


def test_prism_killed_in_the_middle(long_corpus, sentinels, tmp_path):
    output = tmp_path / "set"
    with pytest.raises(DataError, match=r"^Prism, the runner, ended .*SIGKILL: killed, or out of"):
        killed_at_work(
            output,
            prism_process,
            lambda: build(long_corpus, sentinels, output, "mlm", PRISM),
        )
    assert os.listdir(output) == [".lock"]


def test_a_worker_killed_in_the_middle(local, long_corpus, corpus, sentinels, tmp_path, pool):
    port, process = pool
    output = tmp_path / "set"

    def worker():
        return psutil.Process(process.pid).children()[-1]

    with pytest.raises(DataError, match="^a worker process died"):
        killed_at_work(
            output,
            worker,
            lambda: build(long_corpus, sentinels, output, "mlm", PRISM, *of_pool(port)),
        )
    assert os.listdir(output) == [".lock"]
    assert build(corpus, sentinels, output, "mlm", PRISM, *of_pool(port)) == local("mlm")


def test_a_lost_worker_that_prism_overlooks(program, tmp_path, monkeypatch):
    """Prism does so now and then; here a process that only waits says what it says then."""
    with open(program, "rb") as file:
        assert job_servers.LOST_WORKER in file.read()  # else a new Prism says something else
    monkeypatch.setattr(job_servers, "_LOST_SECONDS", 0.1)
    script = tmp_path / "prism.py"
    script.write_text(
        "import socket, time\n"
        "listens = socket.create_server(('localhost', 0))\n"
        f"print('x' * 70_000, {job_servers.LOST_WORKER.decode()!r}, flush=True)\n"
        "time.sleep(60)\n"
    )
    place = tmp_path / "prism"
    place.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    place.chmod(0o755)
    began = time.monotonic()
    with (
        pytest.raises(job_servers.LostWorker),
        job_servers.start_prism([PRISM, f"--prism_location={place}"]) as arguments,
    ):
        (endpoint,) = [x for x in arguments if x.startswith("--job_endpoint=localhost:")]
        with socket.create_connection(("localhost", int(endpoint.rsplit(":", 1)[1]))) as job:
            job.recv(1)  # as a job is waited for: until the process ends
        raise ConnectionError("lost")
    assert time.monotonic() - began < 30


def test_a_job_may_take_longer_than_a_request(program, long_corpus, sentinels, tmp_path):
    """On a Prism that the user started; Beam by itself would give up after the request's time."""
    port = free_port()
    command = [program, f"--job_port={port}", "--serve_http=false", "--log_level=error"]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: accepts(port))
            flags = [PRISM, f"--job_endpoint=localhost:{port}", "--job_server_timeout=1"]
            assert build(long_corpus, sentinels, tmp_path / "set", "mlm", *flags)
        finally:
            process.kill()


def test_flags_that_cannot_work(corpus, sentinels, tmp_path):
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
                build(corpus, sentinels, tmp_path / "set", "mlm", PRISM, flag)
    flags = [PRISM, *of_pool(free_port())]
    with pytest.raises(DataError, match="unable to start sdk worker.*connection refused"):
        build(corpus, sentinels, tmp_path / "set", "mlm", *flags)
    assert os.listdir(tmp_path / "set") == [".lock"]


def test_where_the_program_is_looked_for(program, tmp_path, monkeypatch):
    assert find_program(program) == program
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="build it with `make prism`"):
        find_program()
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "bin" / "prism", tmp_path / "prism"):
        place.symlink_to(program)
        assert find_program() == str(place)
