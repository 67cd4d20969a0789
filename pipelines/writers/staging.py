"""An output directory: held by one run, filled in a staging folder, published at once.

On a disk the lock dies with its process. A store has no such locks: there a run writes its name
into the lock file and goes on rewriting it, and a run that finds a file that does not change takes
over. Whatever happens, the staging folder is gone afterwards, so that an interrupted run leaves
nothing that a reader would open; with --resume it holds what was finished.

A directory has a seal, a file without which nothing takes it for a set, a tokenizer or an export.
The seal goes first and comes last.
"""

import glob
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from pipelines.readers.sources import BLOCKS
from pipelines.storage import store
from pipelines.storage.store import disk_errors, is_url
from schemas.errors import DataError, TextmillError, UsageError

STAGING, LOCK = ".staging", ".lock"
BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 25.0  # for a beat over a slow network
_SETTLE_SECONDS = 1.0  # for another run that begins at the same moment
F = TypeVar("F")


@dataclass(frozen=True)
class Staging:
    """Where a run keeps what is not published yet.

    Attributes:
      folder: below the output directory; every worker sees it.
      local: on the disk of the machine that launched the run: `folder`, unless that is in a store.
      run: names the run, as the file LOCK in the output directory does for as long.
    """

    folder: str
    local: str
    run: str = ""

    def scratch(self, *, local: bool) -> str:
        """Where workers put what they hand on to each other, all of them on this machine or not."""
        return os.path.join(self.local if local else self.folder, "scratch")


def find_or_make(
    output: str,
    find: Callable[[], F | None],
    make: Callable[[Staging], Any],
    *,
    resume: Callable[[str, str], None] | None = None,
) -> F | None:
    """What `find` finds in the output directory; None where `make` made and published it.

    `find` is called again when this run holds the directory: another run may have published in the
    meantime. For `resume` see `stage`.
    """
    found = find()
    if found is None:
        with stage(output, resume=resume) as staging:
            found = find()
            if found is None:
                make(staging)
    return found


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
    folder, lock = os.path.join(output, STAGING), os.path.join(output, LOCK)
    with ExitStack() as stack:
        if is_url(output):
            if glob.has_magic(output):
                raise UsageError(f"--output={output}: stores take *, ? and [ for patterns")
            run = stack.enter_context(_lock_in_store(lock))
            local = stack.enter_context(tempfile.TemporaryDirectory(prefix="textmill-"))
        else:
            run, local = stack.enter_context(_lock_on_disk(lock)), folder
        with disk_errors(folder):
            _begin(folder, resume)  # after a run that was killed
        try:
            yield Staging(folder, local, run)
            discard(folder)
        except BaseException:
            with suppress(DataError, OSError):  # of a place that is gone, as the error tells
                if resume is None:
                    discard(folder)
                else:
                    _begin(folder, resume)
            raise


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
    elif left := _set_aside(staging):
        shutil.rmtree(left, ignore_errors=True)


def _set_aside(staging: str) -> str | None:
    """Renames a staging folder: opening a file in it fails from now on."""
    aside = f"{staging}.{uuid.uuid4().hex}"
    try:
        os.rename(staging, aside)
    except FileNotFoundError:
        return None
    return aside


# The lock


@contextmanager
def _lock_on_disk(path: str) -> Iterator[str]:
    """Makes the directory and keeps it to this process; yields the name of this run."""
    output, run = os.path.dirname(path), uuid.uuid4().hex
    with disk_errors(path):
        try:
            os.makedirs(output, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(
                f"--output={output}: it is a file or lies below one; give a directory"
            ) from error
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise _another_run(path) from error
    # A cluster may go on with a job whose command was killed: its workers ask whose turn it is.
    try:
        with disk_errors(path), open(path, "r+") as file:
            file.write(run)
        yield run
    finally:
        with suppress(OSError):
            os.truncate(path, 0)
        lock.release()


@contextmanager
def _lock_in_store(path: str) -> Iterator[str]:
    """Keeps the lock file fresh; yields the name of this run."""
    run, left = uuid.uuid4().hex, _read_lock(path)
    if left:
        time.sleep(PATIENCE_SECONDS)
        if _read_lock(path) not in (left, ""):
            raise _another_run(path)
    store.write_file(path, f"{run} 0".encode())
    time.sleep(_SETTLE_SECONDS)
    if not _read_lock(path).startswith(run):
        raise _another_run(path)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, run, ended), name="lock", daemon=True)
    beats.start()
    try:
        yield run
    finally:
        ended.set()
        beats.join()
        with suppress(DataError):  # of a store that is gone: the next run will wait
            if _read_lock(path).startswith(run):
                store.delete([path])


def _beat(path: str, run: str, ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(BEAT_SECONDS):
        beat += 1
        with suppress(TextmillError, OSError):  # the next one may get through
            if not _read_lock(path).startswith(run):
                return
            store.write_file(path, f"{run} {beat}".encode())


def _read_lock(path: str) -> str:
    try:
        return store.read(path).decode()
    except FileNotFoundError:
        return ""


def _another_run(path: str) -> UsageError:
    return UsageError(
        f"another run writes into {os.path.dirname(path)}: wait for it, or give another --output"
    )


def check_turn(staging: str, run: str, *, publishes: bool = False) -> None:
    """Keeps a job from working where another run may have begun: nobody waits for it any more.

    Args:
      staging: the folder of the job.
      run: whose job it is; "" for whoever has the folder.
      publishes: whether it is about to. Workers ask on a disk only: in a store that takes a
        request, and names of files there tell of their content.

    Raises:
      DataError: the run is over, or another has taken its lock.
    """
    output = os.path.dirname(staging)
    if publishes or not is_url(staging):
        if not _read_lock(os.path.join(output, LOCK)).startswith(run):
            raise DataError(
                f"another run has begun in {output}, or the one of this job is over: nothing of "
                "this job was published"
            )


# Publishing


def publish_files(
    output: str,
    run: str,
    seal: str,
    content: bytes,
    files: Mapping[str, tuple[str, int]],
    old: Iterable[str],
) -> None:
    """Moves files out of the staging folder into the directory; a second attempt goes on.

    A store cannot move files: it copies each once, on its own side.

    Args:
      output: the directory.
      run: that publishes; "" for whoever has the directory.
      seal: the file that is written last.
      content: of the seal; on a disk it is written when all else is safe from a power cut.
      files: name of each other file to its name in the staging folder and its bytes.
      old: names that what was there before may have; they go, unless they are among the new ones.

    Raises:
      DataError: a file is neither staged nor in place, or cannot be moved, or another run has
        begun: then there is no seal.
    """
    staging, old = os.path.join(output, STAGING), [name for name in old if name not in files]
    check_turn(staging, run, publishes=True)
    with disk_errors(output):
        (_move_in_store if is_url(output) else _move_on_disk)(output, [seal, *old], files)
        check_turn(staging, run, publishes=True)
        store.write_file(os.path.join(output, seal), content)
    discard(staging)


def _move_on_disk(output: str, old: list[str], files: Mapping[str, tuple[str, int]]) -> None:
    for name in old:
        path = os.path.join(output, name)
        with suppress(FileNotFoundError):
            os.remove(path)
        if "/" in name:
            with suppress(OSError):  # the folder holds something else
                os.rmdir(os.path.dirname(path))
    folders = {output}
    for name, (staged, size) in files.items():
        source, final = os.path.join(output, STAGING, staged), os.path.join(output, name)
        folders.add(os.path.dirname(final))
        if os.path.exists(source):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(source, final)
        elif not os.path.exists(final) or os.path.getsize(final) != size:
            raise DataError(f"{source} is gone: something else cleans it up; run again")
    for folder in folders:
        store.sync(folder)


def _move_in_store(output: str, old: list[str], files: Mapping[str, tuple[str, int]]) -> None:
    """What is staged goes when all is done, so that a second attempt finds it too."""
    store.delete([f"{output}/{old[0]}"])  # the seal, before all else
    store.delete(f"{output}/{name}" for name in old[1:])
    store.copy_all(
        {f"{output}/{STAGING}/{staged}": f"{output}/{name}" for name, (staged, _) in files.items()},
        {f"{output}/{name}": size for name, (_, size) in files.items()},
    )
