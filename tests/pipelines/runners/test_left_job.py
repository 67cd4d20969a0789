"""A job that goes on after its command has died: it must not touch what another run makes."""

import os

import pytest

from tests.tools.python_process import run_python
from textmill.pipelines.build_shards import main as build_shards
from textmill.pipelines.train_tokenizer import main as train_tokenizer
from textmill.pipelines.writers.staging import check_turn, publish_files, stage
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.lock import LOCK

# As another run of the same --output would: it takes the lock's file, between two documents.
TAKEOVER = """
def taken(document):
    with open({lock!r}, "w") as file:
        file.write("another")
"""


def test_a_turn_ends_with_its_run_or_if_it_was_killed_with_the_next(tmp_path):
    output = str(tmp_path / "set")
    with stage(output) as first:
        check_turn(first.folder, first.run)
    with pytest.raises(DataError, match="this job published nothing"):
        check_turn(first.folder, first.run)
    code = (
        "import os, signal; from textmill.pipelines.writers.staging import stage\n"
        f"with stage({output!r}) as found: print(found.run, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = run_python("-c", code).stdout.strip()
    check_turn(first.folder, killed)
    with stage(output) as second:
        check_turn(second.folder, second.run, publishes=True)
        for run in (first.run, killed):
            with pytest.raises(DataError, match="this job published nothing"):
                check_turn(first.folder, run)
    assert os.listdir(output) == [LOCK]


def test_no_seal_after_another_run_has_begun_while_files_were_moved(tmp_path, monkeypatch):
    output = tmp_path / "set"
    with stage(str(output)) as staging:
        (output / ".staging" / "a").write_bytes(b"a")
        monkeypatch.setattr(store, "sync", lambda path: (output / LOCK).write_text("another"))
        with pytest.raises(DataError, match="this job published nothing"):
            publish_files(str(output), staging.run, "SEAL", b"x", {"a": ("a", 1)}, [])
    assert not (output / "SEAL").exists()


@pytest.mark.parametrize("command", [build_shards, train_tokenizer])
def test_no_shard_and_no_set_after_another_run_has_begun(
    command, corpus, tokenizer_path, tmp_path, monkeypatch
):
    output = tmp_path / "made"
    module = f"takeover_of_{command.__module__.rpartition('.')[2]}"  # each is imported once
    (tmp_path / f"{module}.py").write_text(TAKEOVER.format(lock=str(output / LOCK)))
    monkeypatch.syspath_prepend(tmp_path)
    flags = [f"--input={corpus}", f"--output={output}", f"--filter={module}:taken"]
    if command is train_tokenizer:
        flags += ["--vocab_size=300"]
    else:
        flags += [f"--tokenizer={tokenizer_path}", "--max_length=32", "--num_shards=2"]
    with pytest.raises(DataError, match="this job published nothing"):
        command(flags)
    assert os.listdir(output) == [LOCK]
