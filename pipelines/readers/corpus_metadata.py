"""The metadata files of a corpus: schema.json, stats.json, inputs.json, MANIFEST.json.

The schema.json of a corpus has `"kind": "corpus"`. Its documents are in
documents-00000-of-00016.parquet and so on, sorted by `id` from the first file to the last.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from textmill.pipelines.readers.page_hosts import PageHosts
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.set_files import Cache, LocalFiles, SetFiles, open_files, read_listed
from textmill.schemas.format.drops import (
    Funnel,
    Observed,
    check_counts,
    total_counts,
    total_observed,
)
from textmill.schemas.format.manifest import DECONTAMINATION, HOSTS, Manifest, ManifestFile
from textmill.schemas.format.metadata import METADATA_FILES, Inputs, setting_differences, shard_name
from textmill.schemas.typed_json import (
    check,
    check_constraints,
    from_json,
    hash_json,
    number,
    one_of,
    parse_json,
)
from textmill.schemas.version import VERSION

CORPUS = "corpus"  # `kind` in the schema.json of a corpus
DOCUMENTS = "documents"  # split of the files of documents in the manifest
REMEDY = "copy the corpus again or rebuild it"
FORMAT_VERSION = 1  # of documents and metadata files
FILLED = "documents_with_field"  # section of `observed`: number by kept field
NEAR_DUPLICATES = "removed/near_duplicates"  # first part of the names of their files
FORMATS = {"parquet": "parquet", "jsonl": "jsonl.zst"}  # file format -> extension
CARD = "README.md"  # the dataset card, in which `datasets` finds the files of documents
_OTHERS = ("config.yaml", "report.html")
_OPTIONAL = (
    CARD,  # not written over a user's own README.md
    DECONTAMINATION,
    HOSTS,
    "rejects/contamination.jsonl",
    "rejects/filtered.jsonl",
    "rejects/rejects.jsonl",
)
BINS = 33  # bin b counts documents with 2**(b-1) <= words < 2**b; bin 0, those without words
_M = TypeVar("_M")  # a metadata file
_CONSTRAINTS = {
    "kind": one_of(CORPUS),
    "format_version": number(FORMAT_VERSION, FORMAT_VERSION),
    "file_format": one_of(*FORMATS),
    "files": number(1, 99_999),
}


@dataclass(frozen=True, kw_only=True)
class CorpusSchema:
    """The columns and files of a corpus, and the settings it was built with (schema.json).

    Attributes:
      parameters: settings that decide the content besides the input, by flag.
      columns: columns of the documents: id, text, and the kept fields.
      files: number of files of documents.
      file_format: parquet or jsonl.
      fingerprint: sha256 of all other fields; computed if empty.
    """

    parameters: dict[str, Any]
    columns: tuple[str, ...]
    files: int
    file_format: str
    kind: str = CORPUS
    format_version: int = FORMAT_VERSION
    code_version: str = VERSION
    fingerprint: str = ""

    def __post_init__(self) -> None:
        """Rejects impossible values, and a fingerprint that does not match the other fields."""
        check_constraints(vars(self), _CONSTRAINTS)
        form = {"normalize": self.parameters.get("normalize", "none")}
        check_constraints(form, {"normalize": one_of("none", "nfc", "nfkc")})
        good = self.columns[:2] == ("id", "text") and len({*self.columns}) == len(self.columns)
        check(good, "columns", self.columns, "must begin with id and text, without duplicates")
        values = {name: value for name, value in asdict(self).items() if name != "fingerprint"}
        expected = hash_json(values)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        remedy = f"the other fields hash to {expected}, so the file was edited; {REMEDY}"
        check(self.fingerprint == expected, "fingerprint", self.fingerprint, remedy)

    def names(self) -> list[str]:
        """Names of the files of documents: ["documents-00000-of-00001.parquet"]."""
        return self._files(DOCUMENTS, FORMATS[self.file_format])

    def removed_names(self) -> list[str]:
        """Names of the files that list removed near-duplicates; [] if none were removed."""
        has_some = "near_duplicates" in self.parameters
        return self._files(NEAR_DUPLICATES, "parquet") if has_some else []

    def _files(self, name: str, ending: str) -> list[str]:
        return [f"{shard_name(name, i, self.files)}.{ending}" for i in range(self.files)]

    def differences(self, other: "CorpusSchema") -> list[str]:
        """Settings of this stored schema that differ from `other`, the requested one."""
        stored, requested = ({**vars(s), **s.parameters} for s in (self, other))
        return setting_differences(stored, requested)


def bins_of(words: np.ndarray) -> tuple[int, ...]:
    """Histogram of the bit lengths of numbers of words: BINS counts of documents."""
    bits = np.frexp(np.asarray(words, np.float64))[1]
    return tuple(np.bincount(bits, minlength=BINS).tolist())


@dataclass(frozen=True)
class FileStatistics:
    """Counts of one file of documents.

    Attributes:
      documents: number of documents in the file.
      text_bytes: UTF-8 bytes of their texts.
      words: words between white space in their texts.
      near_duplicates: number of documents of this partition removed as near-duplicates.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    near_duplicates: int = 0

    def __post_init__(self) -> None:
        """Rejects negative counts."""
        check_counts(vars(self))

    @staticmethod
    def sum(files: "Iterable[FileStatistics]") -> "FileStatistics":
        """Adds up the counts of several files, or of parts of one file."""
        rows = [tuple(vars(file).values()) for file in files]
        return FileStatistics(*map(sum, zip(*rows, strict=True))) if rows else FileStatistics()


def _add_files(parts: Iterable[Mapping[str, FileStatistics]]) -> dict[str, FileStatistics]:
    of_name: dict[str, list[FileStatistics]] = {}
    for part in parts:
        for name, file in part.items():
            of_name.setdefault(name, []).append(file)
    return {name: FileStatistics.sum(files) for name, files in of_name.items()}


@dataclass(frozen=True)
class CorpusStatistics:
    """Counts of a corpus (stats.json), or of a part of a run; parts add up.

    Attributes:
      documents_read: number of documents found in the inputs.
      source_bytes: bytes of the inputs after decompression.
      dropped: reason -> number of documents that the corpus does not hold.
      observed: further counts of rules: {"language": {"nb": 3}}.
      funnel: sizes of the documents that rules received, and of those removed, by reason.
      files: counts of each file, by name.
      lengths: histogram of words per document, see `bins_of`.
    """

    documents_read: int = 0
    source_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=dict)
    funnel: Funnel = field(default_factory=Funnel)
    files: dict[str, FileStatistics] = field(default_factory=dict)
    lengths: tuple[int, ...] = (0,) * BINS

    def __post_init__(self) -> None:
        """Rejects negative counts, and a histogram with another number of bins."""
        check_counts({"documents_read": self.documents_read, "source_bytes": self.source_bytes})
        check_counts(self.dropped)
        for section, counts in self.observed.items():
            # Edits may add bytes: a placeholder may be longer than the text it replaces.
            sign = abs if section == "edited_bytes" else int
            check_counts({f"{section}.{name}": sign(count) for name, count in counts.items()})
        check(len(self.lengths) == BINS, "lengths", self.lengths, f"{BINS} counts")
        check_counts({f"lengths[{i}]": count for i, count in enumerate(self.lengths)})

    @staticmethod
    def sum(parts: "Iterable[CorpusStatistics]") -> "CorpusStatistics":
        """Adds up parts."""
        parts = list(parts)
        return CorpusStatistics(
            documents_read=sum(part.documents_read for part in parts),
            source_bytes=sum(part.source_bytes for part in parts),
            dropped=total_counts(*(part.dropped for part in parts)),
            observed=total_observed(part.observed for part in parts),
            funnel=Funnel.sum(part.funnel for part in parts),
            files=_add_files(part.files for part in parts),
            lengths=tuple(np.sum([part.lengths for part in parts] or [(0,) * BINS], 0).tolist()),
        )

    def total(self) -> FileStatistics:
        """Adds up the counts of all files."""
        return FileStatistics.sum(self.files.values())

    def broken_equations(self) -> list[str]:
        """Sentences about counts that do not add up."""
        total = self.total()
        kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
        broken = list(self.funnel.broken_equations(kept, self.dropped))
        left = self.documents_read - sum(self.dropped.values())
        equations = {
            f"documents read minus dropped is {left:,}, but {total.documents:,} are kept": left
            == total.documents,
            "`lengths` does not add up to the documents kept": sum(self.lengths) == total.documents,
            "`files` and `dropped` differ in near-duplicates": total.near_duplicates
            == self.dropped.get("near_duplicates", 0),
        }
        return broken + [sentence for sentence, holds in equations.items() if not holds]


@dataclass(frozen=True)
class Corpus:
    """A finished corpus: its directory and its metadata files."""

    directory: str
    schema: CorpusSchema
    stats: CorpusStatistics
    inputs: Inputs
    manifest: Manifest

    @property
    def documents(self) -> list[ManifestFile]:
        """The files of documents, in the order of ids."""
        return [file for file in self.manifest.files if file.split == DOCUMENTS]


def read_corpus(directory: str, *, follow_links: bool = False) -> Corpus:
    """Reads the metadata files of a corpus and checks them against each other.

    Checks the sizes of all files and the sha256 of metadata files; `pipelines.verify` checks more.

    Args:
      directory: the directory with MANIFEST.json, or its URL.
      follow_links: see `schemas.files.set_files.LocalFiles`.

    Raises:
      DataError: the directory is no corpus; or a file is missing, was changed, or is a link out of
        the directory; names the file.
    """
    with _open(directory, follow_links=follow_links) as files:
        if isinstance(files, LocalFiles):
            files.check_sizes()
        else:
            _check_stored_sizes(files)
        corpus = Corpus(
            directory,
            _parse(CorpusSchema, files, "schema.json"),
            _parse(CorpusStatistics, files, "stats.json"),
            _parse(Inputs, files, "inputs.json"),
            files.manifest,
        )
    for problem in _disagreements(corpus):
        raise DataError(f"{directory}: {problem}; {REMEDY}")
    return corpus


def read_file(corpus: Corpus, name: str) -> bytes:
    """Reads a file of a corpus other than documents, and compares its sha256 with the manifest.

    Raises:
      DataError: the manifest does not list it, or it is missing or was changed.
    """
    with _open(corpus.directory) as files:
        return read_listed(files, name)


def read_hosts(corpus: Corpus) -> PageHosts:
    """Reads the web pages by host.

    Raises:
      DataError: the file is missing or was changed.
    """
    if all(file.path != HOSTS for file in corpus.manifest.files):
        return PageHosts()
    path = f"{corpus.directory}/{HOSTS}"
    return from_json(PageHosts, parse_json(read_file(corpus, HOSTS), path), path)


@contextmanager
def _open(directory: str, *, follow_links: bool = False) -> Iterator[SetFiles]:
    """Opens the files of a corpus; those of an object store are downloaded for this block."""
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield open_files(directory, Cache(folder), follow_links=follow_links)


def _parse(kind: type[_M], files: SetFiles, name: str) -> _M:
    path = f"{files.directory}/{name}"
    return from_json(kind, parse_json(read_listed(files, name), path), path)


def _check_stored_sizes(files: SetFiles) -> None:
    """Compares the size of every object with the manifest."""
    for file in files.manifest.files:
        path = f"{files.directory}/{file.path}"
        size = store.size(path)
        if size != file.bytes:
            what = "is missing" if size is None else f"has {size:,} bytes, not {file.bytes:,}"
            raise DataError(f"{path} {what}: {REMEDY}")


def _disagreements(corpus: Corpus) -> Iterator[str]:
    """Sentences about contradictions between the metadata files."""
    schema, stats, manifest = corpus.schema, corpus.stats, corpus.manifest
    if manifest.fingerprint != schema.fingerprint:
        yield "the fingerprints in MANIFEST.json and schema.json differ"
    rows = {file.path: file.rows for file in manifest.files if file.split is not None}
    splits = {file.path: file.split for file in manifest.files if file.split is not None}
    expected = {name: DOCUMENTS for name in schema.names()}
    expected |= {name: "near_duplicates" for name in schema.removed_names()}
    if splits != expected:
        odd = sorted(n for n in {*splits, *expected} if splits.get(n) != expected.get(n))
        yield f"MANIFEST.json and schema.json differ in the files {odd[:3]}"
        return
    if stats.files.keys() != {*schema.names()}:
        yield "stats.json and schema.json differ in the files of documents"
        return
    for name, removed in zip(schema.names(), schema.removed_names() or schema.names(), strict=True):
        counts = stats.files[name]
        if rows[name] != counts.documents:
            yield f"{name}: MANIFEST.json counts {rows[name]:,} documents, stats.json " + (
                f"{counts.documents:,}"
            )
        if removed != name and rows[removed] != counts.near_duplicates:
            yield f"{removed}: MANIFEST.json counts {rows[removed]:,} rows, stats.json " + (
                f"{counts.near_duplicates:,}"
            )
    yield from (f"stats.json: {sentence}" for sentence in stats.broken_equations())
    others = {file.path for file in manifest.files if file.split is None}
    for name in sorted({*METADATA_FILES, *_OTHERS} - others):
        yield f"MANIFEST.json does not list {name}, which every corpus has"
    for name in sorted(others - {*METADATA_FILES, *_OTHERS, *_OPTIONAL}):
        yield f"MANIFEST.json lists {name!r}, which is no file of a corpus"
