"""Beam's clock of the steps of a bundle, with a shorter period.

A thread notes every period which step runs, and the end of a bundle waits for the end of a period.
Beam's grows to 200 ms, and a core would idle that long at the end of each bundle.
"""

from typing import Any

from apache_beam.runners.worker import statesampler

PERIOD_MS = 10


class _QuickSampler(statesampler.StateSampler):
    """Notes the step that runs each `PERIOD_MS`."""

    def __init__(self, prefix: str, counter_factory: Any, sampling_period_ms: int = PERIOD_MS):
        super().__init__(prefix, counter_factory, sampling_period_ms)


def sample_often() -> None:
    """Gives later bundles of this process the shorter period."""
    statesampler.StateSampler = _QuickSampler
