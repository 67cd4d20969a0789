"""Finished directories: datasets and corpora, opened in one way wherever they are.

    info = read_set("gs://bucket/shards")
    corpus = open_finished(Corpus, "corpus")

MANIFEST.json, which is written last, lists all files. Whatever opens a directory first checks, in
this order: MANIFEST.json and every listed file are regular files inside the directory; their sizes;
the sha256 of the metadata files, their size limit, and that they are JSON of the expected types;
and that they agree with each other and with the manifest. `pipelines.verify` checks all contents.
Python 3.8 syntax.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, ClassVar, ContextManager, Iterable, Iterator, Mapping, TypeVar

from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files import store
from textmill.schemas.files.set_files import (
    Cache,
    LocalFiles,
    SetFiles,
    open_files,
    read_listed,
)
from textmill.schemas.format.agreement import corpus_disagreements, disagreements
from textmill.schemas.format.corpus_metadata import (
    DOCUMENT_FILE,
    DOCUMENTS,
    CorpusSchema,
    CorpusStatistics,
)
from textmill.schemas.format.manifest import MANIFEST, Manifest, ManifestFile
from textmill.schemas.format.metadata import Inputs, Schema
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.typed_json import from_json, parse_json, pause_collector

D = TypeVar("D", bound="FinishedDirectory")


@dataclass(frozen=True)
class FinishedDirectory:
    """A directory, and the metadata files that its kind has.

    Attributes:
      directory: its path or URL.
      manifest: MANIFEST.json.
      files: access to its files.
    """

    directory: str
    manifest: Manifest
    files: SetFiles = field(compare=False, repr=False)

    noun: ClassVar[str]  # in messages
    # Field -> the function that converts parsed JSON of FIELD.json, and names the file in errors.
    parsers: ClassVar[Mapping[str, Callable[[Any, str], Any]]]

    def disagreements(self) -> Iterator[str]:
        """Yields each contradiction between the metadata files, a sentence."""
        raise NotImplementedError

    @classmethod
    def load(cls: type[D], files: SetFiles) -> D:
        """Reads the metadata files, and checks each by itself and its sha256.

        Raises:
          DataError: one is missing, changed or invalid.
        """
        values = {}
        for name in cls.parsers:
            content = read_listed(files, f"{name}.json")
            place = os.path.join(files.directory, f"{name}.json")
            values[name] = parse_json(content, place), place
        parts = {name: parse(*values[name]) for name, parse in cls.parsers.items()}
        found = cls(directory=files.directory, manifest=files.manifest, files=files, **parts)
        found.check_derived({name: value for name, (value, _) in values.items()})
        return found

    def check_derived(self, values: Mapping[str, Any]) -> None:
        """Checks values of the metadata files, as parsed JSON, that no field has."""

    def locate(self, path: str) -> str:
        """The local path of a file of the directory; downloads it from an object store.

        Raises:
          DataError: the object store does not return the file.
        """
        return self.files.fetch(path)

    def borrow(self, path: str) -> ContextManager[str]:
        """Like `locate` for one pass: a downloaded file is not kept."""
        return self.files.borrow(path)

    def read(self, name: str) -> bytes:
        """Reads a file other than shards, and compares its sha256 with the manifest.

        Raises:
          DataError: the manifest does not list it, or it is missing, too large or was changed.
        """
        return read_listed(self.files, name, keep=False)

    def lists(self, name: str) -> bool:
        """Whether the manifest lists a file."""
        return any(file.path == name for file in self.manifest.files)


@dataclass(frozen=True)
class SetInfo(FinishedDirectory):
    """A finished dataset.

    Attributes:
      schema: schema.json.
      stats: stats.json.
      inputs: inputs.json.
    """

    schema: Schema
    stats: Statistics
    inputs: Inputs

    noun = "dataset"
    parsers = {
        "schema": Schema.from_dict,
        "stats": Statistics.from_dict,
        "inputs": Inputs.from_dict,
    }

    def disagreements(self) -> Iterator[str]:
        """See the base class."""
        return disagreements(self.schema, self.stats, self.manifest)

    def check_derived(self, values: Mapping[str, Any]) -> None:
        """See the base class."""
        found, due = values["stats"]["row_tokens"], self.schema.row_tokens
        if found != due:
            raise DataError(
                f"{self.directory}/stats.json: row_tokens is {found}, not schema.json's {due}"
            )


@dataclass(frozen=True)
class Corpus(FinishedDirectory):
    """A finished corpus.

    Attributes:
      schema: schema.json.
      stats: stats.json.
      inputs: inputs.json.
    """

    schema: CorpusSchema
    stats: CorpusStatistics
    inputs: Inputs

    noun = "corpus"
    parsers = {
        "schema": partial(from_json, CorpusSchema),
        "stats": partial(from_json, CorpusStatistics),
        "inputs": Inputs.from_dict,
    }

    def disagreements(self) -> Iterator[str]:
        """See the base class."""
        return corpus_disagreements(self.schema, self.stats, self.manifest)

    @property
    def documents(self) -> list[ManifestFile]:
        """The files of documents, in the order of ids."""
        return [file for file in self.manifest.files if file.split == DOCUMENTS]

    def path(self, file: ManifestFile) -> str:
        """The path or URL of a file."""
        return os.path.join(self.directory, file.path)


def kind_of(directory: str) -> type[FinishedDirectory] | None:
    """The kind of a finished directory by the names of its files; None if it is not finished."""
    if not store.exists(os.path.join(directory, MANIFEST)):
        return None
    try:
        names = store.sizes(directory) if store.is_url(directory) else os.listdir(directory)
    except OSError:  # opening it fails with the cause
        return SetInfo
    return _kind_by_names(names)


def _kind_by_names(names: Iterable[str]) -> type[FinishedDirectory]:
    return Corpus if any(map(DOCUMENT_FILE.fullmatch, names)) else SetInfo


def open_finished(
    kind: type[D],
    directory: str | os.PathLike[str],
    cache: Cache | None = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> D:
    """Opens a finished directory and checks all but the contents of its other files.

    Args:
      kind: SetInfo or Corpus.
      directory: the directory with MANIFEST.json, or its URL: gs://bucket/set.
      cache: for files from an object store, which are downloaded when they are needed. Without one,
        metadata files are downloaded for this call, and the sizes of all objects are checked.
      verify: whether to also compare the sha256 of files that are in the cache already.
      follow_links: see `schemas.files.set_files.LocalFiles`.

    Raises:
      DataError: it is not such a directory, or was changed; the message has the file.
      UsageError: no package reads this object store, or the cache cannot be written.
    """
    place = os.fspath(directory)
    if store.is_url(place) and cache is None:
        with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
            files = open_files(place, Cache(folder))
            files.check_sizes()
            return _load(kind, files)
    with pause_collector():
        files = open_files(place, cache, verify=verify, follow_links=follow_links)
        if isinstance(files, LocalFiles):
            files.check_sizes()
        return _load(kind, files)


def _load(kind: type[D], files: SetFiles) -> D:
    found = _kind_by_names(file.path for file in files.manifest.files)
    if found is not kind:
        remedy = f"give the directory of a {kind.noun}"
        if (found, kind) == (Corpus, SetInfo):
            build = command_in_message("pipelines.build_shards")
            remedy = f"build a dataset from it, {build} {flag('input', 'CORPUS')}"
        raise DataError(f"{files.directory} is a {found.noun}, not a {kind.noun}: {remedy}")
    info = kind.load(files)
    for problem in info.disagreements():
        raise DataError(f"{files.directory}: {problem}; copy or build the {kind.noun} again")
    return info


def read_set(
    directory: str | os.PathLike[str],
    cache: Cache | None = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> SetInfo:
    """Opens a finished dataset; in an object store, with a cache for files, that of the user.

    Arguments and errors are those of `open_finished`.
    """
    return open_finished(
        SetInfo, directory, cache or Cache(), verify=verify, follow_links=follow_links
    )


def note_unlisted(files: SetFiles) -> list[str]:
    """Notes on files that the manifest does not list, except hidden ones, such as a lock."""
    listed = {MANIFEST, *(file.path for file in files.manifest.files)}
    return [f"{name} is not listed in {MANIFEST}" for name in files.names() if name not in listed]
