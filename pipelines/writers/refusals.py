"""Directories that no run may write into: those of the other command, and those of its inputs."""

import os
from collections.abc import Iterable

from pipelines.storage import store
from pipelines.storage.store import is_url
from schemas.errors import UsageError
from schemas.manifest import MANIFEST

TOKENIZER_REPORT = "report.json"  # only a directory of train_tokenizer has one
# Files that shard sets never have.
_OTHERS = {
    TOKENIZER_REPORT: "a tokenizer",
    "tokenizer_config.json": "a tokenizer",
    "config.json": "a model or a run of a trainer",
}


def refuse_tokenizer(output: str) -> None:
    """Never writes a shard set over a tokenizer, a model or a run, whose files have the same names.

    Raises:
      UsageError: `output` is the directory of one.
    """
    for name, what in _OTHERS.items():
        if store.exists(os.path.join(output, name)):
            raise UsageError(
                f"--output={output} holds {what} ({name}), which must stay as it is: give another "
                "directory"
            )


def refuse_shard_set(output: str) -> None:
    """Never writes a tokenizer over the one that a shard set carries.

    Raises:
      UsageError: `output` is a shard set.
    """
    if store.exists(os.path.join(output, MANIFEST)):
        raise UsageError(
            f"{output} is a shard set, whose tokenizer.json must stay as it is: give another "
            "--output"
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
