"""Output directories: datasets, corpora, tokenizers and runs, opened in one way wherever they are.

    info = read_dataset("gs://bucket/shards")
    corpus = open_finished(Corpus, "corpus")

MANIFEST.json, which is written last, lists all files. Whatever opens a directory first checks, in
this order: MANIFEST.json and every listed file are regular files inside the directory; their sizes;
the sha256 of the metadata files, their size limit, and that they are JSON of the expected types;
and that they agree with each other and with the manifest. `pipelines.verify` checks all contents.
A run goes on to write files, so it has no manifest: its settings carry their own sha256.
Python 3.8 syntax.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, ClassVar, ContextManager, Iterable, Iterator, Mapping, TypeVar

from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files import store
from textmill.schemas.files.set_files import (
    Cache,
    FinishedFiles,
    LocalFiles,
    check_link,
    open_files,
    read_listed,
)
from textmill.schemas.format.agreement import (
    REPORT,
    TOKENIZER,
    corpus_disagreements,
    disagreements,
    tokenizer_disagreements,
)
from textmill.schemas.format.corpus_metadata import (
    CARD,
    DOCUMENT_FILE,
    DOCUMENTS,
    CorpusSchema,
    CorpusStatistics,
)
from textmill.schemas.format.manifest import (
    HISTOGRAM,
    MANIFEST,
    Manifest,
    ManifestFile,
    check_unchanged,
)
from textmill.schemas.format.metadata import Inputs, Schema
from textmill.schemas.format.run_settings import CONFIG_JSON, RunSettings
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.format.tokenizer_report import TokenizerReport
from textmill.schemas.typed_json import (
    from_json,
    hash_json,
    parse_json,
    pause_collector,
    read_bounded,
)

K = TypeVar("K", bound="OutputDirectory")
D = TypeVar("D", bound="FinishedDirectory")


@dataclass(frozen=True)
class OutputDirectory(ABC):
    """A directory that a run wrote, and the metadata files that its kind has.

    Attributes:
      directory: its path or URL.
    """

    directory: str

    noun: ClassVar[str]  # in messages
    # Field -> the function that converts parsed JSON of FIELD.json, and names the file in errors.
    parsers: ClassVar[Mapping[str, Callable[[Any, str], Any]]]

    @abstractmethod
    def disagreements(self) -> Iterator[str]:
        """Yields each contradiction between the metadata files, a sentence."""

    def check_derived(self, values: Mapping[str, Any]) -> None:  # noqa: B027  most kinds have none
        """Checks values of the metadata files, as parsed JSON, that no field has."""

    @classmethod
    @abstractmethod
    def open_in(
        cls: type[K], directory: str, cache: Cache | None, *, verify: bool, follow_links: bool
    ) -> K:
        """Opens a directory; arguments and errors are those of `open_finished`."""

    @classmethod
    def _make(cls: type[K], directory: str, read: Callable[[str], bytes], **fields: Any) -> K:
        """Parses the metadata files, which `read` returns by their names."""
        values = {}
        for name in cls.parsers:
            place = os.path.join(directory, f"{name}.json")
            values[name] = parse_json(read(f"{name}.json"), place), place
        parts = {name: parse(*values[name]) for name, parse in cls.parsers.items()}
        found = cls(directory=directory, **fields, **parts)
        found.check_derived({name: value for name, (value, _) in values.items()})
        return found


@dataclass(frozen=True)
class FinishedDirectory(OutputDirectory):
    """A directory whose files a manifest lists.

    Attributes:
      manifest: MANIFEST.json.
      files: access to its files.
    """

    manifest: Manifest
    files: FinishedFiles = field(compare=False, repr=False)

    @classmethod
    def open_in(
        cls: type[D], directory: str, cache: Cache | None, *, verify: bool, follow_links: bool
    ) -> D:
        """See the base class."""
        if not store.is_url(directory) or cache is not None:
            files = open_files(directory, cache, verify=verify, follow_links=follow_links)
            if isinstance(files, LocalFiles):
                files.check_sizes()
            return cls._load_own(files)
        with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
            files = open_files(directory, Cache(folder))
            files.check_sizes()
            return cls._load_own(files)

    @classmethod
    def _load_own(cls: type[D], files: FinishedFiles) -> D:
        """`load`, if the directory is of this kind."""
        found = _kind_by_names(file.path for file in files.manifest.files)
        if found is cls:
            return cls.load(files)
        remedy = f"give the directory of a {cls.noun}"
        if (found, cls) == (Corpus, DatasetInfo):
            build = command_in_message("pipelines.build_shards")
            remedy = f"build a dataset from it, {build} {flag('input', 'CORPUS')}"
        raise DataError(f"{files.directory} is a {found.noun}, not a {cls.noun}: {remedy}")

    @classmethod
    def load(cls: type[D], files: FinishedFiles) -> D:
        """Reads the metadata files, and checks each by itself and its sha256.

        Raises:
          DataError: one is missing, changed or invalid.
        """
        read = partial(read_listed, files)
        return cls._make(files.directory, read, manifest=files.manifest, files=files)

    def locate(self, path: str) -> str:
        """The local path of a file of the directory; downloads it from an object store.

        Raises:
          DataError: the object store does not return the file.
        """
        return self.files.fetch(path)

    def open_temporarily(self, path: str) -> ContextManager[str]:
        """Like `locate` for one pass: a downloaded file is not kept."""
        return self.files.open_temporarily(path)

    def read(self, name: str) -> bytes:
        """Reads a file other than shards, and compares its sha256 with the manifest.

        Raises:
          DataError: the manifest does not list it, or it is missing, too large or was changed.
        """
        return read_listed(self.files, name, keep=False)

    def check_sums(self) -> None:
        """Compares the sha256 of all files with the manifest.

        Raises:
          DataError: a file differs, or is missing.
        """
        for file in self.manifest.files:
            with self.open_temporarily(file.path) as path:
                check_unchanged(path, file)

    def lists(self, name: str) -> bool:
        """Whether the manifest lists a file."""
        return any(file.path == name for file in self.manifest.files)


@dataclass(frozen=True)
class DatasetInfo(FinishedDirectory):
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

    @property
    def identity(self) -> str:
        """A hash of its fingerprint and documents, by which deltas name their ancestors."""
        files = [(file.path, file.rows, file.sha256) for file in self.documents]
        return hash_json([self.schema.fingerprint, files])

    def path(self, file: ManifestFile) -> str:
        """The path or URL of a file."""
        return os.path.join(self.directory, file.path)


@dataclass(frozen=True)
class TokenizerInfo(FinishedDirectory):
    """A finished tokenizer.

    Attributes:
      report: report.json.
    """

    report: TokenizerReport

    noun = "tokenizer"
    parsers = {"report": partial(from_json, TokenizerReport)}

    def disagreements(self) -> Iterator[str]:
        """See the base class."""
        return tokenizer_disagreements(self.report, self.manifest)


@dataclass(frozen=True)
class RunInfo(OutputDirectory):
    """A run of a trainer, which writes its settings first and goes on to write other files.

    Attributes:
      config: config.json.
      schema: schema.json of the rows.
    """

    config: RunSettings
    schema: Schema

    noun = "run"
    parsers = {"config": partial(from_json, RunSettings), "schema": Schema.from_dict}

    def disagreements(self) -> Iterator[str]:
        """See the base class."""
        content = _read_inside(self.directory, TOKENIZER)
        if hashlib.sha256(content).hexdigest() != self.schema.tokenizer_sha256:
            yield f"{TOKENIZER} is not the tokenizer of schema.json: its sha256 differs"

    @classmethod
    def open_in(
        cls, directory: str, cache: Cache | None, *, verify: bool, follow_links: bool
    ) -> RunInfo:
        """See the base class."""
        return cls._make(directory, partial(_read_inside, directory))


def read_run_settings(directory: str) -> RunSettings:
    """Reads the settings of a run, which has no other files while it starts.

    Raises:
      DataError: they are missing, changed or invalid.
    """
    path, content = os.path.join(directory, CONFIG_JSON), _read_inside(directory, CONFIG_JSON)
    return from_json(RunSettings, parse_json(content, path), path)


def _read_inside(directory: str, name: str) -> bytes:
    check_link(directory, name, follow=False)
    return read_bounded(os.path.join(directory, name))


def is_run(directory: str) -> bool:
    """Whether a directory has the files with which the run of a trainer begins."""
    return all(store.exists(os.path.join(directory, name)) for name in (CONFIG_JSON, "config.yaml"))


def kind_of(directory: str) -> type[FinishedDirectory] | None:
    """The kind of a directory with a manifest, by the names of its files; None for any other."""
    if not store.exists(os.path.join(directory, MANIFEST)):
        return None
    try:
        names = store.sizes(directory) if store.is_url(directory) else os.listdir(directory)
    except OSError:  # opening it fails with the cause
        return DatasetInfo
    return _kind_by_names(names)


def _kind_by_names(names: Iterable[str]) -> type[FinishedDirectory]:
    """The kind of a directory with a manifest; any but the others is a dataset."""
    there = {*names}
    if any(map(DOCUMENT_FILE.fullmatch, there)):
        return Corpus
    is_tokenizer = there & {REPORT, HISTOGRAM} and "schema.json" not in there
    return TokenizerInfo if is_tokenizer else DatasetInfo


def open_finished(
    kind: type[K],
    directory: str | os.PathLike[str],
    cache: Cache | None = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> K:
    """Opens a directory that a run wrote, and checks all but the contents of its other files.

    Args:
      kind: DatasetInfo, Corpus, TokenizerInfo or RunInfo; a RunInfo has no manifest.
      directory: the directory with MANIFEST.json, or its URL: gs://bucket/set.
      cache: for files from an object store, which are downloaded when they are needed. Without one,
        metadata files are downloaded for this call, and the sizes of all objects are checked.
      verify: whether to also compare the sha256 of files that are in the cache already.
      follow_links: see `schemas.files.set_files.LocalFiles`.

    Raises:
      DataError: it is not such a directory, or was changed; the message has the file.
      UsageError: no package reads this object store, or the cache cannot be written.
    """
    with pause_collector():
        found = kind.open_in(os.fspath(directory), cache, verify=verify, follow_links=follow_links)
        for problem in found.disagreements():
            raise DataError(f"{found.directory}: {problem}; copy or build the {kind.noun} again")
        return found


def read_dataset(
    directory: str | os.PathLike[str],
    cache: Cache | None = None,
    *,
    verify: bool = True,
    follow_links: bool = False,
) -> DatasetInfo:
    """Opens a finished dataset; in an object store, with a cache for files, that of the user.

    Arguments and errors are those of `open_finished`.
    """
    return open_finished(
        DatasetInfo, directory, cache or Cache(), verify=verify, follow_links=follow_links
    )


def note_unlisted(files: FinishedFiles) -> list[str]:
    """Notes on files that the manifest does not list.

    A README.md is the user's to edit, and hidden files, such as a lock, are not output.
    """
    listed = {MANIFEST, CARD, *(file.path for file in files.manifest.files)}
    return [f"{name} is not listed in {MANIFEST}" for name in files.names() if name not in listed]
