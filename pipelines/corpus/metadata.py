"""The metadata files of a corpus: schema.json, stats.json, inputs.json, and all of them together.

A directory is a corpus if its schema.json says `"kind": "corpus"`. Its documents stand in
documents-00000-of-00016.parquet and so on, sorted by `id` from the first file to the last.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pipelines.readers.corpus_files import check_size
from pipelines.storage import store
from pipelines.writers.output_directory import CORPUS
from schemas.drops import (
    Funnel,
    Observed,
    check_counts,
    total_counts,
    total_observed,
)
from schemas.errors import DataError
from schemas.manifest import MANIFEST, Manifest, ManifestFile, parse_manifest
from schemas.metadata import Inputs, shard_name
from schemas.typed_json import (
    check,
    check_kinds,
    from_json,
    hash_json,
    number,
    one_of,
    parse_json,
)
from schemas.version import VERSION

FORMAT_VERSION = 1  # of documents and metadata files
DOCUMENTS = "documents"  # what its files are called, as a split names shards
FILLED = "documents_with_field"  # in `observed`, by kept field
NEAR_DUPLICATES = "removed/near_duplicates"  # and those of removed near-duplicates
FORMATS = {"parquet": "parquet", "jsonl": "jsonl.zst"}  # to the ending of a file
METADATA_FILES = ("schema.json", "stats.json", "inputs.json")
CARD = "README.md"  # which tells `datasets` the files of documents
_OTHERS = ("config.yaml", "report.html")
_OPTIONAL = (
    CARD,  # a user's own is left alone
    "decontamination.json",
    "rejects/contamination.jsonl",
    "rejects/filtered.jsonl",
    "rejects/rejects.jsonl",
)
BINS = 33  # bin b counts documents of 2**(b-1) <= words < 2**b; bin 0 those without words
_KINDS = {
    "kind": one_of(CORPUS),
    "format_version": number(FORMAT_VERSION, FORMAT_VERSION),
    "file_format": one_of(*FORMATS),
    "files": number(1, 99_999),
}


@dataclass(frozen=True, kw_only=True)
class CorpusSchema:
    """What a corpus holds and what decided it (schema.json).

    Attributes:
      parameters: what decides besides the input, by flag.
      columns: of the documents: id, text, and those that were kept.
      files: how many there are.
      file_format: parquet or jsonl.
      fingerprint: sha256 of all other fields; computed where it is not given.
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
        """Refuses what no corpus has, and a fingerprint of other fields."""
        check_kinds(vars(self), _KINDS)
        good = self.columns[:2] == ("id", "text") and len({*self.columns}) == len(self.columns)
        check(good, "columns", self.columns, "id, text and others, each once")
        values = {name: value for name, value in asdict(self).items() if name != "fingerprint"}
        expected = hash_json(values)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        remedy = f"the other fields give {expected}: the file was edited; build the corpus anew"
        check(self.fingerprint == expected, "fingerprint", self.fingerprint, remedy)

    @property
    def finds_near_duplicates(self) -> bool:
        """Whether near-duplicates were removed."""
        return "near_duplicates" in self.parameters

    def names(self) -> list[str]:
        """The files of documents: ["documents-00000-of-00001.parquet"]."""
        return self._files(DOCUMENTS, FORMATS[self.file_format])

    def removed_names(self) -> list[str]:
        """The files that list removed near-duplicates; none where they were kept."""
        return self._files(NEAR_DUPLICATES, "parquet") if self.finds_near_duplicates else []

    def _files(self, name: str, ending: str) -> list[str]:
        return [f"{shard_name(name, i, self.files)}.{ending}" for i in range(self.files)]

    def differences(self, other: "CorpusSchema") -> list[str]:
        """What differs, each in words: `min_words 5 there, 10 here`, `other` being there."""
        here, there = ({**vars(s), **s.parameters} for s in (self, other))
        return [
            f"{name} {there.get(name)!r} there, {here.get(name)!r} here"
            for name in sorted({*here, *there} - {"parameters", "fingerprint"})
            if _plain(here.get(name)) != _plain(there.get(name))
        ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def bins_of(words: np.ndarray) -> tuple[int, ...]:
    """Number of documents by the bit length of their number of words: BINS counts."""
    bits = np.frexp(np.asarray(words, np.float64))[1]
    return tuple(np.bincount(bits, minlength=BINS).tolist())


@dataclass(frozen=True)
class FileStatistics:
    """Counts of one file of documents.

    Attributes:
      documents: in it.
      text_bytes: UTF-8 bytes of them.
      words: of them, between white space.
      near_duplicates: documents that it does not hold, since they are similar to one that stays.
    """

    documents: int = 0
    text_bytes: int = 0
    words: int = 0
    near_duplicates: int = 0

    def __post_init__(self) -> None:
        """Refuses counts below zero."""
        check_counts(vars(self))

    @staticmethod
    def sum(files: "Iterable[FileStatistics]") -> "FileStatistics":
        """The counts of several files, or of parts of one."""
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
    """Counts of a corpus (stats.json); those of parts of a run add up.

    Attributes:
      documents_read: found in the inputs.
      source_bytes: of the inputs, after decompression.
      dropped: reason to number of documents that the corpus does not hold.
      observed: what rules count besides: {"language": {"nb": 3}}.
      funnel: what was given, and what of it was removed, by reason.
      files: counts by name of a file.
      lengths: documents by number of words, see `bins_of`.
    """

    documents_read: int = 0
    source_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=dict)
    funnel: Funnel = field(default_factory=Funnel)
    files: dict[str, FileStatistics] = field(default_factory=dict)
    lengths: tuple[int, ...] = (0,) * BINS

    def __post_init__(self) -> None:
        """Refuses counts below zero and a histogram of other bins."""
        check_counts({"documents_read": self.documents_read, "source_bytes": self.source_bytes})
        check_counts(self.dropped)
        for section, counts in self.observed.items():
            # Edits may add bytes: a placeholder may be longer than what it stands for.
            sign = abs if section == "edited_bytes" else int
            check_counts({f"{section}.{name}": sign(count) for name, count in counts.items()})
        check(len(self.lengths) == BINS, "lengths", self.lengths, f"{BINS} counts")
        check_counts({f"lengths[{i}]": count for i, count in enumerate(self.lengths)})

    @staticmethod
    def sum(parts: "Iterable[CorpusStatistics]") -> "CorpusStatistics":
        """All of them as one."""
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
        """The counts of all files together."""
        return FileStatistics.sum(self.files.values())

    def broken_equations(self) -> list[str]:
        """The equations that do not hold, each as a sentence."""
        total = self.total()
        kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
        broken = list(self.funnel.broken_equations(kept, self.dropped))
        left = self.documents_read - sum(self.dropped.values())
        equations = {
            f"documents read - dropped is {left:,}, and {total.documents:,} are kept": left
            == total.documents,
            "lengths do not add up to the documents": sum(self.lengths) == total.documents,
            "files and reasons differ in near-duplicates": total.near_duplicates
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
        """The files of documents, in order."""
        return [file for file in self.manifest.files if file.split == DOCUMENTS]


def read_corpus(directory: str) -> Corpus:
    """Reads the metadata files of a corpus and checks them against each other.

    Sizes of all files are checked, and sha256 of the metadata files; `pipelines.verify` checks all.

    Raises:
      DataError: there is no corpus, or it is not as it was published; names the file.
    """
    path = os.path.join(directory, MANIFEST)
    if not store.exists(path):
        raise DataError(f"{directory} holds no corpus: it has no {MANIFEST}")
    manifest = parse_manifest(store.read(path), path)
    listed = {file.path: file for file in manifest.files}
    values = {}
    for name in METADATA_FILES:
        if name not in listed:
            raise DataError(f"{path} does not list {name}: build the corpus anew")
        values[name] = parse_json(_read_listed(directory, listed[name]), f"{directory}/{name}")
    corpus = Corpus(
        directory,
        from_json(CorpusSchema, values["schema.json"], f"{directory}/schema.json"),
        from_json(CorpusStatistics, values["stats.json"], f"{directory}/stats.json"),
        from_json(Inputs, values["inputs.json"], f"{directory}/inputs.json"),
        manifest,
    )
    for problem in _disagreements(corpus):
        raise DataError(f"{directory}: {problem}; copy the corpus again or build it anew")
    for file in manifest.files:
        check_size(directory, file)
    return corpus


def _read_listed(directory: str, file: ManifestFile) -> bytes:
    """A file of the corpus as it was published.

    Raises:
      DataError: it is missing, or was changed.
    """
    check_size(directory, file)
    path = os.path.join(directory, file.path)
    content = store.read(path)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(
            f"{path} was changed after the corpus was published: its sha256 is not the one in "
            f"{MANIFEST}; copy the corpus again or build it anew"
        )
    return content


def _disagreements(corpus: Corpus) -> Iterator[str]:
    """Where the metadata files are not of one corpus, each a sentence."""
    schema, stats, manifest = corpus.schema, corpus.stats, corpus.manifest
    if manifest.fingerprint != schema.fingerprint:
        yield "the fingerprints in MANIFEST.json and schema.json differ"
    rows = {file.path: file.rows for file in manifest.files if file.split is not None}
    splits = {file.path: file.split for file in manifest.files if file.split is not None}
    due = {name: DOCUMENTS for name in schema.names()}
    due |= {name: "near_duplicates" for name in schema.removed_names()}
    if splits != due:
        odd = sorted(name for name in {*splits, *due} if splits.get(name) != due.get(name))
        yield f"MANIFEST.json and schema.json differ in the files {odd[:3]}"
        return
    if stats.files.keys() != {*schema.names()}:
        yield "stats.json and schema.json differ in the files of documents"
        return
    for name, removed in zip(schema.names(), schema.removed_names() or schema.names(), strict=True):
        counts = stats.files[name]
        if rows[name] != counts.documents:
            yield f"{name} has {rows[name]:,} documents, where stats.json says {counts.documents:,}"
        if removed != name and rows[removed] != counts.near_duplicates:
            yield f"{removed} has {rows[removed]:,} rows, not {counts.near_duplicates:,}"
    yield from (f"stats.json: {sentence}" for sentence in stats.broken_equations())
    others = {file.path for file in manifest.files if file.split is None}
    for name in sorted({*METADATA_FILES, *_OTHERS} - others):
        yield f"MANIFEST.json does not list {name}, which every corpus has"
    for name in sorted(others - {*METADATA_FILES, *_OTHERS, *_OPTIONAL}):
        yield f"MANIFEST.json lists {name!r}, which no corpus has"
