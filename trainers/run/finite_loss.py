"""A loss that is no number stops a run, with the batch that did it."""

import math
import os
from typing import Mapping

import numpy as np

from schemas.errors import DataError


def check_finite(
    values: Mapping[str, float],
    batch: Mapping[str, np.ndarray],
    *,
    step: int,
    output: str,
    checkpoint: int,
) -> None:
    """Passes where all values are finite; else saves the batch in `output` and stops.

    Values are such as {"loss": 2.3, "gradient norm": 1.1}; the batch is as the reader gave it, with
    `row_index`. Steps count from 1; `checkpoint` is that of the newest checkpoint, 0 for none.

    Raises:
      DataError: a value is infinite or not a number; names the step, the rows and the file.
    """
    if all(math.isfinite(value) for value in values.values()):
        return
    path = os.path.join(output, f"stopped-at-step-{step}.npz")
    with open(path, "wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in batch.items()})  # type: ignore
    rows, most = [int(row) for row in batch["row_index"]], 64  # all of them are in the file
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    said = " and ".join(f"the {name} is {value}" for name, value in values.items())
    raise DataError(
        f"step {step}: {said}, on rows {', '.join(map(str, rows[:most]))}{more} of the split. "
        f"The batch lies in {path} (numpy.load opens it). Look at it, lower --learning_rate or "
        f"lengthen --warmup_steps; checkpoints up to step {checkpoint} are kept"
    )
