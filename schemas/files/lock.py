"""The lock of an output directory of a builder's or a trainer's run, on a disk or in a bucket.

On a disk, the lock ends with its process. An object store has no such locks: a run keeps rewriting
the lock file with its name, and another run takes over a lock file that does not change.
Python 3.8 syntax.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import Iterator

from textmill.schemas.errors import DataError, TextmillError, UsageError, flag
from textmill.schemas.files import store

LOCK = ".lock"
BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 25.0  # for a beat over a slow network
_LEFT, _ENDED = " left", " ended"  # in place of the number of a beat: of a job that is left
_SETTLE_SECONDS = 1.0  # for another run that begins at the same moment


@contextmanager
def hold(output: str, *, hands_over: bool = False) -> Iterator[str]:
    """Makes and locks a directory; yields the name of this run, which the lock file holds.

    Args:
      output: the directory.
      hands_over: whether the lock file stays, in an object store, unless an error is raised: its
        run is a job that has not begun. The next run takes the directory over; it need not wait
        after `end_left`.

    Raises:
      UsageError: another run holds it, or it is not a directory.
      DataError: it cannot be written.
    """
    is_url = store.is_url(output)
    with _hold_in_store(output, hands_over) if is_url else _hold_on_disk(output) as run:
        yield run


def is_held_by(output: str, run: str) -> bool:
    """Whether a run holds a directory; any run if `run` is ""."""
    return _read(os.path.join(output, LOCK)).startswith(run)


def end_left(output: str, run: str) -> None:
    """Ends the lock of a job that its command has left; other locks end with their command.

    The file stays: if Beam repeats the last step of the job, that still holds the directory.
    """
    path = os.path.join(output, LOCK)
    if _read(path) == run + _LEFT:
        store.write_file(path, (run + _ENDED).encode())


@contextmanager
def _hold_on_disk(output: str) -> Iterator[str]:
    # Imported here: reading a directory does not need the package.
    from filelock import FileLock, Timeout

    path, run = os.path.join(output, LOCK), uuid.uuid4().hex
    with store.disk_errors(path):
        try:
            os.makedirs(output, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(
                f"{flag('output', output)} is a file, or below a file; name a directory"
            ) from error
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise _another_run(output) from error
    # A cluster may continue a job after its command was killed: workers compare the run's name.
    try:
        with store.disk_errors(path), open(path, "r+") as file:
            file.write(run)
        yield run
    finally:
        with suppress(OSError):
            os.truncate(path, 0)
        lock.release()


@contextmanager
def _hold_in_store(output: str, hands_over: bool) -> Iterator[str]:
    """Keeps rewriting the lock file."""
    path, run = os.path.join(output, LOCK), uuid.uuid4().hex
    old = _read(path)
    if old and not old.endswith(_ENDED):
        time.sleep(PATIENCE_SECONDS)
        if _read(path) not in (old, ""):
            raise _another_run(output)
    store.write_file(path, f"{run} 0".encode())
    time.sleep(_SETTLE_SECONDS)
    if not is_held_by(output, run):
        raise _another_run(output)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(output, run, ended), name="lock", daemon=True)
    beats.start()
    stays = False
    try:
        yield run
        stays = hands_over
    finally:
        ended.set()
        beats.join()
        with suppress(DataError):  # the object store is gone; the next run waits for the lock
            if is_held_by(output, run):
                if stays:
                    store.write_file(path, (run + _LEFT).encode())
                else:
                    store.delete([path])


def _beat(output: str, run: str, ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(BEAT_SECONDS):
        beat += 1
        with suppress(TextmillError, OSError):  # the next beat may succeed
            if not is_held_by(output, run):
                return
            store.write_file(os.path.join(output, LOCK), f"{run} {beat}".encode())


def _read(path: str) -> str:
    try:
        return store.read(path).decode()
    except FileNotFoundError:
        return ""


def _another_run(output: str) -> UsageError:
    return UsageError(
        f"another run writes into {output}: wait for it, or use another {flag('output')}"
    )
