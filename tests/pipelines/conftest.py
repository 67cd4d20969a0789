"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Waits for a condition, two minutes at most."""

    def wait(condition):
        ends = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < ends, "it did not happen in time"
            time.sleep(0.02)

    return wait
