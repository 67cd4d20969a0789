"""Runs of the trainer without a framework, for tests of the loop."""

import json
from pathlib import Path

import pytest

from tests.tools.clm_factory import write_clm_set
from tests.tools.numpy_program import numpy_flags, numpy_trainer, remains_of
from textmill.trainers.run.start import train


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    """40 rows to train on, 10 to evaluate: batches of 4, 4, and 2 with 2 filling rows."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_clm_set(directory, step=0)
    return directory


@pytest.fixture(scope="module")
def whole(no_picture, shards, tmp_path_factory):
    """The content of an unbroken run's directory, by its further flags."""
    found = {}

    def remains(**changes):
        name = json.dumps(changes)
        if name not in found:
            output = tmp_path_factory.mktemp("whole") / "run"
            train(numpy_flags(shards, output, **changes), numpy_trainer())
            found[name] = remains_of(output)
        return found[name]

    return remains
