"""Shared by tests of whole runs."""

from pathlib import Path

import pytest

from trainers.run import start


@pytest.fixture(scope="module")
def no_picture():
    """An empty file in place of the loss curve: drawing takes longer than the smallest run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "draw_curve", lambda lines, path, *_, **__: Path(path).touch())
        yield
