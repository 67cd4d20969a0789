"""The metadata files of a corpus: schema.json and stats.json; inputs.json is that of a dataset.

The schema.json of a corpus has `"kind": "corpus"`. Its documents are in
documents-00000-of-00016.parquet and so on, sorted by `id` from the first file to the last.
Python 3.8 syntax.
"""

import math
import re
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Dict, Iterable, List, Mapping, Tuple

import numpy as np

from textmill.schemas.format.drops import (
    Funnel,
    Observed,
    check_counts,
    total_counts,
    total_observed,
)
from textmill.schemas.format.metadata import setting_differences, shard_name
from textmill.schemas.typed_json import check, check_constraints, hash_json, number, one_of
from textmill.schemas.version import VERSION

CORPUS = "corpus"  # `kind` in the schema.json of a corpus
DOCUMENTS = "documents"  # split of the files of documents in the manifest
REMEDY = "copy the corpus again or rebuild it"
FORMAT_VERSION = 1  # of documents and metadata files
FILLED = "documents_with_field"  # section of `observed`: number by kept field
NEAR_DUPLICATES = "removed/near_duplicates"  # first part of the names of their files
SIGNATURES = "signatures"  # split and folder of signatures of near-duplicates
OLDER_DUPLICATES = "older_duplicates"  # documents that a corpus of --against has
FORMATS = {"parquet": "parquet", "jsonl": "jsonl.zst"}  # file format -> extension
DOCUMENT_FILE = re.compile(r"documents-[0-9]{5}-of-[0-9]{5}\.(parquet|jsonl\.zst)")
CARD = "README.md"  # the dataset card, in which `datasets` finds the files of documents
NOT_BEST = "not_best"  # the reason of documents that are not in the share of --keep_best
BINS = 33  # bin b counts documents with 2**(b-1) <= words < 2**b; bin 0, those without words
_NORMALIZE = one_of("none", "nfc", "nfkc")
_CONSTRAINTS = {
    "kind": one_of(CORPUS),
    "format_version": number(FORMAT_VERSION, FORMAT_VERSION),
    "file_format": one_of(*FORMATS),
    "files": number(1, 99_999),
}


@dataclass(frozen=True)
class CorpusSchema:
    """The columns and files of a corpus, and the settings it was built with (schema.json).

    Attributes:
      parameters: settings that decide the content besides the input, by flag.
      columns: columns of the documents: id, text, and the kept fields.
      files: number of files of documents.
      file_format: parquet or jsonl.
      fingerprint: sha256 of all other fields; computed if empty.
    """

    parameters: Dict[str, Any]
    columns: Tuple[str, ...]
    files: int
    file_format: str
    kind: str = CORPUS
    format_version: int = FORMAT_VERSION
    code_version: str = VERSION
    fingerprint: str = ""

    def __post_init__(self) -> None:
        """Rejects impossible values, and a fingerprint that does not match the other fields."""
        check_constraints(vars(self), _CONSTRAINTS)
        check_constraints({"normalize": self.normalize}, {"normalize": _NORMALIZE})
        share = self.keep_best
        good = isinstance(share, (int, float)) and 0 < share <= 1
        check(good, "keep_best", share, "must be above 0, up to 1")
        good = self.columns[:2] == ("id", "text") and len({*self.columns}) == len(self.columns)
        check(good, "columns", self.columns, "must begin with id and text, without duplicates")
        values = {name: value for name, value in asdict(self).items() if name != "fingerprint"}
        expected = hash_json(values)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        remedy = f"the other fields hash to {expected}, so the file was edited; {REMEDY}"
        check(self.fingerprint == expected, "fingerprint", self.fingerprint, remedy)

    @property
    def normalize(self) -> str:
        """Unicode form of the texts: none, nfc or nfkc."""
        return self.parameters.get("normalize", "none")

    @property
    def keep_best(self) -> float:
        """Share of the documents that were kept of those that all other steps left."""
        return self.parameters.get("keep_best", 1.0)

    def names(self) -> List[str]:
        """Names of the files of documents: ["documents-00000-of-00001.parquet"]."""
        return self._files(DOCUMENTS, FORMATS[self.file_format])

    def removed_names(self) -> List[str]:
        """Names of the files that list removed near-duplicates; [] if none were removed."""
        has_some = "near_duplicates" in self.parameters
        return self._files(NEAR_DUPLICATES, "parquet") if has_some else []

    def signature_names(self) -> List[str]:
        """Names of the files of signatures, which corpora without near-duplicates have."""
        has_some = "near_duplicates" in self.parameters
        return self._files(f"{SIGNATURES}/{DOCUMENTS}", "npy") if has_some else []

    @property
    def ancestors(self) -> Tuple[str, ...]:
        """Identities of the corpora that it was built against."""
        return tuple(self.parameters.get("against", ()))

    def older_names(self) -> List[str]:
        """Names of the files that list documents of older corpora; [] without ancestors."""
        return self._files(f"removed/{OLDER_DUPLICATES}", "parquet") if self.ancestors else []

    def _files(self, name: str, ending: str) -> List[str]:
        return [f"{shard_name(name, i, self.files)}.{ending}" for i in range(self.files)]

    def differences(self, other: "CorpusSchema") -> List[str]:
        """Settings of this stored schema that differ from `other`, the requested one."""
        stored, requested = ({**vars(s), **s.parameters} for s in (self, other))
        return setting_differences(stored, requested)


def partition_of(digests: np.ndarray, partitions: int) -> np.ndarray:
    """The partition, which is the file, of each document, by the first 32 bits of its hash.

    Args:
      digests: uint8 [n, 16], of texts. Partitions ascend with them.
      partitions: number of files of documents.

    Returns:
      int64 [n].
    """
    first = np.ascontiguousarray(digests[:, :4]).view(">u4").reshape(-1).astype(np.int64)
    return first * partitions >> 32


def number_to_keep(share: float, documents: int) -> int:
    """The share of a number of documents, rounded up; the share is the decimal that it shows."""
    return math.ceil(Fraction(repr(share)) * documents)


def bins_of(words: np.ndarray) -> Tuple[int, ...]:
    """Histogram of the bit lengths of numbers of words: BINS counts of documents."""
    bits = np.frexp(np.asarray(words, np.float64))[1]
    return tuple(np.bincount(bits, minlength=BINS).tolist())


@dataclass(frozen=True)
class FileStatistics:
    """Counts of one file of documents.

    Attributes:
      documents: number of documents in the file.
      text_bytes: UTF-8 bytes of their texts.
      words: words (separated by white space) in their texts.
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
        return FileStatistics(*map(sum, zip(*rows))) if rows else FileStatistics()


def _add_files(parts: Iterable[Mapping[str, FileStatistics]]) -> Dict[str, FileStatistics]:
    of_name: Dict[str, List[FileStatistics]] = {}
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
    dropped: Dict[str, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=dict)
    funnel: Funnel = field(default_factory=Funnel)
    files: Dict[str, FileStatistics] = field(default_factory=dict)
    lengths: Tuple[int, ...] = (0,) * BINS

    def __post_init__(self) -> None:
        """Rejects negative counts, and a histogram with a different number of bins."""
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

    def broken_equations(self, keep_best: float = 1.0) -> List[str]:
        """Sentences about counts that do not add up; `keep_best` is that of the schema."""
        total = self.total()
        kept = {"documents": total.documents, "text_bytes": total.text_bytes, "words": total.words}
        broken = list(self.funnel.broken_equations(kept, self.dropped))
        left = self.documents_read - sum(self.dropped.values())
        share = number_to_keep(keep_best, total.documents + self.dropped.get(NOT_BEST, 0))
        equations = {
            f"documents read minus dropped is {left:,}, but {total.documents:,} are kept": left
            == total.documents,
            "`lengths` does not add up to the documents kept": sum(self.lengths) == total.documents,
            f"keep_best={keep_best} is {share:,} documents, but {total.documents:,} are kept": share
            == total.documents,
            "`files` and `dropped` differ in near-duplicates": total.near_duplicates
            == self.dropped.get("near_duplicates", 0),
        }
        return broken + [sentence for sentence, holds in equations.items() if not holds]
