"""The processes of a run, which share each batch; by default one alone. Python 3.8 syntax.

Each has devices of its own. The first decides whatever depends on a disk, writes files and speaks.
"""

import os
import sys
from types import TracebackType
from typing import Any, Callable, Optional, Type

from schemas.commands.entry import import_later
from trainers.flags.run_flags import FlaxRunFlags, RunFlags


class Processes:
    """A context of a run. Its methods are collectives: all processes call them in one order."""

    index, count = 0, 1  # of this process, of all

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.index == 0

    def share(self, make: Callable[[], Any]) -> Any:
        """The result of `make` on the first process, for all of them; JSON can hold it."""
        return make()

    def meet(self) -> None:
        """Waits for all processes, since some compile longer than collectives wait (gloo 30 s)."""

    def leave(self) -> None:
        """Ends the run: waits for the first process, and after this no failure is reported."""

    def __enter__(self) -> "Processes":
        """Begins the run."""
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        _: Optional[TracebackType],
    ) -> None:
        """Reports an error to the other processes, so that they do not wait."""


ALONE = Processes()


def end_at_once(code: int) -> None:
    """Ends the process, whatever its threads wait for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def join_processes(flags: RunFlags) -> Processes:
    """The processes of these flags; raises as `trainers.on_flax.jax_processes.join`."""
    assert isinstance(flags, FlaxRunFlags)
    if flags.processes.num_processes is None:
        return Processes()
    # JAX: seconds that a run of one process pays later, after its checks.
    return import_later("trainers.on_flax.jax_processes:join")(flags)
