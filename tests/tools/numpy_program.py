"""A whole trainer without a framework, for tests of the one loop: bigrams, by hand, in numpy.

    python -m trainers.numpy_clm          # if there were such an entry

It trains the token embeddings of a tied decoder to predict the next token of each, by SGD with
momentum; it has no other layer. Whatever the loop asks of it is noted in `Diary`.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from tests.tools.run_reading import untimed_lines
from textmill.schemas.errors import UsageError
from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.run_flags import (
    ComputeFlags,
    DecoderFlags,
    OptimizationFlags,
    RunFlags,
)
from textmill.trainers.flags.task_flags import ClmFlags
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.run.schedule import Schedule
from textmill.trainers.run.start import train
from textmill.trainers.run.tensors import Arrays, Snapshot, check_state, to_tensors
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.tasks.language_models import ClmTask

TABLE = "embeddings.tokens.weight"


@dataclass(frozen=True)
class _Decoder(DecoderFlags):
    """Which decoder."""

    model: Literal["tiny", "small"] = "tiny"
    layers: int | None = 1
    hidden_size: int | None = 8
    heads: int | None = 1
    intermediate_size: int | None = 8


@dataclass(frozen=True)
class _Optimization(OptimizationFlags):
    """How weights change in a step."""

    learning_rate: float = 8.0
    warmup_steps: int | None = 2


@dataclass(frozen=True)
class _Compute(ComputeFlags):
    """How a step is computed."""

    batch_size: int = 4
    steps_per_call: int = 1


@dataclass(frozen=True)
class NumpyFlags(RunFlags):
    """Trains a table of bigrams."""

    entry: ClassVar[str] = "numpy_clm"

    optimization: _Optimization = _Optimization()
    architecture: _Decoder = _Decoder()
    compute: _Compute = _Compute()
    task: ClmFlags = ClmFlags()


@dataclass
class Diary:
    """The calls of a program, in order: ("train", 0), ("read", 0) ...

    Attributes:
      entries: each with the step, or the number of the batch.
      listener: called with each entry before it is done.
      placed_in: names of the threads that `place` was called in.
    """

    entries: list[tuple[str, int]] = field(default_factory=list)
    listener: Callable[[str, int], None] = lambda name, number: None
    placed_in: set[str] = field(default_factory=set)

    def note(self, name: str, number: int) -> None:
        """Adds an entry."""
        self.entries.append((name, number))
        self.listener(name, number)

    @property
    def in_main_thread(self) -> list[tuple[str, int]]:
        """All but `place`, whose thread is another, and whose time is its own."""
        return [entry for entry in self.entries if entry[0] != "place"]


class NumpyProgram(Program):
    """Bigrams; a step is made at once, and its metrics are read later."""

    def __init__(self, plan: TrainingPlan, diary: Diary):
        """Takes the plan, and where to note what is asked."""
        flags = plan.flags
        assert isinstance(flags.compute, _Compute)
        self.steps_per_call = flags.compute.steps_per_call
        self.steps = -(-plan.steps // self.steps_per_call) * self.steps_per_call
        self.evaluation_rows, self.description = (
            flags.compute.batch_size,
            "numpy on the CPU, float32",
        )
        self._flags, self._diary = flags, diary
        self._rate = Schedule(self.steps, flags.optimization)
        self._is_trained = False
        self._placed = self._evaluated = 0

    def load(self, weights: Arrays, state: Arrays | None) -> None:
        self._diary.note("load", 0)
        self._weights = {name: value.copy() for name, value in weights.items()}
        self._momentum = np.zeros_like(weights[TABLE])
        self._done = 0
        if state is None:
            return
        check_state(state, self._state(), self._flags.optimization.optimizer)
        self._momentum, self._done = state["momentum"].copy(), int(state["count"])

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        self._diary.note("compile", trains + 2 * evaluates)
        self._is_trained = trains

    def put(self, rows: Batch) -> Any:
        self._diary.note("place", self._placed)
        self._diary.placed_in.add(threading.current_thread().name)
        self._placed += 1
        return {name: rows[name].astype(np.int64) for name in ("input_ids", "loss_weights")}

    def train(self, placed: Any, step: int) -> Callable[[], list[dict[str, float]]]:
        self._diary.note("train", step)
        assert self._is_trained and step == self._done
        size, found = self._flags.compute.batch_size, []
        for index in range(self.steps_per_call):
            part = slice(index * size, (index + 1) * size)
            with np.errstate(all="ignore"):  # what is not a number is the loop's to see
                found.append(self._step({name: rows[part] for name, rows in placed.items()}))

        def read() -> list[dict[str, float]]:
            self._diary.note("read", step)
            return found

        return read

    def _step(self, rows: Any) -> dict[str, float]:
        flags = self._flags
        rate = np.float32(flags.optimization.learning_rate * self._rate(self._done))
        loss, counted, gradient = bigram_gradient(self._weights[TABLE], rows)
        self._momentum = np.float32(flags.optimization.beta1) * self._momentum + gradient
        self._weights[TABLE] = self._weights[TABLE] - rate * self._momentum
        self._done += 1
        return {
            "loss": loss,
            "counted": counted,
            "learning_rate": float(rate),
            "gradient_norm": float(np.sqrt(np.sum(gradient * gradient))),
        }

    def evaluate(self, placed: Any) -> Callable[[], Arrays]:
        number = self._evaluated
        self._evaluated += 1
        self._diary.note("evaluate", number)
        with np.errstate(all="ignore"):
            found = bigram_sums(self._weights[TABLE], placed)

        def read() -> Arrays:
            self._diary.note("read_evaluation", number)
            return found

        return read

    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """Copies: the next step changes the arrays."""
        self._diary.note("weights", self._done)
        weights = to_tensors({name: value.copy() for name, value in self._weights.items()})
        if weights_only:
            return weights, {}
        self._diary.note("state", self._done)
        return weights, to_tensors({name: value.copy() for name, value in self._state().items()})

    def _state(self) -> Arrays:
        return {"momentum": self._momentum, "count": np.array(self._done, np.uint32)}


def _pairs(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tokens before one that counts, and these."""
    counts = rows["loss_weights"][:, 1:] > 0
    return rows["input_ids"][:, :-1][counts], rows["input_ids"][:, 1:][counts]


def _log_probabilities(table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    logits = table[tokens] @ table.T
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def bigram_gradient(table: np.ndarray, rows: Any) -> tuple[float, float, np.ndarray]:
    """Mean loss, the tokens that it is the mean over, and its gradient."""
    tokens, after = _pairs(rows)
    logs, places = _log_probabilities(table, tokens), np.arange(len(tokens))
    counted = max(1, len(tokens))
    slope = np.exp(logs)
    slope[places, after] -= 1
    slope /= np.float32(counted)
    gradient = slope.T @ table[tokens]
    np.add.at(gradient, tokens, slope @ table)
    loss = -logs[places, after].sum(dtype=np.float64) / counted
    return float(loss), float(len(tokens)), gradient.astype(np.float32)


def bigram_sums(table: np.ndarray, rows: Any) -> Arrays:
    """The sums that `trainers.tasks.language_models` expects."""
    tokens, after = _pairs(rows)
    logs, places = _log_probabilities(table, tokens), np.arange(len(tokens))
    return {
        "loss": np.array(-logs[places, after].sum(dtype=np.float64), np.float32),
        "correct": np.array((logs.argmax(axis=1) == after).sum(), np.float32),
        "counted": np.array(len(tokens), np.float32),
    }


def numpy_trainer(diary: Diary | None = None) -> Trainer:
    """The trainer as an entry would pass it to `trainers.run.start.train`."""
    noted = Diary() if diary is None else diary

    def import_program(plan: TrainingPlan, task: ClmTask) -> Program:
        if plan.flags.compute.precision == "bfloat16":
            raise UsageError("--precision=bfloat16: numpy has none")
        return NumpyProgram(plan, noted)

    return Trainer(
        flags=NumpyFlags,
        make_task=ClmTask,
        import_program=import_program,
        framework="numpy",
        gigabytes=0.1,
    )


def numpy_flags(shards: Path | str, output: Path, **changes: Any) -> NumpyFlags:
    """Twelve steps, evaluations after 4, 8 and 12, checkpoints after 3, 6, 9 and 12."""
    given = {"steps": 12, "evaluate_every": 4, "checkpoint_every": 3, "best_metric": "loss"}
    return make_flags(NumpyFlags, shards=str(shards), output=str(output), **{**given, **changes})


def remains_of(output: Path) -> dict[str, Any]:
    """The content of a run's directory, without times and without checkpoints before the newest."""
    checkpoints = Checkpoints(output)
    stored, lines = checkpoints.read(checkpoints.latest), untimed_lines(output)
    stored.progress.update(lines, "loss")
    best = {path.name: _bits_of(read_weights(path)) for path in (output / "best").glob("*")}
    return {
        "step": checkpoints.latest,
        "weights": _bits_of(stored.weights),
        "state": _bits_of(stored.state),
        "progress": stored.progress,
        "lines": lines,
        "best": best,
        "files": {path.name for path in output.iterdir()},
        "partial": list(output.rglob("*.partial")),
    }


def _bits_of(arrays: Arrays | None) -> dict[str, tuple[str, tuple, bytes]]:
    return {name: (str(v.dtype), v.shape, v.tobytes()) for name, v in (arrays or {}).items()}


def record_rows(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """A list to which later runs append the `input_ids` of each step."""
    read, train_step = [], NumpyProgram.train

    def note(self: NumpyProgram, placed: Any, step: int) -> Any:
        read.append(placed["input_ids"])
        return train_step(self, placed, step)

    monkeypatch.setattr(NumpyProgram, "train", note)
    return read


def run_numpy(
    shards: Path | str, output: Path, *, diary: Diary | None = None, **changes: Any
) -> None:
    """Trains with the flags of `numpy_flags`."""
    train(numpy_flags(shards, output, **changes), numpy_trainer(diary))
