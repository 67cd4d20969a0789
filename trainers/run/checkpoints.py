"""Checkpoints of a run, the same for all frameworks; each is written atomically.

    OUTPUT/checkpoints/500/state.safetensors   weights/NAME and state/NAME after step 500
    OUTPUT/checkpoints/500/progress.json       steps, the best evaluation so far
    OUTPUT/checkpoints/500/SHA256SUMS          checksums of both; a damaged checkpoint is not used
    OUTPUT/best/480                            the same without the optimizer's state

A checkpoint is written to a directory that ends in .partial, which is then renamed: a run killed
meanwhile resumes from the checkpoint before. safetensors cannot run code, unlike pickle.
"""

import hashlib
import json
import math
import os
import queue
import re
import shutil
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

import numpy as np
from safetensors import SafetensorError, safe_open

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.typed_json import parse_json, read_bounded
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import shapes
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.program import Arrays, Tensor, Tensors, TrainingTask, first_difference
from textmill.trainers.run.run_directory import CHECKPOINTS


@dataclass
class Progress:
    """The part of a checkpoint that is neither weights nor optimizer."""

    step: int = 0  # steps done
    best: Optional[float] = None  # best value of --best_by
    best_step: Optional[int] = None  # its step
    without_better: int = 0  # evaluations since then that brought no improvement
    best_loss: Optional[float] = None  # the loss of that evaluation; older runs have none
    evaluated: int = 0  # the step of the last evaluation

    def __post_init__(self) -> None:
        """Refuses impossible values with a ValueError."""
        for name in ("step", "best_step", "without_better", "evaluated"):
            count = getattr(self, name)
            if (type(count) is not int or count < 0) and (name, count) != ("best_step", None):
                raise ValueError(f"{name} is {count!r:.50}, and must be a number from 0")
        for name in ("best", "best_loss"):
            value = getattr(self, name)
            if value is not None and type(value) not in (int, float):
                raise ValueError(f"{name} is {value!r:.50}, and must be a number or null")

    def update(self, metrics: Iterable[Mapping[str, Any]], task: TrainingTask) -> None:
        """Counts the evaluations in metrics.jsonl since that of the checkpoint.

        A signal during an evaluation leaves a checkpoint without it. The resumed run repeats the
        evaluation and records it in metrics.jsonl only.
        """
        for line in metrics:
            is_new = self.evaluated < line["step"] <= self.step
            if line["kind"] == "evaluation" and is_new:
                self.count(line["step"], line, task)

    def count(self, step: int, metrics: Mapping[str, Any], task: TrainingTask) -> bool:
        """Counts an evaluation; returns whether it is the best so far.

        The lowest loss is best, and the highest value of other metrics. If values are equal, the
        lower loss is better. If losses are equal, too, the later step is kept, which is no
        improvement for --patience. NaN and a metric that the split does not define (AUC with one
        class) are never better.
        """
        self.evaluated = step
        if task.best_by is None:
            return False
        value, sign = metrics.get(task.best_by, math.nan), -1 if task.best_by == "loss" else 1
        loss = metrics.get("loss", math.nan)
        found = _rank(sign, value, loss)
        before = None if self.best is None else _rank(sign, self.best, self.best_loss)
        is_better = math.isfinite(value) and (before is None or found > before)
        self.without_better = 0 if is_better else self.without_better + 1
        if not is_better and found != before:
            return False
        self.best, self.best_step = value, step
        self.best_loss = loss if math.isfinite(loss) else None
        return True


def _rank(sign: int, value: float, loss: Optional[float]) -> Tuple[float, float]:
    """Sorts evaluations by a metric, then by falling loss; an unknown loss is the highest."""
    return sign * value, -loss if loss is not None and math.isfinite(loss) else -sys.float_info.max


ALL, BEST, LAST = "all", "best", "last"  # values of --checkpoint
STATE, PROGRESS, SUMS = "state.safetensors", "progress.json", "SHA256SUMS"
PARTIAL, DAMAGED = ".partial", ".damaged"
_WEIGHTS, _STATE = "weights/", "state/"  # prefixes of tensors' names
_MOST_TEXT = 1 << 16  # bytes of progress.json, which has about 100
_SUM = rb"([0-9a-f]{64})  "
_SUMS = re.compile(_SUM + rb"progress\.json\n" + _SUM + rb"state\.safetensors\n")


class Stored(NamedTuple):
    """The content of a checkpoint."""

    progress: Progress
    weights: Arrays  # named as in `trainers.models.weights`
    state: Optional[Arrays]  # of the optimizer; None if only weights were kept


def numbered(directory: Path) -> Dict[int, Path]:
    """Steps to checkpoints in a directory: {500: OUTPUT/checkpoints/500}."""
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in sorted(directory.iterdir()) if path.name.isdecimal()}


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: Path, keep: int = 1):
        """Touches no file; `keep_newest` keeps `keep` checkpoints."""
        self.directory, self.best_directory = output / CHECKPOINTS, output / BEST
        self._keep = keep
        self.known_best: Optional[int] = None  # best step at the time of the newest checkpoint

    @property
    def steps(self) -> List[int]:
        """Steps of the finished checkpoints, ascending."""
        return sorted(numbered(self.directory))

    @property
    def latest(self) -> int:
        """The step of the newest finished checkpoint; 0 if there is none."""
        return max(self.steps, default=0)

    @property
    def best(self) -> Optional[int]:
        """The step of the best evaluation's weights."""
        return max(numbered(self.best_directory), default=None)

    def prepare(self, say: Any) -> None:
        """Removes partial checkpoints and renames damaged ones; raises as `newest_whole`."""
        for directory in (self.directory, self.best_directory):
            for path in directory.glob("*" + PARTIAL):
                shutil.rmtree(str(path))
        newest_whole(numbered(self.directory), say, numbered(self.best_directory))

    def begin(
        self,
        progress: Progress,
        weights: Tensors,
        state: Tensors,
        processes: Processes = ALONE,
        *,
        steps: int = 1,
        is_best: bool = False,
    ) -> "Writer":
        """Begins to write the checkpoint after `progress.step` steps, during the next `steps`."""
        path = self.directory / str(progress.step)
        if is_best:
            path = self.best_directory / str(progress.best_step)
        tensors = {_WEIGHTS + name: tensor for name, tensor in weights.items()}
        tensors.update({_STATE + name: tensor for name, tensor in state.items()})
        # The widest dtype first, so that each array starts at a multiple of its width.
        names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
        header = _header_of({name: tensors[name] for name in names})
        publish = partial(self._publish, path, json.dumps(asdict(progress)).encode(), header)
        return Writer([tensors[name] for name in names], publish, processes, steps)

    def keep_newest(self, progress: Progress, best_step: Optional[int]) -> None:
        """Removes the oldest checkpoints, and best weights but those of `progress` and the newest.

        `best_step` is that of the newest checkpoint: a killed run resumes there.
        """
        for step in self.steps[: -self._keep]:
            shutil.rmtree(str(self.directory / str(step)))
        self.known_best = best_step
        self.keep_best(progress)

    def keep_best(self, progress: Progress) -> None:
        """Removes all best weights but those of `progress` and of the newest checkpoint."""
        for step, path in numbered(self.best_directory).items():
            if step not in (progress.best_step, self.known_best):
                shutil.rmtree(str(path))

    def forget_lost_best(self, progress: Progress) -> Optional[str]:
        """Returns a note if the best weights were removed: then the next evaluation is best."""
        if progress.best_step is None or progress.best_step in numbered(self.best_directory):
            return None
        lost, progress.best, progress.best_step = progress.best_step, None, None
        progress.best_loss = None
        return (
            f"{self.best_directory} lacks the best weights, those of step {lost}: the best of the "
            "later evaluations replaces them"
        )

    def read(self, step: int, model: Optional[ModelConfig] = None) -> Stored:
        """The checkpoint after `step`; raises as `read_checkpoint`."""
        return read_checkpoint(self.directory / str(step), model)

    def choose(self, which: Optional[str]) -> List[Path]:
        """The checkpoints that --checkpoint names, ascending by step, with sums checked.

        `which` is best, last, a step's number or all; None is best if there is one, else last.

        Raises:
          UsageError: there is no such checkpoint.
          DataError: one is damaged.
          OSError: one cannot be read.
        """
        last, best = numbered(self.directory), numbered(self.best_directory)
        every = {**best, **last}
        paths: List[Path] = []
        if which == ALL:
            paths = [every[step] for step in sorted(every)]
        elif which in (BEST, None) and best:
            paths = [best[max(best)]]
        elif which in (LAST, BEST, None) and last:
            paths = [last[max(last)]]
        elif which is not None and which.isdecimal() and int(which) in every:
            paths = [every[int(which)]]
        if not every:
            raise UsageError(
                f"{self.directory.parent} has no checkpoint yet: a run writes one every "
                f"{flag('checkpoint_every')} steps, and when it ends or is interrupted"
            )
        if not paths:
            raise UsageError(
                f"{self.directory.parent} has no checkpoint {which or LAST!r}: its steps are "
                f"{', '.join(map(str, sorted(last)))}, the best is {max(best, default='unknown')}"
            )
        for path in paths:
            if damage := damage_of(path):
                others = [str(step) for step in sorted(every) if every[step] != path]
                raise DataError(
                    f"the checkpoint {path} is damaged: {damage}. Give another "
                    f"{flag('checkpoint')}: {', '.join(others) or 'there are none'}"
                )
        return paths

    def _publish(
        self, path: Path, progress: bytes, header: bytes, arrays: Iterator[np.ndarray]
    ) -> None:
        partly = path.with_name(path.name + PARTIAL)
        try:
            shutil.rmtree(str(partly), ignore_errors=True)
            partly.mkdir(parents=True)
            parts = {PROGRESS: [progress], STATE: _parts_of(header, arrays)}
            sums = [f"{_write(partly / name, parts[name])}  {name}\n" for name in parts]
            _write(partly / SUMS, ["".join(sums).encode()])
            os.rename(str(partly), str(path))
        except OSError as error:
            raise DataError(
                f"{path.parent}: the checkpoint after step {path.name} cannot be written: {error}. "
                f"The newest is after step {self.latest}; free some space, then add "
                f"{flag('resume', True)}"
            ) from error
        finally:
            shutil.rmtree(str(partly), ignore_errors=True)


class Writer:
    """A checkpoint that a thread of the first process writes while the next steps run.

    The thread holds one array on the host. In a single process it fetches the arrays itself.
    Several processes gather each array together, so their main threads must fetch it between the
    same steps.
    """

    def __init__(
        self,
        tensors: List[Tensor],
        publish: Callable[[Iterator[np.ndarray]], None],
        processes: Processes,
        steps: int,
    ):
        self._left, self._is_shared = deque(tensors), processes.count > 1
        self._at_once = -(-len(tensors) // steps)  # tensors after a step
        # Of functions that wait for an array; None ends.
        self._reads = queue.Queue(1)  # type: queue.Queue[Optional[Callable[[], np.ndarray]]]
        self._error: Optional[BaseException] = None
        self._is_abandoned = False
        self._thread: Optional[threading.Thread] = None
        if processes.is_first:
            self._thread = threading.Thread(target=self._run, args=(publish,), daemon=True)
            self._thread.start()

    def advance(self) -> bool:
        """Fetches the next arrays, between two steps; returns whether all is written.

        Raises:
          DataError: the checkpoint cannot be written (disk full, permissions).
        """
        if self._is_shared:
            for _ in range(min(self._at_once, len(self._left))):
                self._hand_over(self._left.popleft().fetch())
        if self._error is not None:
            raise self._error
        return not self._left and not self._is_writing

    def finish(self) -> None:
        """Waits until all is written; raises as `advance`."""
        while self._is_shared and self._left:
            self.advance()
        self._hand_over(None)
        if self._thread is not None:
            self._thread.join()
        self.advance()

    def abandon(self) -> None:
        """Ends the thread and removes what it has written."""
        self._is_abandoned = True
        self._hand_over(None)
        if self._thread is not None:
            self._thread.join(timeout=5)  # it may wait for a process that has ended

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _hand_over(self, read: Optional[Callable[[], np.ndarray]]) -> None:
        while self._is_shared and self._is_writing:  # else the thread needs none
            with suppress(queue.Full):
                return self._reads.put(read, timeout=0.1)

    def _run(self, publish: Callable[[Iterator[np.ndarray]], None]) -> None:
        try:
            publish(self._arrays())
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: B036  raised in the main thread
            self._error = error

    def _arrays(self) -> Iterator[np.ndarray]:
        while True:
            if not self._is_shared:
                read = self._left.popleft().fetch() if self._left else None
            else:
                read = self._reads.get()
            if self._is_abandoned:
                raise _Abandoned
            if read is None:
                return
            yield read()


class _Abandoned(Exception):
    """Ends the thread of a `Writer`."""


def _header_of(tensors: Tensors) -> bytes:
    """The header of a safetensors file, behind its length."""
    header: Dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.dtype.itemsize * math.prod(tensor.shape)
        kind = tensor.dtype.kind.upper()  # F, I, U or B
        dtype = "BOOL" if kind == "B" else f"{kind}{8 * tensor.dtype.itemsize}"
        header[name] = dict(dtype=dtype, shape=list(tensor.shape), data_offsets=[begin, end])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _parts_of(header: bytes, arrays: Iterator[np.ndarray]) -> Iterator[Any]:
    """The parts of a safetensors file: its header, and arrays in row-major order."""
    yield header
    for value in arrays:
        rows = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        yield rows.reshape(-1).view(np.uint8).data


def _write(path: Path, parts: Iterable[Any]) -> str:
    """Writes a file in one pass and syncs it; returns its sha256."""
    digest = hashlib.sha256()
    with open(str(path), "wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read_checkpoint(path: Path, model: Optional[ModelConfig] = None) -> Stored:
    """The content of a checkpoint; its arrays are read from the file where they are used.

    Raises:
      DataError: it cannot be read, or its weights do not fit `model`.
    """
    arrays: Dict[str, Arrays] = {_WEIGHTS: {}, _STATE: {}}
    try:
        values = parse_json(read_bounded(str(path / PROGRESS), _MOST_TEXT), PROGRESS)
        progress = Progress(**values)  # refuses other names and impossible values
        if str(progress.step) != path.name:
            raise ValueError(f"{PROGRESS}: step is {progress.step} instead of {path.name}")
        with safe_open(str(path / STATE), framework="np"):  # checks the structure
            tensors = _map_tensors(path / STATE)
        for name, value in tensors.items():
            kind = _WEIGHTS if name.startswith(_WEIGHTS) else _STATE
            arrays[kind][name[len(kind) :]] = value
        if model is not None:
            due = {n: np.broadcast_to(np.float32(), s) for n, s in shapes(model).items()}
            if difference := first_difference(arrays[_WEIGHTS], due):
                raise ValueError(f"{STATE}: {_WEIGHTS}{difference}")
    except (OSError, ValueError, TypeError, RecursionError, SafetensorError, DataError) as error:
        raise DataError(
            f"the checkpoint {path} cannot be read: {error!s:.300}. Move it away to use the one "
            "before"
        ) from error
    return Stored(progress, arrays[_WEIGHTS], arrays[_STATE] or None)


def _map_tensors(path: Path) -> Arrays:
    """Read-only arrays in the memory map of a safetensors file that `safe_open` accepted."""
    with open(str(path), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    content = np.memmap(str(path), np.uint8, "r", offset=8 + size)
    arrays = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = np.asarray(content[begin:end]).view(_dtype_of(tensor["dtype"]))
        arrays[name] = values.reshape(tensor["shape"])
    return arrays


def _dtype_of(name: str) -> np.dtype:
    """The dtype of a name in safetensors: F32 is "<f4"; raises a ValueError for BF16 and others."""
    match = re.fullmatch(r"([FIU])(8|16|32|64)", name)
    if name != "BOOL" and match is None:
        raise ValueError(f"{STATE} has the unknown dtype {name:.20}")
    return np.dtype("?" if match is None else f"<{match[1].lower()}{int(match[2]) // 8}")


def read_weights(path: Path, model: Optional[ModelConfig] = None) -> Arrays:
    """The weights of a checkpoint; raises as `read_checkpoint`."""
    return read_checkpoint(path, model).weights


def damage_of(checkpoint: Path) -> Optional[str]:
    """The first damage of a checkpoint: "FILE is missing"; None if it is intact.

    Raises:
      OSError: a file exists and cannot be read.
    """
    progress, state, sums = (checkpoint / name for name in (PROGRESS, STATE, SUMS))
    for path in (progress, state, sums):
        if not path.is_file():
            return f"{path} is missing"
    with open(str(sums), "rb") as file:
        match = _SUMS.fullmatch(file.read(1000))
    if match is None:
        return f"{sums} is broken"
    for path, digest in zip((progress, state), match.groups()):
        if store.sha256(str(path)) != digest.decode():
            return f"{path} has changed: its sha256 is not the one in {SUMS}"
    return None


def newest_whole(
    checkpoints: Mapping[int, Path],
    say: Callable[[str], None],
    best: Mapping[int, Path],
) -> Optional[int]:
    """The step of the newest intact checkpoint, to resume from; None if there are no checkpoints.

    A checkpoint counts as damaged if the `best` weights up to its step are. Newer checkpoints, all
    damaged, are renamed to end in .damaged, and `say` gets a line for each.

    Raises:
      DataError: all are damaged; none is renamed.
      OSError: one cannot be read.
    """
    best_damages = {at: damage for at in sorted(best) if (damage := damage_of(best[at]))}
    damages: Dict[int, str] = {}
    for step in sorted(checkpoints, reverse=True):
        of_best = next((damage for at, damage in best_damages.items() if at <= step), None)
        damage = damage_of(checkpoints[step]) or of_best
        if damage is None:
            break
        damages[step] = damage
    else:
        if damages:
            culprits = [at for at, damage in best_damages.items() if damage in damages.values()]
            without = "".join(f", remove {best[at]} to resume without it" for at in culprits)
            raise DataError(
                f"all checkpoints are damaged: {'; '.join(dict.fromkeys(damages.values()))}. Copy "
                f"one from a backup{without}, or start over with another {flag('output')}"
            )
        return None
    for newer, damage in damages.items():
        aside = checkpoints[newer].with_name(checkpoints[newer].name + DAMAGED)
        shutil.rmtree(str(aside), ignore_errors=True)
        os.replace(str(checkpoints[newer]), str(aside))
        say(
            f"note: the checkpoint after step {newer} is damaged: {damage}. It is kept as {aside}; "
            f"the run resumes after step {step} and repeats the later steps"
        )
    return step
