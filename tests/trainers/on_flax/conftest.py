"""Fixtures of the tests that compile programs of JAX."""

from pathlib import Path

import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.compile_cache import compiled_once


@pytest.fixture(scope="module")
def cache(compiled):
    """Equal programs are compiled once for all tests, their processes included."""
    with compiled_once(compiled):
        yield


@pytest.fixture(scope="package")
def shards(tmp_path_factory) -> Path:
    """40 training rows and 10 of validation, for a causal model."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_clm_set(directory)
    return directory
