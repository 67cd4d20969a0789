"""The files that --decontaminate names, in an order of their content."""

import os
from hashlib import sha256
from typing import NamedTuple

from pipelines.readers.files import HUGGING_FACE, expand_lists, find_files
from pipelines.readers.formats import huggingface
from pipelines.storage import store
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST


class TargetFile(NamedTuple):
    """A file of records, or a shard set, in which evaluation text stands.

    Attributes:
      sha256: of the file; of a shard set that of its manifest, which has those of all its files; of
        a Hugging Face dataset that of its files' in a row.
      path: as it was found.
      is_set: whether it is a shard set.
    """

    sha256: str
    path: str
    is_set: bool


def target_files(given: tuple[str, ...]) -> tuple[TargetFile, ...]:
    """All that is named, by content: in whatever order, and of equal files the first.

    Args:
      given: values of --decontaminate.

    Raises:
      DataError: there is nothing at a place that is named.
    """
    files: dict[str, TargetFile] = {}
    for file in sorted(file for pattern in expand_lists(given) for file in _find(pattern)):
        files.setdefault(file.sha256, file)
    return tuple(files.values())


def _find(pattern: str) -> list[TargetFile]:
    manifest = os.path.join(pattern, MANIFEST)
    if store.exists(manifest):
        return [TargetFile(store.sha256(manifest), pattern, is_set=True)]
    try:
        if pattern.startswith(HUGGING_FACE):
            stored = huggingface.find_split(pattern.removeprefix(HUGGING_FACE)).paths
            digests = "".join(map(store.sha256, stored))
            return [TargetFile(sha256(digests.encode()).hexdigest(), pattern, is_set=False)]
        paths = [path for path, _ in find_files(pattern, label_folders=False)]
    except (DataError, UsageError) as error:
        said = str(error).replace("--input=", "--decontaminate=")
        raise type(error)(said) from error
    return [TargetFile(store.sha256(path), path, is_set=False) for path in paths]
