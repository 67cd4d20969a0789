"""--profile: a trace of some steps."""

from pathlib import Path
from typing import Any

import jax

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.run.run_directory import PROFILE

_BEFORE = 3  # steps before the trace: the first ones fill queues and caches


class Profile:
    """Traces the steps after the first three of this process into OUTPUT/profile."""

    def __init__(self, steps: int | None, output: Path):
        """Takes the steps to trace; None traces nothing."""
        self._steps, self._directory = steps, str(output / PROFILE)
        self._begun, self._is_on = 0, False

    def check(self, steps: int) -> None:
        """Raises a UsageError if the run ends before the trace begins."""
        if self._steps is not None and steps <= _BEFORE:
            raise UsageError(
                f"{flag('profile', self._steps)}: the trace begins after step {_BEFORE}, but the "
                f"run has {steps} steps: give more {flag('steps')}"
            )

    def begin_step(self, params: Any) -> None:
        """Starts or stops the trace, when the devices have made these weights."""
        if self._steps is None or jax.process_index():
            return
        if self._begun == _BEFORE:
            jax.block_until_ready(params)
            jax.profiler.start_trace(self._directory, create_perfetto_trace=True)
            self._is_on = True
        elif self._begun == _BEFORE + self._steps:
            self.stop(params)
        self._begun += 1

    def stop(self, params: Any) -> None:
        """Writes a trace that is not written yet."""
        if self._is_on:
            jax.block_until_ready(params)
            jax.profiler.stop_trace()
            self._is_on = False
