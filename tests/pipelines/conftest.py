"""Waiting, a running Prism; and fast backends, however little they encode."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.tools.prism import find_prism, prism_running
from textmill.pipelines.encoding import tokenizer

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


@pytest.fixture(scope="session")
def prism() -> Iterator[list[str]]:
    """Flags of a command on a running Prism; skipped without the program, but not in CI."""
    if find_prism() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("make prism builds Prism")
    with prism_running() as (flags, _):
        yield flags
