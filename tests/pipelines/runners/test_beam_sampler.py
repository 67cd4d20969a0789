"""The end of a bundle waits for a short period of Beam's clock, not for one of 200 ms."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.worker import statesampler

from textmill.pipelines.runners.beam_run import run_pipeline
from textmill.pipelines.runners.launch import IN_PROCESS


@pytest.mark.parametrize(
    "mode", ["multi_threading", pytest.param("multi_processing", marks=pytest.mark.slow)]
)
def test_bundles_run_under_the_short_period(mode, tmp_path):
    """Fails if Beam makes its sampler otherwise."""
    found = tmp_path / "periods"

    def note(element: int) -> None:
        with open(found, "a") as file:
            tracker: Any = statesampler.get_current_tracker()
            file.write(f"{tracker.sampling_period_ms}\n")

    run_pipeline(
        lambda p: p | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(note),
        [f"--runner={IN_PROCESS}", f"--direct_running_mode={mode}", "--direct_num_workers=2"],
        local=str(tmp_path),
        total_bytes=0,
        label="test",
    )
    assert found.read_text().split() == ["10", "10"]


def test_beams_own_period_is_long():
    """Else Beam has changed, and `sample_often` may not be needed any more."""
    assert statesampler.DEFAULT_SAMPLING_PERIOD_MS == 200
