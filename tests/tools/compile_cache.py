"""JAX's cache of compiled programs, for tests that start one trainer again and again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest


@contextmanager
def compiled_once(directory: Path) -> Iterator[None]:
    """Equal programs are compiled once in here, those of started processes included."""
    settings: dict[str, Any] = {"jax_compilation_cache_dir": str(directory)}
    settings["jax_compilation_cache_max_size"] = 4 << 30  # with a limit, processes take turns
    settings["jax_persistent_cache_min_compile_time_secs"] = 0.0
    before = {name: getattr(jax.config, name) for name in settings}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield
    for name, value in before.items():
        jax.config.update(name, value)
