"""Directories that no run may write into: those of the other command, and those of its inputs."""

import os
from collections.abc import Iterable

from pipelines.storage import store
from pipelines.storage.store import is_url
from schemas.errors import UsageError
from schemas.manifest import MANIFEST

TOKENIZER_REPORT = "report.json"  # only a directory of train_tokenizer has one
FOUND = "duplicates.json"  # only a directory of find_duplicates has one
# Files that shard sets never have.
_OTHERS = {
    TOKENIZER_REPORT: "a tokenizer",
    FOUND: "a result of find_duplicates",
    "tokenizer_config.json": "a tokenizer",
    "config.json": "a model or a run of a trainer",
}


def refuse_others(output: str, own: str = "") -> None:
    """Never writes over a tokenizer, a model or a run, whose files have the same names.

    Args:
      output: the directory.
      own: a file that may be there, since the command itself leaves it.

    Raises:
      UsageError: `output` is the directory of one.
    """
    for name, what in _OTHERS.items():
        if name != own and store.exists(os.path.join(output, name)):
            raise UsageError(
                f"--output={output} holds {what} ({name}), which must stay as it is: give another "
                "directory"
            )


def refuse_shard_set(output: str, own: str = "") -> None:
    """Never writes over a shard set, whose files, tokenizer.json among them, must stay as they are.

    Args:
      output: the directory.
      own: a file that shows that it is no shard set, but what the command itself leaves.

    Raises:
      UsageError: `output` is a shard set.
    """
    is_own = own and store.exists(os.path.join(output, own))
    if store.exists(os.path.join(output, MANIFEST)) and not is_own:
        raise UsageError(
            f"{output} is a shard set, which must stay as it is, its tokenizer.json too: give "
            "another --output"
        )


def refuse_own_inputs(output: str, paths: Iterable[str]) -> None:
    """Keeps inputs out of the directory that is written: the next run would read what this made.

    Args:
      output: the directory.
      paths: of the inputs.

    Raises:
      UsageError: one lies in it.
    """

    def real(folder: str) -> str:
        return os.path.join(folder if is_url(folder) else os.path.realpath(folder), "")

    seen: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        if folder in seen:
            continue
        seen.add(folder)
        if real(folder).startswith(real(output)):
            raise UsageError(
                f"--output={output} is where the input {path} lies: give another directory, or one "
                "below it, that holds nothing but what is made"
            )
