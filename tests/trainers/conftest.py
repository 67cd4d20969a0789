"""Shared by tests of whole runs."""

import os
from pathlib import Path

import pytest

from textmill.trainers.run import summary


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Path:
    """A folder for JAX's compiled programs, which all processes of a test session share."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "compiled"


@pytest.fixture(scope="module")
def no_picture():
    """An empty file in place of the loss curve: drawing takes longer than the smallest run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "draw_curve", lambda lines, path, *_, **__: Path(path).touch())
        yield
