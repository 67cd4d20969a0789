"""Finds the files and datasets that --decontaminate names."""

import os
from hashlib import sha256
from typing import NamedTuple

from pipelines.readers.files import HUGGING_FACE, expand_lists, find_files
from pipelines.readers.formats import huggingface
from pipelines.storage import store
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST


class TargetFile(NamedTuple):
    """A file of records, or a dataset, with evaluation text.

    Attributes:
      sha256: sha256 of the file, of a Textmill dataset's manifest, or of the concatenated sha256 of
        a Hugging Face dataset's files.
      path: path or URL.
      is_set: whether it is a dataset that Textmill wrote.
    """

    sha256: str
    path: str
    is_set: bool


def target_files(patterns: tuple[str, ...]) -> tuple[TargetFile, ...]:
    """Finds all files, sorted by content; of equal files the first.

    Args:
      patterns: values of --decontaminate.

    Raises:
      DataError: a pattern matches no file.
    """
    files: dict[str, TargetFile] = {}
    for file in sorted(file for pattern in expand_lists(patterns) for file in _find(pattern)):
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
        raise type(error)(str(error).replace("--input=", "--decontaminate=")) from error
    return [TargetFile(store.sha256(path), path, is_set=False) for path in paths]
