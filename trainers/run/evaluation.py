"""The outputs of a program for a whole split, batch after batch."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, Callable, Generator

from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.flags.run_flags import DataFlags
from textmill.trainers.run.journal import duration
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.program import Program, put_ahead
from textmill.trainers.run.tensors import Arrays


def evaluate(
    program: Program,
    shards: BatchReader,
    data: DataFlags,
    show: Callable[[str], None],
    processes: Processes = ALONE,
) -> Generator[tuple[Batch, Arrays], None, None]:
    """The batches of the validation split with the program's outputs, one ahead of the consumer.

    `show` gets the progress after each: "evaluating validation: batch 3 of 40, 12 s left".
    """
    split = data.validation_split
    size: Any = {"batch_size": program.evaluation_rows, "most": data.evaluation_rows}
    count = shards.count_sequential_batches(split, **size)
    share: Any = {"process_index": processes.index, "process_count": processes.count}
    batches = shards.sequential_batches(split, **size, **share, prefetch=0)
    before: tuple[Batch, Callable[[], Arrays]] | None = None
    began = time.monotonic()
    with closing(put_ahead(program, batches)) as calls:
        for number, (rows, on_devices) in enumerate(calls):
            started = rows, program.evaluate(on_devices)
            if before is not None:
                outputs = before[1]()
                left = duration((time.monotonic() - began) / number * (count - number))
                show(f"evaluating {split}: batch {number} of {count}, {left} left")
                yield before[0], outputs
            before = started
        if before is not None:
            yield before[0], before[1]()
