"""A sample of what tests.stress.fuzz_readers does for an hour, and that it sees defects."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from pipelines.verify import main as verify
from schemas.errors import DataError
from schemas.manifest import file_sha256
from schemas.records import open_rows
from tests.tools.places import ROOT
from tests.tools.set_damage import BYTES, LEVELS, Damage, choose, damage, manifest_of, schema_of
from tests.tools.shard_factory import write_mlm_set
from trainers.reader import ShardSet

_PLANTED = """
import json, sys, time
from pathlib import Path
import tests.stress.fuzz_readers as fuzz
from schemas.errors import DataError

work, MORE = Path(sys.argv[1]), 300_000_000
(work / "set").mkdir()
fuzz.CPU_SECONDS, fuzz.SECONDS = 1, 3

def refuse(directory, output): raise DataError("no")
def fail(directory, output): raise KeyError("x")
def spin(directory, output):
    while True: pass
def sleep(directory, output): time.sleep(60)
def die(directory, output): import os; os.kill(os.getpid(), 11)
def fill(directory, output): return str(len(b"x" * MORE))
def ask_for_all(directory, output): return str(len(b"x" * 10**10))
def colour(directory, output): print("\\x1b[31mred")
def take(directory, output): return "rows"

readers = (refuse, fail, spin, sleep, die, fill, ask_for_all, colour, take)
print(json.dumps([fuzz.read_apart(r, work / "set", work).kind for r in readers]))
"""


def run(*words):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


def test_what_a_reader_does_wrong_is_seen(tmp_path):
    done = run("-c", _PLANTED, str(tmp_path))
    wrong = ["traceback", "hang", "hang", "died", "memory", "traceback", "control characters"]
    assert json.loads(done.stdout) == ["refused", *wrong, "accepted"], done.stderr


def test_a_sample_of_damaged_sets(tmp_path):
    done = run(
        "-m",
        "tests.stress.fuzz_readers",
        "--small",
        "--seed=7",
        "--trials=16",
        f"--findings={tmp_path / 'found'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ShardSet: " in done.stdout and " refused" in done.stdout


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    path = tmp_path_factory.mktemp("sets") / "set"
    both = ("array_record", "tfrecord")
    write_mlm_set(path, file_formats=both, shards={"train": 2, "validation": 1})
    return path


@pytest.fixture
def damaged(pristine, tmp_path):
    """Damages a shard; gives the directory and the file."""

    def make(way, level, name="train-00000-of-00002.tfrecord"):
        for seed in range(50):  # some change nothing
            directory = tmp_path / str(seed)
            if damage(pristine, directory, Damage(name, way, level), random.Random(seed)):
                return directory, name
        raise AssertionError(f"{way} changes nothing")

    return make


@pytest.mark.parametrize("way", sorted(BYTES.keys() - {"empty"}))  # no shard has rows and no bytes
def test_sums_are_made_right(damaged, way):
    directory, _ = damaged(way, "sums")
    for file in manifest_of(directory).files:
        path = directory / file.path
        assert (path.stat().st_size, file_sha256(str(path))) == (file.bytes, file.sha256)


@pytest.mark.parametrize("suffix", ["array_record", "tfrecord"])
def test_rows_change_under_hashes_that_are_right(pristine, damaged, suffix):
    directory, name = damaged("flip", "all", f"train-00000-of-00002.{suffix}")
    rows = []
    for folder in (pristine, directory):
        reader = open_rows(str(folder / name), schema_of(pristine).codec().stride)
        rows.append(np.array(reader.read_range(0, len(reader))))
        reader.close()
    assert 1 <= np.unpackbits(rows[0] ^ rows[1]).sum() <= 8


def test_rows_of_the_manifest_are_made_right(damaged):
    directory, name = damaged("repeat row", "all")
    assert {f.path: f.rows for f in manifest_of(directory).files}[name] == 21


@pytest.mark.parametrize("way", ["flip", "swap chunks", "copy over", "pipe", "link to device"])
def test_published_bytes_are_held_against_their_sums(damaged, way):
    directory, name = damaged(way, "as is")
    with pytest.raises(DataError, match=name):
        verify([str(directory)])
    with pytest.raises(DataError, match=name):
        ShardSet(str(directory), file_format="tfrecord")


def test_all_files_and_levels_are_chosen(pristine):
    found = [choose(pristine, random.Random(seed)) for seed in range(200)]
    assert {done.level for done in found} == set(LEVELS)
    files = {file.path for file in manifest_of(pristine).files}
    assert {done.file for done in found} == files | {"MANIFEST.json"}
    assert {done.kind for done in found} >= {"shard.tfrecord", "shard.array_record", "stats.json"}
