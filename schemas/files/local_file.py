"""Opens files that others may have written. Python 3.8 syntax."""

import os
import stat
from typing import BinaryIO

from textmill.schemas.errors import DataError


def open_regular(path: str) -> BinaryIO:
    """Opens a regular file for reading; a pipe, a socket or a device is rejected at once.

    Opening a pipe would wait until another process writes into it, and a device may have no end.

    Raises:
      OSError: it cannot be opened.
      DataError: it is not a regular file.
    """
    return open(path, "rb", opener=_open_at_once)


def _open_at_once(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` itself rejects a folder
        os.close(file)
        raise DataError(
            f"{path} is not a regular file but a pipe or a device: replace it by a file"
        )
    return file
