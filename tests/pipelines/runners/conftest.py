"""Small blocks."""

from dataclasses import replace

import pytest

from textmill.pipelines.readers import sources


@pytest.fixture
def small_blocks(monkeypatch):
    """Cuts inputs into blocks of 100 kB, as if they were large."""
    plan = sources.plan_blocks
    monkeypatch.setattr(
        sources, "plan_blocks", lambda source: plan(replace(source, block_bytes=100_000))
    )
