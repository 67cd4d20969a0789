"""The blocks of a plan on their way to workers: in a file, so that any number makes a small job.

A Beam job carries what it creates: 100,000 files as blocks are 25 MB, and runners take a few.
"""

import os
import pickle

from pipelines.readers.sources import Block
from pipelines.storage.store import exists, read, write_file
from schemas.errors import DataError

_NAME = "blocks.pickle"


def write_blocks(staging: str, blocks: list[Block]) -> None:
    """Leaves them in the staging folder."""
    write_file(os.path.join(staging, _NAME), pickle.dumps(blocks))


def has_blocks(staging: str) -> bool:
    """Whether the staging folder still holds them."""
    return exists(os.path.join(staging, _NAME))


def read_blocks(staging: str) -> list[Block]:
    """Finds them there.

    Raises:
      DataError: this machine does not see the staging folder.
    """
    path = os.path.join(staging, _NAME)
    try:
        return pickle.loads(read(path))
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is not there for a worker: --output must lie on a file system that all "
            "workers share"
        ) from error
