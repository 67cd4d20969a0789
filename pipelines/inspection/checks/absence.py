"""Searches datasets, and the cache of this host, for listed documents; for `verify --absent`.

A dataset is searched by the documents of its rows. Undescribed files that may hold text, such as
those of a killed run, are problems, too: a listed document may be in them.
"""

import glob
import os
import re
import tempfile
from collections.abc import Iterator, Mapping

from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.tasks.task import TextTask, task_class
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError, describe_refusal
from textmill.schemas.files import store
from textmill.schemas.files.cache import cache_key
from textmill.schemas.files.finished import DatasetInfo, open_finished
from textmill.schemas.files.lock import LOCK
from textmill.schemas.format.corpus_metadata import CARD
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.manifest import EVALUATION, MANIFEST, ROW_DOCUMENTS, parse_manifest
from textmill.schemas.format.row_documents import RowDocuments

_ROWS_SHOWN = 5  # of a document in a shard
_KEY = re.compile("[0-9a-f]{64}")  # the directory of a dataset in a cache
# A shard, a piece of one, or a download of either; not the documents of its rows.
_SHARD = re.compile(rf"([A-Za-z][A-Za-z0-9_]*-\d{{5}}-of-\d{{5}})\.(?!{ROW_DOCUMENTS}\b).*")


def search_dataset(directory: str, listed: Digests, *, follow_links: bool = False) -> Findings:
    """Searches the rows of a dataset for documents; for `follow_links` see `open_finished`.

    Raises:
      DataError: the dataset cannot be opened.
    """
    info = open_finished(DatasetInfo, directory, follow_links=follow_links)
    findings = Findings()
    for file in info.manifest.files:
        if file.split is not None and not file.is_shard:
            with info.open_temporarily(file.path) as path:
                findings.problems += _search_rows(path, file.path, listed)
    if not issubclass(task_class(info.schema.task), TextTask):
        findings.notes.append(
            f"documents of {info.schema.task} have the hash of all their fields, not the `id` of a "
            "corpus: the list must have the digests that inspect_shards prints"
        )
    return findings


def find_unlisted(directory: str) -> tuple[str, list[str]]:
    """Finds the files of a finished directory that its manifest does not list.

    A README.md is the user's own, and a lock is empty.

    Returns:
      The name of the directory in a cache, and a sentence for each file or hidden folder.
    """
    path = f"{directory.rstrip('/')}/{MANIFEST}"
    content = store.read(path)
    listed = {MANIFEST, LOCK, CARD, *(file.path for file in parse_manifest(content, path).files)}
    names = store.sizes(directory) if store.is_url(directory) else _names(directory)
    others = sorted(set(names) - listed)
    tops = {name.split("/")[0] if name.startswith(".") else name: None for name in others}
    return cache_key(content), [
        f"{top} is not listed in {MANIFEST} and was not searched: delete it or move it away"
        for top in tops
    ]


def search_cache(cache: str, listed: Digests, is_clean: Mapping[str, bool]) -> list[str]:
    """Searches the datasets of a cache, with the pieces and parts of their shards.

    Args:
      cache: the directory, which may be missing.
      listed: the documents.
      is_clean: name in a cache -> whether no document was found, of directories that were searched.

    Returns:
      A sentence for each problem.

    Raises:
      DataError: the directory cannot be read.
    """
    problems = []
    try:
        keys = sorted(os.listdir(cache)) if os.path.isdir(cache) else []
    except OSError as error:
        raise describe_refusal(cache, error) from error
    for key in keys:
        folder = os.path.join(cache, key)
        if not _KEY.fullmatch(key) or is_clean.get(key):
            continue
        names = [name for name in _names(folder) if not name.startswith(".")]
        if key not in is_clean:
            problems += _search_cached(folder, names, listed)
        elif names:
            problems.append(f"{key} has files of a dataset that holds them: delete {folder}")
    return problems


def find_temporary() -> list[str]:
    """The temporary folders of runs on this host, which a killed run leaves behind."""
    folders = glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), "textmill-*", ""))
    return sorted(
        folder for folder in folders if not os.access(folder, os.R_OK) or os.listdir(folder)
    )


def _search_cached(folder: str, names: list[str], listed: Digests) -> Iterator[str]:
    """Searches the files of a dataset in a cache, of which only the documents of rows are known."""
    matches = {name: _SHARD.fullmatch(os.path.basename(name)) for name in names}
    stems = {match[1] for match in matches.values() if match}
    key, unknown = os.path.basename(folder), [name for name in names if name == EVALUATION]
    for stem in sorted(stems):
        name = f"{stem}.{ROW_DOCUMENTS}"
        try:
            problems = list(_search_rows(os.path.join(folder, name), f"{key}/{name}", listed))
        except DataError:
            unknown += [name for name, match in matches.items() if match and match[1] == stem]
            continue
        yield from (f"{problem}: delete {folder}" for problem in problems)
    if unknown:
        yield (
            f"{key} has {number_of(len(unknown), 'file')} of rows whose documents are not known, "
            f"such as {min(unknown)}: delete {folder}, or verify its dataset in the same call"
        )


def _search_rows(path: str, name: str, listed: Digests) -> Iterator[str]:
    """Yields a sentence for each listed document in the rows of a shard.

    Raises:
      DataError: the file is missing or damaged.
    """
    for digest, rows in sorted(RowDocuments(path).find_documents(listed).items()):
        shown = ", ".join(f"{row:,}" for row in rows[:_ROWS_SHOWN])
        more = f" and {len(rows) - _ROWS_SHOWN:,} more" if len(rows) > _ROWS_SHOWN else ""
        noun = "row" if len(rows) == 1 else "rows"
        yield f"{name}: document {digest.hex()} is in {noun} {shown}{more}"


def _names(directory: str) -> Iterator[str]:
    """All files of a directory at any depth, hidden ones and links to folders included."""
    for folder, folders, names in os.walk(directory):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*names, *links):
            yield os.path.relpath(os.path.join(folder, name), directory).replace(os.sep, "/")
