"""Waiting for other threads and processes; and fast backends, however little they encode."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.tools.quick_libraries import quicken_beam
from textmill.pipelines.encoding import tokenizer

if "CI" not in os.environ:
    quicken_beam()
tokenizer.FAST_PAYS_BYTES = 0  # commands that tests start in other processes decide by the size


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], Any]], Any]:
    """Waits for a condition, two minutes at most; returns its value."""

    def wait(condition):
        ends = time.monotonic() + 120
        while not (value := condition()):
            assert time.monotonic() < ends, "it did not happen in time"
            time.sleep(0.02)
        return value

    return wait
