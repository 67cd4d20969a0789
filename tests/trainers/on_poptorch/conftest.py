"""A set of two classes, and one thread: models here are too small for more."""

import pytest
import torch

from tests.tools.class_factory import write_class_set


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """Other tests need theirs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def shards(tmp_path_factory):
    """64 training rows and 24 of validation, two classes."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory)
    return directory
