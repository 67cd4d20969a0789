"""A run that died is resumed, and its dataset has the bytes of an uninterrupted run's."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tools.places import ROOT
from textmill.pipelines.build_shards import main
from textmill.pipelines.rows.example_batch import COPIES, ExampleBatch
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.writers import shard_files, staged_shards
from textmill.pipelines.writers.staged_shards import examples_hash
from textmill.pipelines.writers.staging import STAGING
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset


def arguments(corpus, tokenizer_path, output, *more):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    return [*flags, "--num_shards=4", "--max_length=64", "--file_format=both", *more]


def shards(output):
    return {f.path: f.sha256 for f in read_dataset(str(output)).manifest.files if f.split}


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """The dataset of an uninterrupted run."""
    output = tmp_path_factory.mktemp("made") / "set"
    main(arguments(corpus, tokenizer_path, output))
    return output


@pytest.fixture
def died(made, corpus, tokenizer_path, tmp_path, monkeypatch):
    """The output of a run that died when all shards were finished."""
    output = tmp_path / "set"

    def die(*_):
        raise DataError("the disk went away")

    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "publish", die)
        with pytest.raises(DataError, match="went away"):
            main(arguments(corpus, tokenizer_path, output, "--resume"))
    left = {path.name for path in (output / STAGING).iterdir()}
    staged = {shard_files.staged_name(f) for f in read_dataset(str(made)).manifest.files if f.split}
    notes = {name for name in left if name.endswith(".finished.npz")}
    assert left - notes == staged and len(staged) == 3 * len(notes)  # and no scratch
    return output


def files_of(output):
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_what_was_finished_is_not_made_again(made, died, corpus, tokenizer_path, written, capsys):
    damaged = sorted((died / STAGING).glob("*-train-00001-of-00004.array_record"))[0]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    [note] = (died / STAGING).glob("train-00000-of-00004.*.finished.npz")
    note.write_bytes(note.read_bytes()[:100])  # cut off
    main(arguments(corpus, tokenizer_path, died, "--resume"))
    assert sorted(written) == ["train-00000-of-00004", "train-00001-of-00004"]
    assert files_of(died) == files_of(made)
    assert "an earlier run finished 4 shards, which this one reuses" in capsys.readouterr().out


def test_of_another_run_nothing_is_taken(died, corpus, tokenizer_path, written, tmp_path):
    main(arguments(corpus, tokenizer_path, died, "--resume", "--seed=5"))
    assert len(written) == 5
    main(arguments(corpus, tokenizer_path, tmp_path / "other", "--seed=5"))
    assert shards(died) == shards(tmp_path / "other")


def test_without_the_flag_all_is_made_anew(
    made, died, corpus, tokenizer_path, written, monkeypatch
):
    monkeypatch.setattr(staged_shards, "examples_hash", None)  # nothing would use it
    main(arguments(corpus, tokenizer_path, died))
    assert len(written) == 5
    assert shards(died) == shards(made) and not (died / STAGING).exists()


def test_a_run_that_was_killed(made, corpus, tokenizer_path, tmp_path, written):
    output = tmp_path / "set"
    flags = arguments(corpus, tokenizer_path, output, "--resume")
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_SHARD, *flags], start_new_session=True, cwd=ROOT
    )
    try:
        until = time.monotonic() + 300
        while not list((output / STAGING).glob("*.finished.npz")) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    [finished] = [path.name.split(".")[0] for path in (output / STAGING).glob("*.finished.npz")]
    main(flags)
    assert sorted([*written, finished]) == sorted({n.split(".")[0] for n in shards(made)})
    assert shards(output) == shards(made)


# Writes one shard, and waits before the next for its end.
ONE_SHARD = """
import sys, threading
from textmill.pipelines.writers import shard_files
from textmill.pipelines.build_shards import main

write, turn = shard_files.write_shard, threading.Lock()
def write_one(*arguments):
    turn.acquire()
    return write(*arguments)
shard_files.write_shard = write_one
main(sys.argv[1:])
"""


def schema_of(fingerprint: str) -> Any:
    """All of a schema that decides."""
    return SimpleNamespace(fingerprint=fingerprint)


def test_a_hash_of_all_that_decides():
    digests, lengths = np.arange(32, dtype=np.uint8).reshape(2, 16), np.array([3, 4])
    ids, places = np.array([7, 8, 9], np.uint16), np.array([0, 1, 3])

    def of(fingerprint="abc", name="train-0", copies=(1, 1), **change):
        given = {"digests": digests, "lengths": lengths, "ids": ids, "places": places} | change
        ragged = {"ids": Ragged(given["ids"], given["places"])}
        scalars = {COPIES: np.array(copies, np.uint32)}
        block = ExampleBatch.of(given["digests"], given["lengths"], ragged, scalars)
        return examples_hash(schema_of(fingerprint), name, block)

    assert of() == of() == of(copies=(1, 5))
    changed = [
        of(fingerprint="abd"),
        of(name="train-1"),
        of(digests=digests[::-1]),
        of(lengths=np.array([3, 5])),
        of(ids=ids[::-1]),
        of(places=np.array([0, 2, 3])),
        examples_hash(schema_of("abc"), "train-0", None),
    ]
    assert len({of(), *changed}) == 8
