"""Wall time and CPU time. Standard library only: the interpreter of the baselines imports it."""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

Found = TypeVar("Found")


class Seconds(NamedTuple):
    """How long, or at what moment: by the clock, and of the processors."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Seconds":
        """This moment; of the processors, what all threads of this process have had."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: "Seconds", steps: int = 1) -> "Seconds":
        """A step's share of what went by."""
        return Seconds((self.wall - before.wall) / steps, (self.cpu - before.cpu) / steps)


def timed(work: Callable[[], Found]) -> tuple[Seconds, Found]:
    """How long it took, and what came of it."""
    began = Seconds.now()
    found = work()
    return Seconds.now().since(began), found
