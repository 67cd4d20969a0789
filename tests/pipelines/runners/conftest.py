"""Prism, and small blocks."""

import os
from dataclasses import replace

import pytest

from textmill.pipelines.readers import sources
from textmill.pipelines.runners.launch import find_program
from textmill.schemas.errors import UsageError


@pytest.fixture(scope="session")
def prism() -> str:
    """Path of the program; tests of Prism are skipped without it, but not in CI."""
    try:
        return find_program()
    except UsageError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def small_blocks(monkeypatch):
    """Cuts inputs into blocks of 100 kB, as if they were large."""
    plan = sources.plan_blocks
    monkeypatch.setattr(
        sources, "plan_blocks", lambda source: plan(replace(source, block_bytes=100_000))
    )
