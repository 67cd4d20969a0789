"""Sends signals to training runs at random moments.

    python -m tests.stress.kill_trainers --runs=20

Each run is a process of a trainer. It gets some signals, one in each process that resumes it:
SIGKILL, Ctrl-C or SIGTERM, at times a second one at once, while it starts, trains, evaluates,
writes a checkpoint or exports. Then it may end. Defects are: other bits than those of a run that
got no signal (weights and optimizer's state after the last step, the best weights, metrics.jsonl
but for times, the exported model.safetensors); another exit code than 0 or that of the signal; a
traceback; five minutes without an end. Exit code 1 if there was one.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import DataError
from tests.stress.attempts import Found, TrainerOptions, file_sum, run_stress, state_sums
from tests.tools.places import ROOT
from tests.tools.run_reading import untimed_lines
from tests.tools.trainer_list import ListedTrainer
from trainers.run.journal import METRICS

KINDS = {"SIGKILL": signal.SIGKILL, "SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}
PHASES = ("start", "training", "evaluation", "checkpoint", "export")
STEPS, EVALUATE_EVERY, CHECKPOINT_EVERY = 120, 25, 20
FLAGS = (
    f"--steps={STEPS}",
    f"--evaluate_every={EVALUATE_EVERY}",
    f"--checkpoint_every={CHECKPOINT_EVERY}",
    *("--learning_rate=0.003", "--dropout=0.2", "--best_by=loss"),
)
COMPILED_ONCE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
VALIDATION_ROWS = 120  # enough for an evaluation to take some time
# Seconds, at most, from what shows that a phase has begun to the signal.
DELAYS = {
    "start": (0.05, 0.5, 5.0),  # it imports a framework, loads, compiles
    "training": (0.02,),
    "evaluation": (0.04,),
    "checkpoint": (0.01,),
    "export": (0.02, 0.5),
}
HANGS_SECONDS = 300


@dataclass(frozen=True)
class Options(TrainerOptions):
    """Numbers of runs and signals."""

    runs: int = 20
    """Runs over all trainers."""
    signals: int = 5
    """Signals of each run."""


class Attempt:
    """One process of a run."""

    def __init__(self, trainer: ListedTrainer, folder: Path, run: Path):
        """Starts it; it resumes the run that is there."""
        self.run, self.exported = run, run.with_name(run.name + "-exported")
        flags = [f"--shards={folder / trainer.name}", f"--output={run}", *trainer.small, *FLAGS]
        if not self.exported.exists():
            flags.append(f"--export={self.exported}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"trainers.{trainer.name}", *flags, "--resume"],
            cwd=ROOT,
            env={**os.environ, **COMPILED_ONCE, "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_take_signals,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self._lines.extend(self._process.stderr)

    @property
    def has_begun(self) -> bool:
        """Whether it has said anything: modules are imported and the run's directory is claimed."""
        return bool(self._lines)

    @property
    def phase(self) -> str:
        """Its phase at this moment, by the files in its directory."""
        if any(self.run.glob("*/*.partial")):
            return "checkpoint"
        if not any(line.startswith("ready in") for line in self._lines):
            return "export" if _is_trained(self.run) else "start"
        last = _last_line(self.run)
        if last.get("step") == STEPS and last["kind"] == "evaluation":
            return "export"
        is_due = last.get("step", 1) % EVALUATE_EVERY == 0 or last.get("step") == STEPS
        return "evaluation" if is_due and last["kind"] == "train" else "training"

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits for something, or for the end of the process."""
        ends = time.monotonic() + HANGS_SECONDS
        while not is_so() and self._process.poll() is None and time.monotonic() < ends:
            time.sleep(0.0005)

    def send(self, number: int) -> bool:
        """Sends a signal; whether there was a process to get it."""
        is_there = self._process.poll() is None
        self._process.send_signal(number)
        return is_there

    def end(self) -> tuple[int, str]:
        """Waits for the end: the exit code as shells report it, and its messages."""
        words = ""
        try:
            self._process.wait(HANGS_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            words = "HANGS\n"
        self._reader.join()
        code = self._process.returncode
        return (code if code >= 0 else 128 - code), words + "".join(self._lines)


def _take_signals() -> None:
    """In the child: whoever started this may ignore Ctrl-C, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def kill(options: Options, folder: Path, draw: random.Random, found: Found) -> None:
    """Breaks runs off, prints a line for each."""
    chosen = options.trainers
    # Each kind in each phase alike, in random order; of a run, what comes at its end at the end.
    each = [(kind, phase) for phase in PHASES for kind in KINDS]
    plan: list[tuple[str, str]] = []
    while len(plan) < options.runs * options.signals:
        plan += draw.sample(each, len(each))
    due = {trainer.name: _whole(trainer, folder) for trainer in chosen}
    for number in range(options.runs):
        trainer, run = chosen[number % len(chosen)], folder / f"run-{number}"
        before, began = len(found.defects), time.monotonic()
        moments = plan[number :: options.runs][: options.signals]
        for kind, phase in sorted(moments, key=lambda moment: moment[1] == "export"):
            _break_off(Attempt(trainer, folder, run), kind, phase, draw, found)
        _note(Attempt(trainer, folder, run).end(), {0}, found)
        there = outcome(run)
        differing = [name for name, value in due[trainer.name].items() if there[name] != value]
        if differing:
            found.defects.append(f"{run.name}: {', '.join(differing)} differ")
        said = "; ".join(found.defects[before:]) or "same"
        print(
            f"run {number}, {trainer.name}: {said} ({time.monotonic() - began:.0f} s)", flush=True
        )


def _whole(trainer: ListedTrainer, folder: Path) -> dict[str, object]:
    trainer.write_set(folder / trainer.name, validation=VALIDATION_ROWS)
    run = folder / f"{trainer.name}-whole"
    code, said = Attempt(trainer, folder, run).end()
    if code:
        raise DataError(f"{trainer.name} ended with {code}: {said}")
    return outcome(run)


def _break_off(attempt: Attempt, kind: str, phase: str, draw: random.Random, found: Found) -> None:
    """Sends a signal, in the phase if it comes to that, and waits for the end."""
    done = _last_line(attempt.run).get("step", 0)
    first = draw.randint(done, done + (STEPS - done) // 3)

    def is_time() -> bool:
        step = _last_line(attempt.run).get("step", 0)
        if phase == "checkpoint" and step >= first and step % CHECKPOINT_EVERY == 0:
            return attempt.phase != "start"  # or is about to be
        is_late = phase in ("start", "export") or step >= first
        return attempt.has_begun and is_late and attempt.phase == phase

    number, twice = KINDS[kind], kind != "SIGKILL" and draw.random() < 0.15
    attempt.wait_until(is_time)
    time.sleep(draw.uniform(0, draw.choice(DELAYS[phase])))
    hit = attempt.phase
    found.counts[kind, f"in {hit}"] += attempt.send(number)
    if twice:
        time.sleep(draw.uniform(0, 0.05))
        found.counts[kind, "a second one"] += attempt.send(number)
    # It ends with 0 where the signal came as it had just done everything.
    _note(attempt.end(), {0, 128 + number}, found)


def _note(ended: tuple[int, str], allowed: set[int], found: Found) -> None:
    code, said = ended
    found.counts["all", f"exit code {code}"] += 1
    if code not in allowed:
        found.defects.append(f"exit code {code}: {said[-1500:]}")
    if "Traceback" in said or "HANGS" in said:
        found.defects.append(f"it said: {said[-3000:]}")


def _last_line(run: Path) -> dict[str, Any]:
    path = run / METRICS
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return json.loads(whole.rpartition(b"\n")[2] or b'{"kind": "none"}')


def _is_trained(run: Path) -> bool:
    last = _last_line(run)
    return (last.get("step"), last["kind"]) == (STEPS, "evaluation")


def outcome(run: Path) -> dict[str, object]:
    """All that must be the same: sums of states by name, and the lines of metrics.jsonl."""
    exported = run.with_name(run.name + "-exported") / "model.safetensors"
    return {"metrics": untimed_lines(run), "exported": file_sum(exported), **state_sums(run)}


if __name__ == "__main__":
    run_stress(kill, Options)
