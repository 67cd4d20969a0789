"""An output directory: locked by one run, filled in a staging folder, published atomically.

However a run ends, it removes its staging folder, so that an interrupted run leaves no file that a
reader would open; with --resume the folder keeps the finished shards. A template's launcher ends
before its job, whose last step publishes, removes the folder and ends the lock: until then both
stay, with all that the workers need.

A directory is complete once it has its seal, a file (MANIFEST.json, for one) that is removed first
and written last.
"""

import glob
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from textmill.pipelines.readers.sources import BLOCKS
from textmill.schemas.commands.entry import sigterm_as_interrupt
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import lock, store

STAGING = ".staging"
_FOLDERS = ("rejects", "removed")  # of published files


@dataclass(frozen=True)
class Staging:
    """The folders of a run's unpublished files.

    Attributes:
      folder: below the output directory, visible to every worker.
      local: `folder`; if that is in an object store, a folder on the launching machine's disk.
      run: the name of the run, which the lock file holds while it lasts.
    """

    folder: str
    local: str
    run: str = ""

    def scratch(self, *, local: bool) -> str:
        """The folder of files that workers pass to each other; `local`: all are on this machine."""
        return os.path.join(self.local if local else self.folder, "scratch")


@contextmanager
def stage(
    output: str, *, resume: Callable[[str, str], None] | None = None, hands_over: bool = False
) -> Iterator[Staging]:
    """Makes and locks the directory; yields an empty staging folder and removes it at the end.

    Args:
      output: the directory, on a disk or in an object store.
      resume: moves finished shards from an old staging folder to a new one: those of an earlier
        run at the start, and this run's own if it fails. In an object store all files stay.
      hands_over: whether folder and lock stay at the end, for a job that begins later.

    Raises:
      UsageError: another run holds the directory, the path is not a directory, or a folder in it
        is a link; a job that begins later would not see the directory.
      DataError: it cannot be written.
    """
    folder = os.path.join(output, STAGING)
    with sigterm_as_interrupt(), ExitStack() as stack:
        if store.is_url(output) and glob.has_magic(output):
            raise UsageError(
                f"{flag('output', output)}: in object stores, names with *, ? or [ are patterns; "
                "use another name"
            )
        if hands_over and not store.is_url(output):
            raise UsageError(
                f"{flag('output', output)} is on this machine's disk, which the job of a template "
                "does not see: give a bucket"
            )
        run, local = stack.enter_context(lock.hold(output, hands_over=hands_over)), folder
        if store.is_url(output):
            local = stack.enter_context(tempfile.TemporaryDirectory(prefix="textmill-"))
        else:
            for name in _FOLDERS:
                _refuse_link(os.path.join(output, name))
        with store.disk_errors(folder):
            _begin(folder, resume)  # after a run that was killed
        try:
            yield Staging(folder, local, run)
            if not hands_over:
                discard(folder)
        except BaseException:
            with suppress(DataError, OSError):  # the directory is gone, as the first error says
                if resume is None:
                    discard(folder)
                else:
                    _begin(folder, resume)
            raise


def _begin(staging: str, resume: Callable[[str, str], None] | None) -> None:
    """Makes a new staging folder; `resume` moves the finished shards of the old one into it."""
    if store.is_url(staging):  # names depend on content there, so old files do no harm
        if resume is None:
            discard(staging)
        return
    old = _set_aside(staging)
    os.mkdir(staging)
    if old and resume:
        resume(old, staging)
    for aside in glob.glob(f"{glob.escape(staging)}.*"):  # also of runs that were killed here
        shutil.rmtree(aside, ignore_errors=True)


def discard(staging: str) -> None:
    """Removes a staging folder, even if a worker still writes into it."""
    if store.is_url(staging):
        # The run ends once BLOCKS is gone, and a listing that lags may lack that file.
        store.delete([f"{staging}/{BLOCKS}"])
        store.delete_folder(staging)
    elif aside := _set_aside(staging):
        shutil.rmtree(aside, ignore_errors=True)


def _set_aside(staging: str) -> str | None:
    """Renames a staging folder, so that workers can open no more files in it."""
    aside = f"{staging}.{uuid.uuid4().hex}"
    try:
        os.rename(staging, aside)
    except FileNotFoundError:
        return None
    return aside


def check_turn(staging: str, run: str, *, publishes: bool = False) -> None:
    """Stops a job whose command has ended, as another run may use the directory by now.

    Args:
      staging: the folder of the job.
      run: the name of the job's run; "" for any that holds the lock.
      publishes: whether the job is about to publish. Other steps check on a disk only: in an
        object store a check costs a request, and names of staged files depend on their content.

    Raises:
      DataError: the run is over, or another one holds the lock.
    """
    output = os.path.dirname(staging)
    if publishes or not store.is_url(staging):
        if not lock.is_held_by(output, run):
            raise DataError(
                f"another run has begun in {output}, or this job's command has ended: this job "
                "published nothing"
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
    """Moves files from the staging folder into the directory; a second attempt continues.

    An object store cannot move files: it copies each one, on its own side.

    Args:
      output: the directory.
      run: the name of the run that publishes; "" for any that holds the lock.
      seal: the file that is written last.
      content: of the seal; on a disk it is written once all other files are synced.
      files: name of each other file -> (its name in the staging folder, its bytes).
      old: names that files of an earlier run may have; they are removed unless in `files`.

    Raises:
      DataError: a file is neither staged nor published, or cannot be moved, or another run has
        begun. The seal is not written then.
    """
    staging, old = os.path.join(output, STAGING), [name for name in old if name not in files]
    check_turn(staging, run, publishes=True)
    with store.disk_errors(output):
        (_move_in_store if store.is_url(output) else _move_on_disk)(output, [seal, *old], files)
        check_turn(staging, run, publishes=True)
        store.write_file(os.path.join(output, seal), content)
    discard(staging)
    if store.is_url(output):
        lock.end_left(output, run)


def _refuse_link(folder: str) -> None:
    """Raises UsageError for a folder that is a link: its files would be written elsewhere."""
    if os.path.islink(folder):
        raise UsageError(
            f"{folder} is a link to {os.path.realpath(folder)}, into which the run would write: "
            f"remove the link, or use another {flag('output')}"
        )


def _move_on_disk(output: str, old: list[str], files: Mapping[str, tuple[str, int]]) -> None:
    for folder in {os.path.dirname(name) for name in (*old, *files)} - {""}:
        _refuse_link(os.path.join(output, folder))  # it may have come during the run
    for name in old:
        path = os.path.join(output, name)
        with suppress(FileNotFoundError):
            os.remove(path)
        if "/" in name:
            with suppress(OSError):  # the folder has other files
                os.rmdir(os.path.dirname(path))
    folders = {output}
    for name, (staged, size) in files.items():
        source, final = os.path.join(output, STAGING, staged), os.path.join(output, name)
        folders.add(os.path.dirname(final))
        if os.path.exists(source):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(source, final)
        elif not os.path.exists(final) or os.path.getsize(final) != size:
            raise DataError(f"{source} is gone: another program removed it; run again")
    for folder in folders:
        store.sync(folder)


def _move_in_store(output: str, old: list[str], files: Mapping[str, tuple[str, int]]) -> None:
    """Copies staged files; they stay until all is published, so that a second attempt works."""
    place = partial(os.path.join, output)  # not f"{output}/...": it may end with a slash
    store.delete([place(old[0])])  # the seal, before all else
    store.delete(map(place, old[1:]))
    store.copy_all(
        {place(STAGING, staged): place(name) for name, (staged, _) in files.items()},
        {place(name): size for name, (_, size) in files.items()},
    )
