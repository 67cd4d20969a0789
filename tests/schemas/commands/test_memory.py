"""Short memory is a clear error: the request that failed, and what to do."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from pipelines.tasks.mlm import Mlm
from schemas.commands.entry import shortage_of
from schemas.errors import DataError, UsageError
from tests.tools.places import ROOT
from tests.tools.shard_factory import write_mlm_set


def raised(act) -> BaseException:
    with pytest.raises(Exception) as caught:
        act()
    return caught.value


WITH_CAUSE = UsageError("the package a is not installed")
WITH_CAUSE.__cause__ = ImportError("a.so: failed to map segment from shared object")
SHORT = {
    "Python": (raised(lambda: bytes(1 << 60)), "MemoryError"),
    "numpy": (
        raised(lambda: np.ones((1 << 24, 1 << 24))),
        "MemoryError: Unable to allocate 2.00 PiB",
    ),
    "pyarrow": (raised(lambda: pa.allocate_buffer(1 << 60)), "MemoryError: malloc of size"),
    "its cause": (WITH_CAUSE, "ImportError: a.so: failed to map segment"),
    "threads": (RuntimeError("can't start new thread"), "RuntimeError: can't start new"),
    "the system": (OSError(12, "Cannot allocate memory", "a"), "OSError: [Errno 12] Cannot"),
    "JAX": (
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes."),
        "RuntimeError: RESOURCE_E",
    ),
    "a worker": (RuntimeError("Traceback ...\n  x = y\nMemoryError\n"), "MemoryError"),
}


@pytest.mark.parametrize(("error", "said"), SHORT.values(), ids=SHORT)
def test_a_shortage_is_known(error, said):
    found = shortage_of(error)
    assert isinstance(found, DataError)
    assert str(found).startswith(f"memory is short ({said}")
    assert "fewer workers" in str(found)


def test_other_errors_are_none():
    own_cause = ValueError("x")
    own_cause.__cause__ = own_cause
    others = ZeroDivisionError("x"), OSError(13, "Permission denied"), DataError("a is cut")
    assert [*map(shortage_of, (*others, own_cause))] == [None] * 4


@pytest.mark.parametrize("copies", [0, 1001, 10**9])
def test_masked_copies_that_no_memory_holds_are_refused(copies):
    with pytest.raises(UsageError, match=rf"--mask_copies={copies}: must be from 1 to 1,000"):
        Mlm(mask_copies=copies)


BUILD = [
    "pipelines.build_shards",
    "--input={d}/in.txt",
    "--document=line",
    "--tokenizer={t}",
    "--output={d}/out",
]
TRAIN = [
    "pipelines.train_tokenizer",
    "--input={d}/in.txt",
    "--document=line",
    "--vocab_size=300",
    "--output={d}/out",
]
THREADS = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]


@pytest.mark.parametrize(
    ("megabytes", "command", "said"),
    [
        (600, BUILD, "build_shards needs at least 2.4 GB of addresses, and `ulimit -v` allows 0.6"),
        (600, [*BUILD, *THREADS], "build_shards needs at least 2.4 GB"),
        (2800, [*BUILD, *THREADS], "a run in threads or processes needs at least 3.2 GB"),
        (1800, [*TRAIN, *THREADS], "train_tokenizer needs at least 2 GB"),
        (1000, ["trainers.flax_mlm", "--shards={d}/set"], "JAX needs at least 3.2 GB"),
    ],
)
def test_too_few_addresses_are_seen_beforehand(megabytes, command, said, tokenizer_path, tmp_path):
    """Else libraries abort the process, or wait for threads that never came."""
    (tmp_path / "in.txt").write_text("a document\n" * 9)
    write_mlm_set(tmp_path / "set")
    argv = [word.format(d=tmp_path, t=tokenizer_path) for word in command]
    limited = ["sh", "-c", f'ulimit -v {megabytes}000; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, sys.executable, "-m", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {said}") and last.endswith(
        "(`ulimit -v unlimited`) and run again"
    )
    assert "Traceback" not in done.stderr
