"""Signals and kills at random moments to one of two processes of a Flax run.

    python -m tests.stress.processes_at_random --work=DIR --signals=30 --kills=10

After a signal, both must end after the same step, with a checkpoint whose sums agree; the next
round resumes from it. After a kill, the other must end within a minute and say why.
"""

import argparse
import os
import random
import signal
import time
from pathlib import Path

from tests.tools.clm_factory import write_clm_set
from tests.tools.jax_processes import TINY, Group
from tests.tools.run_reading import read_metrics
from trainers.run.checkpoints import damage_of, numbered
from trainers.run.journal import MetricsFile


def newest_of(output: Path) -> int:
    """The step of the newest checkpoint, after a check of all sums."""
    checkpoints = numbered(output / "checkpoints")
    assert not [damage for path in checkpoints.values() if (damage := damage_of(path))]
    return max(checkpoints, default=0)


def start(work: Path, round_: int) -> Group:
    """Resumes the run with or without --fsdp, and waits for a step."""
    output, newest = work / "run", newest_of(work / "run")
    output.mkdir(exist_ok=True)
    MetricsFile(str(output / "metrics.jsonl"), start_step=newest).close()  # lines after a kill
    flags = [f"--shards={work / 'set'}", f"--output={output}", *TINY, "--steps=1000000", "--resume"]
    flags += ["--evaluate_every=40", "--checkpoint_every=25", "--best_by=loss"]
    group = Group(work / str(round_), 2, *flags, *(["--fsdp"] if round_ % 2 else []))
    group.wait_for_step(output, newest + 2)
    return group


def main() -> None:
    """Runs all rounds; an assertion fails at the first broken promise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--signals", type=int, default=30)
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    work, output, draw = options.work, options.work / "run", random.Random(0)
    write_clm_set(work / "set")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(work / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    kinds = ["signal"] * options.signals + ["kill"] * options.kills
    draw.shuffle(kinds)
    for round_, kind in enumerate(kinds):
        with start(work, round_) as group:
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
        print(f"{round_}: {kind} to {index}, {seconds:.1f} s, checkpoint {step}", flush=True)


if __name__ == "__main__":
    main()
