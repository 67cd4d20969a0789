"""The staging folder of an output directory: where files wait until all of them are right.

One run at a time: a lock that dies with its process keeps a second one out. Whatever happens, the
folder is gone afterwards, so that an interrupted run leaves nothing that a reader would open; or,
where the next run is to go on, it holds what was finished.
"""

import contextlib
import glob
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from pipelines.readers.sources import BLOCKS
from pipelines.storage import store, store_lock
from pipelines.storage.store import disk_errors, is_url
from schemas.errors import DataError, UsageError

STAGING, LOCK = ".staging", ".lock"


@dataclass(frozen=True)
class Staging:
    """Where a run keeps what is not published yet.

    Attributes:
      folder: below the output directory; every worker sees it.
      local: on the disk of the machine that launched the run: `folder`, unless that is in a store.
      run: names the run; the file LOCK in the output directory begins with it for as long.
    """

    folder: str
    local: str
    run: str = ""

    def scratch(self, *, local: bool) -> str:
        """Where workers put what they hand on to each other.

        Args:
          local: whether all of them are on this machine.
        """
        return os.path.join(self.local if local else self.folder, "scratch")


@contextmanager
def stage(output: str, *, resume: Callable[[str, str], None] | None = None) -> Iterator[Staging]:
    """Makes the directory and an empty staging folder in it, which is removed at the end.

    Args:
      output: the directory, on a disk or in a store.
      resume: moves what is worth it from an old staging folder into a new one. Given, it is called
        for what an earlier run left, and when this one dies. In a store all stays where it is.

    Raises:
      UsageError: another run is at work there, or the path is not a directory.
      DataError: it cannot be written.
    """
    staging = os.path.join(output, STAGING)
    with ExitStack() as stack:
        if is_url(output):
            if glob.has_magic(output):
                raise UsageError(f"--output={output}: stores take *, ? and [ for patterns")
            run = stack.enter_context(store_lock.hold(os.path.join(output, LOCK)))
            local = stack.enter_context(tempfile.TemporaryDirectory(prefix="textmill-"))
            found = Staging(staging, local, run)
        else:
            found = Staging(staging, staging, stack.enter_context(_lock_directory(output)))
        with disk_errors(staging):
            _begin(staging, resume)  # after a run that was killed
        try:
            yield found
            discard(staging)
        except BaseException:
            with contextlib.suppress(DataError, OSError):  # of a place that is gone: it is said
                if resume is None:
                    discard(staging)
                else:
                    _begin(staging, resume)
            raise


F = TypeVar("F")


def found_or_made(
    output: str,
    find: Callable[[], F | None],
    make: Callable[[Staging], Any],
    *,
    resume: Callable[[str, str], None] | None = None,
) -> F | None:
    """What is asked for, if the directory holds it; else makes and publishes it, and gives None.

    Args:
      output: the directory.
      find: finds it there. Called again when the directory is kept to this run: another may have
        published until then.
      make: leaves it there, by way of the staging folder.
      resume: see `stage`.
    """
    found = find()
    if found is None:
        with stage(output, resume=resume) as staging:
            found = find()
            if found is None:
                make(staging)
    return found


@contextmanager
def _lock_directory(output: str) -> Iterator[str]:
    """Makes the directory and keeps it to this process; yields the name of this run."""
    with disk_errors(os.path.join(output, STAGING)):
        try:
            os.makedirs(output, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(
                f"--output={output}: it is a file or lies below one; give a directory"
            ) from error
        path, run = os.path.join(output, LOCK), uuid.uuid4().hex
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise UsageError(
                f"another run writes into {output}: wait for it, or give another --output"
            ) from error
    # A cluster may go on with a job whose command was killed: its workers ask whose turn it is.
    try:
        with disk_errors(path), open(path, "r+") as file:
            file.write(run)
        yield run
    finally:
        with contextlib.suppress(OSError):
            os.truncate(path, 0)
        lock.release()


def check_turn(staging: str, run: str, *, publishes: bool = False) -> None:
    """Keeps a job from working where another run may have begun: nobody waits for it any more.

    Args:
      staging: the folder of the job.
      run: whose job it is; "" for whoever has the folder.
      publishes: whether it is about to. Else it is asked on a disk only: in a store that takes a
        request, and names of files there tell of their content.

    Raises:
      DataError: the run is over.
    """
    if publishes or not is_url(staging):
        store_lock.check(os.path.join(os.path.dirname(staging), LOCK), run)


def _begin(staging: str, resume: Callable[[str, str], None] | None) -> None:
    """Makes a new staging folder, with what is worth it of the old one."""
    if is_url(staging):  # where names of files tell of their content: none is taken for another
        if resume is None:
            discard(staging)
        return
    left = _set_aside(staging)
    os.mkdir(staging)
    if left and resume:
        resume(left, staging)
    for aside in glob.glob(f"{glob.escape(staging)}.*"):  # and of runs that were killed at this
        shutil.rmtree(aside, ignore_errors=True)


def discard(staging: str) -> None:
    """Removes a staging folder, even under the hands of a worker that still writes into it."""
    if is_url(staging):
        # A listing that lags may lack the file whose absence ends the run.
        store.delete([f"{staging}/{BLOCKS}"])
        store.delete_folder(staging)
        return
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
