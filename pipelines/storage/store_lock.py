"""One run at a time in a folder of a store, which has no locks that die with their process.

A run writes its name into a file and goes on rewriting it. Who finds such a file looks again after
a while: one that has not changed was left by a run that died.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.storage import store
from schemas.errors import DataError, TextmillError, UsageError

BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 25.0  # for a beat over a slow network
_SETTLE_SECONDS = 1.0  # for another run that begins at the same moment


@contextmanager
def hold(path: str) -> Iterator[str]:
    """Holds the lock; yields the name of this run.

    Args:
      path: of the lock's file.

    Raises:
      UsageError: another run holds it.
      DataError: the store cannot be written.
    """
    run = uuid.uuid4().hex
    found = _content(path)
    if found:
        time.sleep(PATIENCE_SECONDS)
        if _content(path) not in (found, ""):
            raise _taken_error(path)
    store.write_file(path, f"{run} 0".encode())
    time.sleep(_SETTLE_SECONDS)
    if not _content(path).startswith(run):
        raise _taken_error(path)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, run, ended), name="lock", daemon=True)
    beats.start()
    try:
        yield run
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(DataError):  # of a store that is gone: who comes next will wait
            if _content(path).startswith(run):
                store.delete([path])


def check(path: str, run: str) -> None:
    """Makes sure that a run holds the lock still.

    Raises:
      DataError: another has taken it, for this one seemed dead.
    """
    if not _content(path).startswith(run):
        raise DataError(
            f"another run has begun in {path.rpartition('/')[0]}, or the one of this job is over: "
            "nothing of this job was published"
        )


def _taken_error(path: str) -> UsageError:
    return UsageError(
        f"another run writes into {path.rpartition('/')[0]}: wait for it, or give another --output"
    )


def _content(path: str) -> str:
    try:
        return store.read(path).decode()
    except FileNotFoundError:
        return ""


def _beat(path: str, run: str, ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(BEAT_SECONDS):
        beat += 1
        try:
            if not _content(path).startswith(run):
                return
            store.write_file(path, f"{run} {beat}".encode())
        except (TextmillError, OSError):
            continue  # the next one may get through
