"""Sends signals to training runs at random moments.

    python -m tests.stress.kill_trainers --runs=20

Each run is a process of a trainer. It gets some signals, one in each process that resumes it:
SIGKILL, Ctrl-C or SIGTERM, at times a second one at once, at a random moment of the time that the
rest of the run takes. Then it may end. Defects are: other bits than those of a run that got no
signal (weights and optimizer's state after the last step, the best weights, metrics.jsonl but for
times, the exported model.safetensors); another exit code than 0 or that of the signal; a traceback;
five minutes without an end. Exit code 1 if there was one.
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.stress.attempts import Found, TrainerOptions, file_sum, run_stress, state_sums
from tests.tools.places import ROOT
from tests.tools.run_reading import untimed_lines
from tests.tools.trainer_list import ListedTrainer
from textmill.schemas.errors import DataError

KINDS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
STEPS = 600
FLAGS = (
    *(f"--steps={STEPS}", "--evaluate_every=25", "--checkpoint_every=20", "--best_metric=loss"),
    *("--learning_rate=0.003", "--dropout=0.2"),
)
COMPILED_ONCE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
VALIDATION_ROWS = 120  # enough for an evaluation to take some time
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
        exported = _exported(run)
        flags = [f"--shards={folder / trainer.name}", f"--output={run}", *trainer.small, *FLAGS]
        if not exported.exists():
            flags.append(f"--export={exported}")
        self._log = run.with_name(f"{run.name}.log")
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"trainers.{trainer.name}", *flags, "--resume"],
                cwd=ROOT,
                env={
                    **os.environ,
                    **COMPILED_ONCE,
                    "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled",
                },
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=_take_signals,
            )

    def send(self, number: int) -> None:
        """Sends a signal, if there is still a process to get it."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Waits for the end: the exit code as shells report it, and its messages."""
        words = ""
        try:
            self._process.wait(HANGS_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            words = "HANGS\n"
        code = self._process.returncode
        return (code if code >= 0 else 128 - code), words + self._log.read_text()


def _take_signals() -> None:
    """In the child: whoever started this may ignore Ctrl-C, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def kill(options: Options, folder: Path, draw: random.Random, found: Found) -> None:
    """Breaks runs off, prints a line for each."""
    due, seconds = {}, {}
    for trainer in options.trainers:
        began = time.monotonic()
        due[trainer.name] = _whole(trainer, folder)
        seconds[trainer.name] = time.monotonic() - began
    for number in range(options.runs):
        trainer, run = options.trainers[number % len(options.trainers)], folder / f"run-{number}"
        before, began = len(found.defects), time.monotonic()
        for _ in range(options.signals):
            longest = seconds[trainer.name] * max(0.5, _share_left(run))
            _break_off(Attempt(trainer, folder, run), draw.uniform(0, longest), draw, found)
        _note("none", Attempt(trainer, folder, run).end(), {0}, found)
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


def _share_left(run: Path) -> float:
    lines = untimed_lines(run)
    return 1 - lines[-1]["step"] / STEPS if lines else 1.0


def _break_off(attempt: Attempt, seconds: float, draw: random.Random, found: Found) -> None:
    """Sends a signal after some seconds, sometimes a second one, and waits for the end."""
    number = draw.choice(KINDS)
    time.sleep(seconds)
    attempt.send(number)
    if number != signal.SIGKILL and draw.random() < 0.15:
        time.sleep(draw.uniform(0, 0.05))
        attempt.send(number)
    # It ends with 0 where the signal came as it had just done everything.
    _note(number.name, attempt.end(), {0, 128 + number}, found)


def _note(kind: str, ended: tuple[int, str], allowed: set[int], found: Found) -> None:
    code, said = ended
    found.counts[kind, f"exit code {code}"] += 1
    if code not in allowed:
        found.defects.append(f"exit code {code}: {said[-1500:]}")
    if "Traceback" in said or "HANGS" in said:
        found.defects.append(f"it said: {said[-3000:]}")


def _exported(run: Path) -> Path:
    return run.with_name(f"{run.name}-exported")


def outcome(run: Path) -> dict[str, object]:
    """All that must be the same: sums of states by name, and the lines of metrics.jsonl."""
    exported = file_sum(_exported(run) / "model.safetensors")
    return {"metrics": untimed_lines(run), "exported": exported, **state_sums(run)}


if __name__ == "__main__":
    run_stress(kill, Options)
