"""Small samples of the fuzz tests, and that their findings are seen."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.places import ROOT
from tests.tools.shard_factory import write_mlm_set

pytestmark = pytest.mark.slow

_PLANTED = """
import json, os, sys, time
from pathlib import Path
import tests.stress.fuzz_sets as fuzz
from textmill.schemas.errors import DataError

def refuse(directory, output): raise DataError("no")
def fail(directory, output): raise KeyError("x")
def spin(directory, output):
    while True: pass
def sleep(directory, output): time.sleep(60)
def die(directory, output): os.kill(os.getpid(), 11)
def fill(directory, output): return str(len(b"x" * 300_000_000))
def ask_for_all(directory, output): return str(len(b"x" * 10**10))
def colour(directory, output): print("\\x1b[31mred")
def take(directory, output): return "rows"

limits = fuzz.Limits(cpu_seconds=1, seconds=3)
fuzz.Limits = lambda **more: limits
readers = (refuse, fail, spin, sleep, die, fill, ask_for_all, colour, take)
fuzz.READERS.update({reader.__name__: reader for reader in readers})
work = Path(sys.argv[1])
(work / "set").mkdir()
names = [reader.__name__ for reader in readers]
print(json.dumps({name: fuzz.read_apart(name, work / "set", work).kind for name in names}))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it forks, which a process with threads should not."""
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


def test_a_sample_of_changed_corpora():
    done = run("-m", "tests.stress.fuzz_corpora", "--trials=100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'found': " in done.stdout.splitlines()[-1]


def test_each_way_to_fail_is_seen(tmp_path: Path):
    done = run("-c", _PLANTED, str(tmp_path))
    assert json.loads(done.stdout) == {
        "refuse": "refused",
        "fail": "traceback",
        "spin": "hang",
        "sleep": "hang",
        "die": "died",
        "fill": "memory",
        "ask_for_all": "memory",
        "colour": "control characters",
        "take": "accepted",
    }, done.stderr


@pytest.mark.parametrize("damage", ["bytes", "fields"])
def test_no_damaged_set_is_taken_for_another(tmp_path: Path, damage: str):
    write_mlm_set(tmp_path / "mlm", file_formats=("array_record", "tfrecord"))
    write_clm_set(tmp_path / "clm", encoding="int64_list")
    sets = ["--sets", str(tmp_path / "mlm"), str(tmp_path / "clm")]
    flags = [f"--damage={damage}", "--seed=7", "--trials=16"]
    done = run("-m", "tests.stress.fuzz_sets", *flags, *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ShardSet: " in done.stdout and " refused" in done.stdout


def test_no_changed_tokenizer_is_taken_for_another():
    flags = ["--minutes=3", "--mutants=20", "--seed=7"]
    done = run("-m", "tests.stress.fuzz_tokenizers", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 mutants" in done.stdout
