"""The staging folder of an output directory: where files wait until all of them are right.

One run at a time: a lock that dies with its process keeps a second one out. Whatever happens, the
folder is gone afterwards, so that an interrupted run leaves nothing that a reader would open; or,
where the next run is to go on, it holds what was finished.
"""

import errno
import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pipelines.input_files import is_remote
from schemas.errors import DataError, UsageError

STAGING = ".staging"


@contextmanager
def staged(output: str, *, resume: Callable[[str, str], None] | None = None) -> Iterator[str]:
    """Makes the directory and an empty staging folder in it, which is removed at the end.

    Args:
      output: the directory.
      resume: moves what is worth it from an old staging folder into a new one. Given, it is called
        for what an earlier run left, and when this one dies.

    Raises:
      UsageError: another run is at work there, or the path is not a local directory.
      DataError: it cannot be written.
    """
    if is_remote(output):
        raise UsageError(
            f"--output={output}: files are written to a file system that workers share; give a "
            "mounted path, and copy the finished directory to the store"
        )
    staging = os.path.join(output, STAGING)
    with disk_errors(staging):
        try:
            os.makedirs(output, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(
                f"--output={output}: it is a file or lies below one; give a directory"
            ) from error
        from filelock import FileLock, Timeout

        lock = FileLock(os.path.join(output, ".lock"), timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise UsageError(
                f"another run writes into {output}: wait for it, or give another --output"
            ) from error
    try:
        with disk_errors(staging):
            _begin(staging, resume)  # after a run that was killed
        yield staging
        discard(staging)
    except BaseException:
        if resume is None:
            discard(staging)
        else:
            with disk_errors(staging):
                _begin(staging, resume)
        raise
    finally:
        lock.release()


def refuse_own_inputs(output: str, paths: Iterable[str]) -> None:
    """Keeps inputs out of the directory that is written: the next run would read what this made.

    Args:
      output: the directory.
      paths: of the inputs.

    Raises:
      UsageError: one lies in it.
    """
    inside = os.path.join(os.path.realpath(output), "")
    seen: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        if is_remote(path) or folder in seen:
            continue
        seen.add(folder)
        if os.path.join(os.path.realpath(folder), "").startswith(inside):
            raise UsageError(
                f"--output={output} is where the input {path} lies: give another directory, or one "
                "below it, that holds nothing but what is made"
            )


def _begin(staging: str, resume: Callable[[str, str], None] | None) -> None:
    """Makes a new staging folder, with what is worth it of the old one."""
    left = _set_aside(staging)
    os.mkdir(staging)
    if left and resume:
        resume(left, staging)
    for aside in glob.glob(f"{glob.escape(staging)}.*"):  # and of runs that were killed at this
        shutil.rmtree(aside, ignore_errors=True)


def discard(staging: str) -> None:
    """Removes a staging folder, even under the hands of a worker that still writes into it."""
    left = _set_aside(staging)
    if left:
        shutil.rmtree(left, ignore_errors=True)


def _set_aside(staging: str) -> str | None:
    """Renames a staging folder: whoever opens a file in it from now on fails."""
    aside = f"{staging}.{uuid.uuid4().hex}"
    try:
        os.rename(staging, aside)
    except FileNotFoundError:
        return None
    return aside


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turns what a disk refuses into a paragraph that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(os.path.dirname(path)).free
            raise DataError(
                f"no space left while writing {path} ({free / 1e6:,.0f} MB free): free some or "
                "give another --output, and run again; nothing was published"
            ) from error
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def write_file(path: str, content: bytes) -> None:
    """Writes a small file whole or not at all."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with disk_errors(path):
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)
