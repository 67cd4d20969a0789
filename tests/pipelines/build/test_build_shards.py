"""Whole runs of build_shards: its rows, what it finds in --output, and how it is ended."""

import gc
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest
from tokenizers import Tokenizer

from pipelines.build_shards import main
from pipelines.writers import staging
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set
from tests.tools.segments import segments_of


def arguments(corpus, tokenizer_path, output, *more):
    return [
        f"--input={corpus}",
        f"--tokenizer={tokenizer_path}",
        f"--output={output}",
        "--num_shards=3",
        *more,
    ]


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """A set made the plain way; tests compare with it and leave it alone."""
    output = tmp_path_factory.mktemp("made") / "set"
    main(arguments(corpus, tokenizer_path, output))
    return output


def test_every_document_comes_back_from_the_rows(made, topics, tokenizer_path):
    tokenizer = Tokenizer.from_file(tokenizer_path)
    expected = []
    for document in set(filter(None, topics)):
        ids = tokenizer.encode(document, add_special_tokens=False).ids
        expected += [(0, *ids[i : i + 126], 2) for i in range(0, len(ids), 126)]
    assert sorted(segments_of(made)) == sorted(expected)


PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def test_the_same_command_again_finds_the_set(made, corpus, tokenizer_path, capsys):
    before = os.stat(made / "MANIFEST.json").st_mtime_ns
    main(arguments(corpus, tokenizer_path, made))
    assert "nothing to do" in capsys.readouterr().out
    assert os.stat(made / "MANIFEST.json").st_mtime_ns == before


def test_other_inputs_are_refused(made, corpus, tokenizer_path, tmp_path):
    changed = tmp_path / "corpus.jsonl"
    with open(corpus, "rb") as file:
        content = file.read()
    changed.write_bytes(content.replace(b"the", b"eht", 1))
    with pytest.raises(UsageError, match="same sizes but other content"):
        main(arguments(changed, tokenizer_path, made))
    changed.write_bytes(content + b'{"text": "more"}\n')
    with pytest.raises(UsageError, match="of other sizes"):
        main(arguments(changed, tokenizer_path, made))


def test_refused_documents_are_listed_and_the_rest_goes_on(tokenizer_path, tmp_path):
    source = tmp_path / "mixed.jsonl"
    source.write_bytes(b'{"text": "good one"}\n{"text": "\xff"}\n{"body": 1}\n{"text": "two"}\n')
    output = tmp_path / "set"
    main(arguments(source, tokenizer_path, output))
    stats = read_set(str(output)).stats
    assert stats.dropped == {"missing_field": 1, "not_utf8": 1}
    assert (stats.documents_read, stats.total().documents) == (4, 2)
    lines = (output / "rejects/rejects.jsonl").read_text().splitlines()
    listed = [(r["offset"], r["reason"]) for r in map(json.loads, lines)]
    assert listed == [(21, "not_utf8"), (35, "missing_field")]
    with pytest.raises(
        DataError,
        match=r"2 documents were rejected, more than --max_rejects=1 "
        r"\(1 missing_field, 1 not_utf8\); the first is in .*mixed.jsonl at byte 21: not_utf8",
    ):
        main(arguments(source, tokenizer_path, tmp_path / "strict", "--max_rejects=1"))
    assert not (tmp_path / "strict" / "MANIFEST.json").exists()


def test_runs_leave_nothing_behind_in_a_process_that_goes_on(corpus, tokenizer_path, tmp_path):
    """As a notebook does: objects that the garbage collector froze are never freed."""
    main(arguments(corpus, tokenizer_path, tmp_path / "first"))
    before = gc.get_freeze_count()
    main(arguments(corpus, tokenizer_path, tmp_path / "second"))
    assert gc.get_freeze_count() <= before


def test_a_worker_process_that_is_killed_ends_the_run(
    slow_corpus, tokenizer_path, tmp_path, wait_for
):
    """As by a system out of memory: FnApiRunner alone would wait for it for ever."""
    output = tmp_path / "set"
    flags = arguments(slow_corpus, tokenizer_path, output, *PROCESSES)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for((output / ".staging" / "progress").exists)
    workers = wait_for(lambda: workers_of(process))
    workers[0].kill()
    said = process.communicate(timeout=60)[1].decode()
    last = said.splitlines()[-1]
    assert process.returncode == 1 and "Traceback" not in said
    assert last.startswith("error: a worker process died (killed, or out of memory)")
    assert os.listdir(output) in ([], [".lock"])
    alive = [worker for worker in workers if worker.is_running()]
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]


def workers_of(process):
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "python" in child.name()]


def test_sigterm_ends_workers_that_are_still_starting(
    slow_corpus, tokenizer_path, tmp_path, wait_for
):
    """A worker whose runner is gone while it connects waits for it for up to two minutes."""
    flags = arguments(slow_corpus, tokenizer_path, tmp_path / "set", *PROCESSES)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    workers = wait_for(lambda: workers_of(process))
    process.terminate()
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and said.startswith("interrupted: ")
    assert psutil.wait_procs(workers, timeout=10)[1] == []


@pytest.mark.slow
def test_a_truncated_archive_is_said_in_one_paragraph(tokenizer_path, tmp_path):
    source = tmp_path / "cut.txt.gz"
    source.write_bytes(gzip.compress(os.urandom(1000).hex().encode() * 50)[:-300])
    with pytest.raises(DataError, match=r"^[^\n]*cut\.txt\.gz is truncated or damaged[^\n]*$"):
        main(arguments(source, tokenizer_path, tmp_path / "set", *PROCESSES))
    assert os.listdir(tmp_path / "set") in ([], [".lock"])


def command(*flags):
    return [sys.executable, "-m", "pipelines.build_shards", *flags]


def test_a_tokenizer_without_a_mask_token_is_refused_for_mlm(corpus, tokenizer_path, tmp_path):
    plain = json.loads(pathlib.Path(tokenizer_path).read_text())
    plain["added_tokens"] = [t for t in plain["added_tokens"] if t["content"] != "<mask>"]
    del plain["model"]["vocab"]["<mask>"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match="no mask token"):
        main(arguments(corpus, path, tmp_path / "set"))
    main(arguments(corpus, path, tmp_path / "set", "--no_static_masking"))
    assert read_set(str(tmp_path / "set")).schema.max_masked == 0


@pytest.fixture
def slow_corpus(topics, tmp_path):
    """Enough text to be in the middle of for a few seconds."""
    path = tmp_path / "slow.jsonl"
    with open(path, "w") as file:
        for copy in range(60):
            for topic in topics:
                file.write(json.dumps({"text": f"{copy} {topic}"}) + "\n")
    return str(path)


@pytest.mark.parametrize("seed", [7, 0])
def test_what_is_published_before_the_lock_is_had_stays(
    corpus, tokenizer_path, tmp_path, monkeypatch, capsys, seed
):
    """Another set is refused, this very one found, as if it had been there from the start."""
    output = tmp_path / "set"
    wait = staging.stage

    def let_another_finish(*args, **kwargs):
        monkeypatch.setattr(staging, "stage", wait)
        main(arguments(corpus, tokenizer_path, output, f"--seed={seed}"))
        return wait(*args, **kwargs)

    monkeypatch.setattr(staging, "stage", let_another_finish)
    flags = arguments(corpus, tokenizer_path, output, "--seed=7")
    if seed == 7:
        main(flags)
        assert "already contains this dataset" in capsys.readouterr().out
    else:
        with pytest.raises(UsageError, match="contains a different dataset .*seed"):
            main(flags)
    assert read_set(str(output)).schema.seed == seed


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        (signal.SIGINT, []),
        (signal.SIGKILL, []),
        pytest.param(signal.SIGINT, PROCESSES, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, PROCESSES, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_leaves_nothing_to_open_and_can_be_repeated(
    slow_corpus, corpus, tokenizer_path, tmp_path, how, mode, wait_for
):
    output = tmp_path / "set"
    flags = arguments(slow_corpus, tokenizer_path, output, *mode)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for((output / ".staging" / "progress").exists)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert bool(workers) == bool(mode)
    process.send_signal(signal.SIGSTOP)  # else it may end while we import Beam
    with pytest.raises(UsageError, match="another run writes into"):
        main(flags)
    process.send_signal(how)
    process.send_signal(signal.SIGCONT)
    said = process.communicate(timeout=30)[1].decode()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert not (output / "MANIFEST.json").exists()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted: nothing is kept; run it with --resume" in said
        assert "Traceback" not in said
        assert os.listdir(output) in ([], [".lock"])
    main(arguments(corpus, tokenizer_path, output))
    assert read_set(str(output)).stats.broken_equations() == []
    assert not (output / ".staging").exists()
