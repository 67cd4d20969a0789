"""Signals and kills at random moments to one of two processes of a Flax run.

    python -m tests.stress.processes_at_random --signals=30 --kills=10

After a signal, both must end after the same step, with a checkpoint whose sums agree; the next
round resumes from it. After a kill, the other must end within a minute and say why.
"""

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.stress.attempts import Found, StressOptions, run_stress
from tests.tools.clm_factory import write_clm_set
from tests.tools.run_processes import TINY, Group
from tests.tools.run_reading import read_metrics
from textmill.trainers.run.checkpoint_files import damage_of
from textmill.trainers.run.checkpoints import numbered
from textmill.trainers.run.journal import cut_metrics


@dataclass(frozen=True)
class Options(StressOptions):
    """Numbers of signals and kills."""

    signals: int = 30
    """Rounds that end by SIGTERM."""
    kills: int = 10
    """Rounds that end by SIGKILL."""


def newest_of(output: Path) -> int:
    """The step of the newest checkpoint, after a check of all sums."""
    checkpoints = numbered(output / "checkpoints")
    assert not [damage for path in checkpoints.values() if (damage := damage_of(path))]
    return max(checkpoints, default=0)


def start(work: Path, round_: int) -> Group:
    """Resumes the run with or without --fsdp, and waits for a step."""
    output, newest = work / "run", newest_of(work / "run")
    output.mkdir(exist_ok=True)
    cut_metrics(str(output / "metrics.jsonl"), newest)  # lines after a kill
    flags = [f"--shards={work / 'set'}", f"--output={output}", *TINY, "--steps=1000000", "--resume"]
    flags += ["--evaluate_every=40", "--checkpoint_every=25", "--best_metric=loss"]
    group = Group(work / str(round_), 2, *flags, *(["--fsdp"] if round_ % 2 else []))
    group.wait_for_step(output, newest + 2)
    return group


def signal_processes(options: Options, folder: Path, draw: random.Random, found: Found) -> None:
    """Runs all rounds; an assertion fails at the first broken promise."""
    output = folder / "run"
    write_clm_set(folder / "set")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    kinds = ["signal"] * options.signals + ["kill"] * options.kills
    draw.shuffle(kinds)
    for round_, kind in enumerate(kinds):
        with start(folder, round_) as group:
            time.sleep(draw.uniform(0, 5))
            index, began = draw.randrange(2), time.monotonic()
            group.signal(index, signal.SIGTERM if kind == "signal" else signal.SIGKILL)
            codes = group.wait(60)
            seconds, step = time.monotonic() - began, newest_of(output)
            if kind == "signal":
                assert codes == [128 + signal.SIGTERM] * 2, (codes, group.texts)
                assert step == read_metrics(str(output / "metrics.jsonl"))[-1]["step"]
            else:
                assert codes[1 - index] == 1 and codes[index] == -signal.SIGKILL, codes
                assert f"error: process {index} of 2 has ended" in group.texts[1 - index]
            assert not any("stack trace" in text or "Traceback" in text for text in group.texts)
        found.counts[kind, f"to {index}"] += 1
        print(f"{round_}: {kind} to {index}, {seconds:.1f} s, checkpoint {step}", flush=True)


if __name__ == "__main__":
    run_stress(signal_processes, Options)
