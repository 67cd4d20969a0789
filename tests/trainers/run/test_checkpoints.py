"""Checkpoints: atomic, bit for bit, kept and chosen as requested."""

import json
import shutil
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from schemas.errors import DataError, UsageError
from trainers.run.checkpoints import (
    Checkpoints,
    Progress,
    numbered,
    read_checkpoint,
    read_weights,
)
from trainers.run.program import Processes, Tensor, to_tensors

FILES = ["SHA256SUMS", "progress.json", "state.safetensors"]


def weights_of(step: int, size: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(step)
    return {
        "layers.0.qkv.weight": random.standard_normal((12, 4)).astype(np.float32),
        "head.bias": np.full(size, step, np.float32),
    }


def state_of(step: int) -> dict[str, np.ndarray]:
    return {"count": np.int64(step), "momentum/head.bias": np.full(3, -step, np.float32)}  # type: ignore


def save(checkpoints: Checkpoints, step: int, best_step: int | None = None, size: int = 3) -> None:
    progress = Progress(step, best_step=best_step)
    write(checkpoints, progress, weights_of(step, size), state_of(step))


def write(checkpoints: Checkpoints, progress: Progress, weights: Any, state: Any) -> None:
    checkpoints.begin(progress, to_tensors(weights), to_tensors(state)).finish()
    checkpoints.keep_newest(progress, progress.best_step)


def save_best(checkpoints: Checkpoints, step: int, size: int = 3) -> None:
    progress = Progress(step, best_step=step)
    checkpoints.begin(progress, to_tensors(weights_of(step, size)), {}, is_best=True).finish()
    checkpoints.keep_best(progress)


def same_bits(found, due) -> None:
    assert set(found) == set(due)
    for name, value in due.items():
        value = np.asarray(value)
        assert found[name].dtype == value.dtype.newbyteorder("="), name
        assert found[name].shape == value.shape, name
        assert found[name].tobytes() == value.astype(value.dtype.newbyteorder("=")).tobytes(), name


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_goes_in_comes_out(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert (checkpoints.steps, checkpoints.latest, checkpoints.best) == ([], 0, None)
    progress = Progress(500, best=0.75, best_step=480, without_better=1, evaluated=500)
    write(checkpoints, progress, weights_of(500), state_of(500))
    assert (checkpoints.steps, checkpoints.latest, checkpoints.best) == ([500], 500, None)
    assert names_in(tmp_path / "checkpoints" / "500") == FILES
    modes = {(path.stat().st_mode & 0o777) for path in (tmp_path / "checkpoints" / "500").iterdir()}
    assert len(modes) == 1, "who may read one of them may read all"
    stored = checkpoints.read(500)
    assert stored.progress == progress
    text = (tmp_path / "checkpoints" / "500" / "progress.json").read_text()
    assert json.loads(text) == asdict(progress)
    same_bits(stored.weights, weights_of(500))
    same_bits(stored.state, state_of(500))
    same_bits(read_weights(tmp_path / "checkpoints" / "500"), weights_of(500))


NANS = np.array([0x7FC00001, 0xFFC00000, 0x80000000, 1], np.uint32).view(np.float32)
ODD = {
    "a number": np.float32(1.5),
    "a 0-d array": np.array(7, np.int64),
    "uint32": np.array([0, 2**32 - 1], np.uint32),
    "a transpose": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "every other": np.arange(10, dtype=np.float32)[::2],
    "backwards": np.arange(5, dtype=np.int32)[::-1],
    "Fortran's order": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "repeated by strides": np.broadcast_to(np.float32(3), (2, 5)),
    "empty": np.zeros((0, 3), np.float32),
    "signs, NaNs, denormals": NANS,
    "the other byte order": np.arange(3, dtype=">f4"),
    "bool": np.array([True, False]),
    "half": np.array([1.0, 65504.0], np.float16),
    "a/name.with/both": np.zeros(1, np.float32),
}


def test_odd_arrays_come_back_bitwise(tmp_path):
    """By safetensors itself, too."""
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, Progress(1), ODD, ODD)
    stored = checkpoints.read(1)
    same_bits(stored.weights, ODD)
    same_bits(stored.state, ODD)
    content = (tmp_path / "checkpoints" / "1" / "state.safetensors").read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0, "so tensors are aligned"
    same_bits(load(content), {f"{kind}/{n}": ODD[n] for kind in ("weights", "state") for n in ODD})


def test_the_newest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    kept = []
    for step in (5, 10, 100, 105):
        save(checkpoints, step)
        kept.append(checkpoints.steps)
    assert kept == [[5], [5, 10], [10, 100], [100, 105]]


def test_a_best_is_kept_until_a_checkpoint_knows_the_newer(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save_best(checkpoints, 2)
    save(checkpoints, 3, best_step=2)
    save_best(checkpoints, 4)
    assert names_in(tmp_path / "best") == ["2", "4"], "a run that is killed now resumes from 3"
    assert checkpoints.best == 4
    assert names_in(tmp_path / "best" / "4") == FILES
    assert read_checkpoint(tmp_path / "best" / "4").state is None
    same_bits(read_weights(tmp_path / "best" / "4"), weights_of(4))
    checkpoints.keep_newest(Progress(3), 2)  # as that does
    assert names_in(tmp_path / "best") == ["2"]
    save_best(checkpoints, 4)
    save_best(checkpoints, 5)
    assert names_in(tmp_path / "best") == ["2", "5"], "nothing resumes from 4"
    save_best(checkpoints, 4)
    save(checkpoints, 6, best_step=4)
    assert names_in(tmp_path / "best") == ["4"]
    save(checkpoints, 8, best_step=4)
    assert (checkpoints.best, checkpoints.steps) == (4, [8])


def test_of_best_weights_that_were_removed_the_next_take_the_place(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    task: Any = SimpleNamespace(best_by="loss")
    progress = Progress(4, best=1.5, best_step=4, without_better=1)
    save_best(checkpoints, 4)
    assert checkpoints.forget_lost_best(progress) is None and progress.best == 1.5
    shutil.rmtree(tmp_path / "best" / "4")
    said = checkpoints.forget_lost_best(progress) or ""
    assert said.startswith(f"{tmp_path}/best lacks the best weights, those of step 4: ")
    assert progress.count(6, {"loss": 2.0}, task) and progress.best_step == 6
    assert checkpoints.forget_lost_best(Progress(4)) is None


@pytest.fixture
def kept(tmp_path) -> Checkpoints:
    """The checkpoints after steps 8 and 10, and the best weights, those of step 4."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (8, 10):
        save(checkpoints, step)
    save_best(checkpoints, 4)
    return checkpoints


def chosen(tmp_path: Path, which: str | None) -> list[str]:
    paths = Checkpoints(tmp_path).choose(which)
    return ["/".join(path.parts[-2:]) for path in paths]


def test_choices(kept, tmp_path):
    assert chosen(tmp_path, None) == chosen(tmp_path, "best") == ["best/4"]
    assert chosen(tmp_path, "last") == ["checkpoints/10"]
    assert chosen(tmp_path, "8") == ["checkpoints/8"]
    assert chosen(tmp_path, "4") == ["best/4"]
    assert chosen(tmp_path, "all") == ["best/4", "checkpoints/8", "checkpoints/10"]
    save_best(kept, 10)
    assert chosen(tmp_path, "all") == ["checkpoints/8", "checkpoints/10"]
    shutil.rmtree(tmp_path / "best")
    assert chosen(tmp_path, None) == chosen(tmp_path, "best") == ["checkpoints/10"]


@pytest.mark.parametrize("which", ["9", "-1", "newest", "²"])
def test_what_is_not_there_is_refused_with_what_is(kept, tmp_path, which):
    with pytest.raises(UsageError) as refused:
        kept.choose(which)
    assert str(refused.value) == (
        f"{tmp_path} has no checkpoint {which!r}: its steps are 8, 10, the best is 4"
    )


@pytest.mark.parametrize("which", ["best", "last", "all", "5", None])
def test_of_none_there_is_none_to_choose(tmp_path, which):
    with pytest.raises(UsageError) as refused:
        Checkpoints(tmp_path).choose(which)
    assert str(refused.value) == (
        f"{tmp_path} has no checkpoint yet: a run writes one every --checkpoint_every "
        "steps, and when it ends or is interrupted"
    )


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_one_is_named_with_what_else_to_give(kept, tmp_path, name):
    flip_a_bit(tmp_path / "checkpoints" / "10" / name)
    for which in ("last", "10", "all"):
        with pytest.raises(DataError) as refused:
            kept.choose(which)
        said = str(refused.value)
        assert said.startswith(f"the checkpoint {tmp_path}/checkpoints/10 is damaged: ")
        assert name in said and said.endswith(". Give another --checkpoint: 4, 8")
    assert chosen(tmp_path, "8") == ["checkpoints/8"]
    said = []
    kept.prepare(said.append)
    assert kept.steps == [8] and "10 is damaged" in said[0]
    assert names_in(tmp_path / "checkpoints") == ["10.damaged", "8"]
    assert chosen(tmp_path, "last") == ["checkpoints/8"]


def test_the_only_one_is_damaged(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 8)
    flip_a_bit(tmp_path / "checkpoints" / "8" / "SHA256SUMS")
    with pytest.raises(DataError, match="Give another --checkpoint: there are none"):
        checkpoints.choose(None)


BROKEN_PROGRESS = {
    **dict.fromkeys((b"", b"{", b"[]", b"\xff", b"[" * 100_000), "cannot be read: "),
    **dict.fromkeys((b'{"step": 8, "new": 1}', b'{"stop": 8}'), "cannot be read: "),
    **dict.fromkeys((b'{"step": -8}', b'{"step": 8.0}', b'{"step": true}'), "step is "),
    b'{"step": 8, "best": "x"}': "best is 'x'",
    b'{"step": 8, "best": NaN}': "cannot be read: ",
    b'{"step": 8, "best_step": -1}': "best_step is -1",
    b'{"step": 8}' + b" " * 65536: "cannot be read: ",
    b'{"step": 7}': "progress.json: step is 7 instead of 8",
    b"{}": "progress.json: step is 0 instead of 8",
}


@pytest.mark.parametrize("content", BROKEN_PROGRESS, ids=lambda content: repr(content[:40]))
def test_broken_progress_is_refused_in_words(tmp_path, content):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 8)
    path = tmp_path / "checkpoints" / "8"
    (path / "progress.json").write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{BROKEN_PROGRESS[content]}.*Move it away"):
        checkpoints.read(8)


@pytest.mark.parametrize("cut", [0, 7, 100])
def test_tensors_that_are_cut_are_refused_in_words(tmp_path, cut):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 8)
    path = tmp_path / "checkpoints" / "8" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="8 cannot be read: "):
        checkpoints.read(8)


def test_names_that_are_no_steps_are_left_alone(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 2)
    for name in ("notes", "3.damaged", "-1"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert list(numbered(tmp_path / "checkpoints")) == [2]
    checkpoints.prepare(pytest.fail)
    assert names_in(tmp_path / "checkpoints") == ["-1", "2", "3.damaged", "notes"]


class Steps:
    """Tensors that count fetches; `gate` holds the thread that writes them."""

    def __init__(self, count: int):
        self.fetched, self.gate = 0, threading.Event()
        self.tensors = {
            f"w{number}": Tensor((1000,), np.dtype(np.float32), partial(self.fetch, number))
            for number in range(count)
        }

    def fetch(self, number: int):
        self.fetched += 1

        def read() -> np.ndarray:
            self.gate.wait()
            return np.full(1000, number, np.float32)

        return read


class Two(Processes):
    """The first of two processes, as a writer sees it."""

    count = 2


@pytest.mark.parametrize("processes", [Processes(), Two()])
def test_a_checkpoint_is_written_while_the_next_steps_run(processes, tmp_path):
    steps, checkpoints = Steps(12), Checkpoints(tmp_path)
    writer = checkpoints.begin(Progress(4), steps.tensors, {}, processes, steps=6)
    assert not writer.advance() and checkpoints.steps == []
    if processes.count == 2:
        assert steps.fetched == 2, "as many after each step, whatever the disk does"
    steps.gate.set()
    writer.finish()
    assert writer.advance() and steps.fetched == 12
    assert names_in(tmp_path / "checkpoints" / "4") == FILES
    stored = checkpoints.read(4)
    same_bits(stored.weights, {f"w{n}": np.full(1000, n, np.float32) for n in range(12)})


@pytest.mark.parametrize("processes", [Processes(), Two()])
def test_an_abandoned_checkpoint_leaves_nothing(processes, tmp_path):
    steps = Steps(12)
    writer = Checkpoints(tmp_path).begin(Progress(4), steps.tensors, {}, processes, steps=6)
    writer.advance()
    threading.Timer(0.2, steps.gate.set).start()
    writer.abandon()
    assert names_in(tmp_path / "checkpoints") == []


def test_a_failure_to_write_is_raised_after_the_next_step(tmp_path):
    """A file is where the directory of checkpoints should be."""
    (tmp_path / "checkpoints").write_text("")
    steps = Steps(2)
    steps.gate.set()
    writer = Checkpoints(tmp_path).begin(Progress(4), steps.tensors, {}, Two(), steps=1)
    with pytest.raises(DataError, match="the checkpoint after step 4 cannot be written"):
        while True:
            writer.advance()
