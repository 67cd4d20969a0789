"""How far shares of tokens are from those of --stages, in windows of steps.

    python -m tests.benchmarks.stage_shares A B C --steps=400 --batch_size=32

Three datasets in three stages. The tokens of a window are those of the rows that a run would read.
"""

import argparse

import numpy as np

from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.stages import Stages
from textmill.trainers.reader import open_shards

STAGES = "0:0=0.6,1=0.3,2=0.1;40%:1=0.5,2=0.5;80%:2=0.2,0=0.8"  # cut between windows of a tenth
WINDOWS = 10


def measure(
    paths: list[str], stages: str, *, steps: int, batch_size: int, seed: int = 0
) -> list[dict[str, float]]:
    """The deviation of each dataset's share of the tokens, in each of ten windows of the steps."""
    shards = ",".join(f"{number}={path}" for number, path in enumerate(paths))
    mixture = open_shards(
        shards, seed=seed, stages=stages, batch_size=batch_size, steps=steps, verify=False
    )
    assert isinstance(mixture, Mixture) and isinstance(mixture.stages, Stages)
    counts_WxS = np.zeros((WINDOWS, len(paths)))
    batches = mixture.batches("train", batch_size=batch_size, seed=seed, stop_step=steps)
    for step, batch in enumerate(batches):
        tokens = np.count_nonzero(batch["segment_ids"], axis=1)
        np.add.at(counts_WxS[step * WINDOWS // steps], batch["set_index"], tokens)
    found = []
    for window, counts in enumerate(counts_WxS):
        number = mixture.stages.number_at(window * steps // WINDOWS + 1)
        asked = mixture.stages.stages[number - 1].shares
        due = {name: share / sum(asked.values()) for name, share in asked.items()}
        got = dict(zip(mixture.names, counts / counts.sum(), strict=True))
        found.append({name: got[name] - due.get(name, 0.0) for name in got})
    return found


def main() -> None:
    """Prints the deviations in percentage points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()
    found = measure(options.paths, STAGES, steps=options.steps, batch_size=options.batch_size)
    for number, window in enumerate(found, 1):
        print(f"window {number:2}: ", {n: f"{100 * value:+.3f}" for n, value in window.items()})
    most = max(abs(value) for window in found for value in window.values())
    print(f"largest: {100 * most:.3f} percentage points")


if __name__ == "__main__":
    main()
