"""Checkpoints: atomic, bit for bit, kept and chosen as requested; a damaged one is never used."""

import json
import math
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.run.checkpoint_files import read_checkpoint, read_weights
from textmill.trainers.run.checkpoints import Checkpoints, newest_whole, numbered
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.progress import Progress
from textmill.trainers.run.tensors import Tensor, to_tensors

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
    checkpoints.begin(progress, (to_tensors(weights), to_tensors(state))).finish()
    checkpoints.keep_newest(progress, progress.best_step)


def save_best(checkpoints: Checkpoints, step: int, size: int = 3) -> None:
    progress = Progress(step, best_step=step)
    best = to_tensors(weights_of(step, size)), {}
    checkpoints.begin(progress, best, is_best=True).finish()
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


def test_what_goes_in_comes_out(tmp_path):
    """To the bit, by safetensors itself, too; sha256sum accepts the sums."""
    checkpoints, path = Checkpoints(tmp_path), tmp_path / "checkpoints" / "500"
    assert (checkpoints.steps, checkpoints.latest, checkpoints.best) == ([], 0, None)
    progress = Progress(500, best=0.75, best_step=480, without_better=1, evaluated=500)
    write(checkpoints, progress, ODD, ODD)
    assert (checkpoints.steps, checkpoints.latest, checkpoints.best) == ([500], 500, None)
    assert names_in(path) == FILES
    modes = {file.stat().st_mode & 0o777 for file in path.iterdir()}
    assert len(modes) == 1, "who may read one of them may read all"
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=path, check=True)
    assert json.loads((path / "progress.json").read_text()) == asdict(progress)
    stored = checkpoints.read(500)
    assert stored.progress == progress
    same_bits(stored.weights, ODD)
    same_bits(stored.state, ODD)
    same_bits(read_weights(path), ODD)
    content = (path / "state.safetensors").read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0, "so tensors are aligned"
    same_bits(load(content), {f"{kind}/{n}": ODD[n] for kind in ("weights", "state") for n in ODD})


def test_the_newest_are_kept(tmp_path):
    """Names that are not steps are left alone."""
    others = ["-1", "3.damaged", "notes"]
    for name in others:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    checkpoints = Checkpoints(tmp_path, keep=2)
    kept = []
    for step in (5, 10, 100, 105):
        save(checkpoints, step)
        kept.append(checkpoints.steps)
    assert kept == [[5], [5, 10], [10, 100], [100, 105]]
    checkpoints.prepare(pytest.fail)
    assert names_in(tmp_path / "checkpoints") == sorted([*others, "100", "105"])


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


def evaluation(step: int, **metrics: float) -> dict[str, Any]:
    return {"kind": "evaluation", "step": step, **metrics}


BY_F1, BY_LOSS, BY_NOTHING = "f1", "loss", None


def test_the_best_by_hand():
    progress = Progress()
    found = [0.5, math.nan, 0.5, 0.75, 0.6]
    better = [progress.count(n, evaluation(n, f1=f1), BY_F1) for n, f1 in enumerate(found, 1)]
    assert better == [True, False, True, True, False]  # of ties the later one
    assert progress == Progress(0, best=0.75, best_step=4, without_better=1, evaluated=5)
    assert not progress.count(6, {}, BY_F1), "a measure that the split does not define"
    assert not progress.count(7, {"f1": math.inf}, BY_F1)
    lowest = Progress()
    losses = [2.0, 3.0, 1.0]
    better = [lowest.count(n, evaluation(n, loss=x), BY_LOSS) for n, x in enumerate(losses, 1)]
    assert better == [True, False, True]
    assert (lowest.best, lowest.best_step) == (1.0, 3)
    none = Progress()
    assert not none.count(4, evaluation(4, loss=1.0), BY_NOTHING)
    assert none == Progress(evaluated=4)


def test_ties_are_broken_by_the_loss_then_by_the_step():
    """A lower loss is an improvement for --patience, a later step is none."""
    progress, found = Progress(), []
    for step, (f1, loss) in enumerate([(0.0, 3.0), (0.0, 2.0), (0.0, 2.5), (0.0, 2.0)], 1):
        progress.count(step, evaluation(step, f1=f1, loss=loss), BY_F1)
        found.append((progress.best_step, progress.best_loss, progress.without_better))
    assert found == [(1, 3.0, 0), (2, 2.0, 0), (2, 2.0, 1), (4, 2.0, 2)]
    lowest = Progress()
    kept = [lowest.count(step, evaluation(step, loss=1.0), BY_LOSS) for step in (1, 2)]
    assert kept == [True, True] and (lowest.best_step, lowest.without_better) == (2, 1)
    older = Progress(1, best=0.5, best_step=1)  # of a version that kept no loss
    assert older.count(2, evaluation(2, f1=0.5, loss=9.0), BY_F1) and older.best_loss == 9.0
    with pytest.raises(ValueError, match="best_loss is 'a', and must be a number or null"):
        Progress(best_loss="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("evaluated", [4, 8])
def test_what_was_made_up_after_a_checkpoint_counts_once(evaluated):
    """That of step 8 was interrupted, and made up by a run that was killed before step 12."""
    progress = Progress(step=8)
    progress.count(4, evaluation(4, f1=0.5), BY_F1)
    if evaluated == 8:
        progress.count(8, evaluation(8, f1=0.25), BY_F1)
    trained = {"kind": "train", "step": 8, "loss": 1.0, "f1": 9.0}
    again = [evaluation(step, f1=f1) for step, f1 in ((4, 0.5), (8, 0.25), (12, 0.9))]
    progress.update([*again, trained], BY_F1)
    assert progress == Progress(8, best=0.5, best_step=4, without_better=1, evaluated=8)


def test_of_best_weights_that_were_removed_the_next_take_the_place(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    progress = Progress(4, best=1.5, best_step=4, without_better=1)
    save_best(checkpoints, 4)
    assert checkpoints.forget_lost_best(progress) is None and progress.best == 1.5
    shutil.rmtree(tmp_path / "best" / "4")
    said = checkpoints.forget_lost_best(progress) or ""
    assert said.startswith(f"{tmp_path}/best lacks the best weights, those of step 4: ")
    assert progress.count(6, {"loss": 2.0}, BY_LOSS) and progress.best_step == 6
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


def test_what_is_not_there_is_refused_with_what_is(kept, tmp_path):
    for which in ("9", "-1", "newest", "²"):
        with pytest.raises(UsageError) as refused:
            kept.choose(which)
        assert str(refused.value) == (
            f"{tmp_path} has no checkpoint {which!r}: its steps are 8, 10, the best is 4"
        )
    for which in ("best", "last", "all", "5", None):
        with pytest.raises(UsageError) as refused:
            Checkpoints(tmp_path / "none").choose(which)
        assert str(refused.value) == (
            f"{tmp_path}/none has no checkpoint yet: a run writes one every --checkpoint_every "
            "steps, and when it ends or is interrupted"
        )


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


CHANGED, BROKEN = "has changed: its sha256 is not the one in SHA256SUMS", "is broken"
BROKEN_SUMS = (b"", b"abc  progress.json\n", b"0" * 64 + b"  progress.json\n", b"\0" * 80)
DAMAGES: list[tuple[str, Callable[[Path], Any], str]] = [
    *((name, Path.unlink, "is missing") for name in FILES),
    *((name, flip_a_bit, CHANGED) for name in FILES[1:]),
    ("state.safetensors", partial(os.truncate, length=7), CHANGED),
    *(("SHA256SUMS", partial(Path.write_bytes, data=sums), BROKEN) for sums in BROKEN_SUMS),
    # A sparse file of 12 GB was read whole.
    ("SHA256SUMS", partial(os.truncate, length=1 << 40), BROKEN),
]


@pytest.mark.parametrize(("name", "damage", "said"), DAMAGES)
def test_a_damaged_one_is_named_and_set_aside(kept, tmp_path, name, damage, said):
    newest = tmp_path / "checkpoints" / "10"
    damage(newest / name)
    for which in ("last", "10", "all"):
        with pytest.raises(DataError) as refused:
            kept.choose(which)
        assert str(refused.value) == (
            f"the checkpoint {newest} is damaged: {newest / name} {said}. "
            "Give another --checkpoint: 4, 8"
        )
    assert chosen(tmp_path, "8") == ["checkpoints/8"]
    told: list[str] = []
    for _ in range(2):  # the second one replaces the first that stepped aside
        kept.prepare(told.append)
        assert names_in(tmp_path / "checkpoints") == ["10.damaged", "8"]
        assert chosen(tmp_path, "last") == ["checkpoints/8"]
        shutil.copytree(tmp_path / "checkpoints" / "8", newest)
        damage(newest / name)
    line, _ = told
    assert f"note: the checkpoint after step 10 is damaged: {newest / name} {said}." in line
    assert f"It is kept as {newest}.damaged; the run resumes after step 8" in line


def test_without_a_whole_one_nothing_is_renamed(kept, tmp_path):
    shutil.rmtree(tmp_path / "best")
    for step in ("8", "10"):
        (tmp_path / "checkpoints" / step / "state.safetensors").unlink()
    with pytest.raises(DataError, match="all checkpoints are damaged: .*10/state.safetensors is"):
        kept.prepare(pytest.fail)
    assert names_in(tmp_path / "checkpoints") == ["10", "8"]
    shutil.rmtree(tmp_path / "checkpoints" / "10")
    with pytest.raises(DataError, match="Give another --checkpoint: there are none"):
        kept.choose(None)


@pytest.mark.parametrize("name", ["state.safetensors", "SHA256SUMS"])
def test_a_checkpoint_that_cannot_be_read_is_not_called_damaged(kept, tmp_path, name):
    """A disk that fails for a moment, or rights: it is not a reason to do steps again."""
    file = tmp_path / "checkpoints" / "10" / name
    file.unlink()
    file.symlink_to("/proc/self/mem")  # its first byte cannot be read
    with pytest.raises((DataError, OSError), match="Input/output error"):
        kept.prepare(pytest.fail)
    assert kept.steps == [8, 10]


def test_a_checkpoint_is_whole_with_the_best_weights_up_to_its_step(kept, tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "8" / ".nfs0001").touch()  # what a file system leaves is not damage
    best = {step: tmp_path / "others" / str(step) for step in (1, 9, 11)}
    for path in best.values():
        shutil.copytree(folder / "8", path)
    flip_a_bit(best[11] / "state.safetensors")  # newer than all: a resumed run makes it again
    assert newest_whole(numbered(folder), pytest.fail, best) == 10
    for step in (1, 9):
        flip_a_bit(best[step] / "state.safetensors")
    with pytest.raises(DataError, match="all checkpoints are damaged: .*others/1/state") as refused:
        newest_whole(numbered(folder), pytest.fail, best)
    assert f"from a backup, remove {best[1]} to resume without it, or" in str(refused.value)
    shutil.rmtree(best.pop(1))
    told: list[str] = []
    assert newest_whole(numbered(folder), told.append, best) == 8
    [line] = told
    assert f"after step 10 is damaged: {best[9] / 'state.safetensors'} has changed" in line
    assert newest_whole({}, told.append, {}) is None


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
def test_broken_progress_is_refused_in_words(kept, tmp_path, content):
    path = tmp_path / "checkpoints" / "8"
    (path / "progress.json").write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{BROKEN_PROGRESS[content]}.*Move it away"):
        kept.read(8)


@pytest.mark.parametrize("length", [0, 7, 100])
def test_tensors_that_are_cut_are_refused_in_words(kept, tmp_path, length):
    os.truncate(tmp_path / "checkpoints" / "8" / "state.safetensors", length)
    with pytest.raises(DataError, match="8 cannot be read: "):
        kept.read(8)


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
    writer = checkpoints.begin(Progress(4), (steps.tensors, {}), processes, steps=6)
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
    writer = Checkpoints(tmp_path).begin(Progress(4), (steps.tensors, {}), processes, steps=6)
    writer.advance()
    threading.Timer(0.2, steps.gate.set).start()
    writer.abandon()
    assert names_in(tmp_path / "checkpoints") == []


def test_a_failure_to_write_is_raised_after_the_next_step(tmp_path):
    """A file is where the directory of checkpoints should be."""
    (tmp_path / "checkpoints").write_text("")
    steps = Steps(2)
    steps.gate.set()
    writer = Checkpoints(tmp_path).begin(Progress(4), (steps.tensors, {}), Two(), steps=1)
    with pytest.raises(DataError, match="the checkpoint after step 4 cannot be written"):
        while True:
            writer.advance()
