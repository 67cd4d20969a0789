"""Fixtures of the tests that compile programs of JAX."""

import pytest

from tests.tools.compile_cache import compiled_once


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Equal programs are compiled once for all tests of a file, their processes included."""
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield
