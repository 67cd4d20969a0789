"""Puts what a run made in the place of what was there: whole, or not at all.

Every directory has a seal, a file without which nobody takes it for a set, a tokenizer or an
export. It goes first and comes last. In a store, which cannot move files, they are copied there,
each once, and by the store itself.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from pipelines.storage import store
from pipelines.storage.store import disk_errors, is_url
from pipelines.writers.staging import STAGING, discard
from schemas.errors import DataError


def publish_files(
    output: str,
    seal: str,
    content: bytes,
    files: Mapping[str, tuple[str, int]],
    old: Iterable[str],
) -> None:
    """Moves files out of the staging folder into the directory; a second attempt goes on.

    Args:
      output: the directory.
      seal: the file that is written last.
      content: of the seal; on a disk it is written when all else is safe from a power cut.
      files: name of each other file to its name in the staging folder and its bytes.
      old: names that what was there before may have; they go, unless they are among the new ones.

    Raises:
      DataError: a file is neither staged nor in place, or cannot be moved.
    """
    old = [name for name in old if name not in files]
    with disk_errors(output):
        (_in_store if is_url(output) else _on_disk)(output, seal, files, old)
        store.write_file(os.path.join(output, seal), content)
    discard(os.path.join(output, STAGING))


def _on_disk(
    output: str, seal: str, files: Mapping[str, tuple[str, int]], old: Iterable[str]
) -> None:
    for name in (seal, *old):
        path = os.path.join(output, name)
        with suppress(FileNotFoundError):
            os.remove(path)
        if "/" in name:
            with suppress(OSError):  # the folder holds something else
                os.rmdir(os.path.dirname(path))
    folders = {output}
    for name, (staged, size) in files.items():
        waits, final = os.path.join(output, STAGING, staged), os.path.join(output, name)
        folders.add(os.path.dirname(final))
        if os.path.exists(waits):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(waits, final)
        elif not os.path.exists(final) or os.path.getsize(final) != size:
            raise DataError(f"{waits} is gone: something else cleans it up; run again")
    for folder in folders:
        store.sync(folder)


def _in_store(
    output: str, seal: str, files: Mapping[str, tuple[str, int]], old: Iterable[str]
) -> None:
    """What is staged goes when all is done, so that a second attempt finds it too."""
    store.delete([f"{output}/{seal}"])
    store.delete(f"{output}/{name}" for name in old)
    store.copy_all(
        {f"{output}/{STAGING}/{staged}": f"{output}/{name}" for name, (staged, _) in files.items()},
        {f"{output}/{name}": size for name, (_, size) in files.items()},
    )
