"""A trace of some steps of a run, for --profile."""

from pathlib import Path

import jax

from schemas.errors import UsageError
from trainers.flags.run_flags import FlaxComputeFlags
from trainers.on_flax.layers import Params
from trainers.run.run_directory import PROFILE

FIRST = 3  # steps before the trace: the first ones fill queues and caches


class Profile:
    """Traces the steps after the first three of this process into OUTPUT/profile."""

    def __init__(self, flags: FlaxComputeFlags, steps: int, output: Path):
        """Takes the steps of the run; without --profile nothing is traced.

        Raises:
          UsageError: the run is too short.
        """
        if flags.profile is not None and steps <= FIRST:
            raise UsageError(
                f"--profile={flags.profile}: the trace begins after step {FIRST}, but the run has "
                f"{steps} steps: give more --steps"
            )
        self._steps, self._directory = flags.profile, str(output / PROFILE)
        self._begun, self._is_on = 0, False

    def begin_step(self, params: Params) -> None:
        """Starts or stops the trace, when the devices have made these weights."""
        if self._steps is None or jax.process_index():
            return
        if self._begun == FIRST:
            jax.block_until_ready(params)
            jax.profiler.start_trace(self._directory, create_perfetto_trace=True)
            self._is_on = True
        elif self._begun == FIRST + self._steps:
            self.stop(params)
        self._begun += 1

    def stop(self, params: Params) -> None:
        """Writes a trace that is not written yet."""
        if self._is_on:
            jax.block_until_ready(params)
            jax.profiler.stop_trace()
            self._is_on = False
