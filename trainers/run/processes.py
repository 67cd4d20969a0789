"""The processes of a run, and the end of one that must not wait for its threads."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable


class Processes:
    """The processes of a run, which share each batch; here one alone, as by default.

    Each has devices of its own. The first decides whatever depends on a disk, writes files and
    speaks. The context is a run's. Methods are collectives: all processes call them in one order.
    """

    index, count = 0, 1  # of this process, of all

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.index == 0

    def share(self, make: Callable[[], Any]) -> Any:
        """The result of `make` on the first process, for all of them; JSON can hold it."""
        return make()

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order; JSON can hold each."""
        return [value]

    def meet(self) -> None:
        """Waits for all processes, since some compile longer than collectives wait (gloo 30 s)."""

    def leave(self) -> None:
        """Ends the run: waits for the first process, and after this no failure is reported."""

    def __enter__(self) -> Processes:
        """Begins the run."""
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """Reports an error to the other processes, so that they do not wait."""


ALONE = Processes()


def end_at_once(code: int) -> None:
    """Ends the process, whatever its threads wait for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
