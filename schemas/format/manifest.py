"""MANIFEST.json: all files of a dataset, corpus or tokenizer with size, rows and sha256.

It is written last: a directory without it is not finished. Its `digest` is a hash of its own
content, which detects changed or missing entries; `schemas.format.agreement` compares it with the
other metadata files.
Python 3.8 syntax.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.typed_json import (
    MAX_BYTES,
    SHA256,
    Constraint,
    check,
    check_constraints,
    from_json,
    hash_json,
    number,
    parse_json,
)

FORMAT_VERSION = 3  # of MANIFEST.json
MANIFEST = "MANIFEST.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Files that may be as large as the documents; others are read at once, and have a limit.
EVALUATION = "evaluation.jsonl"
ROW_DOCUMENTS = "documents"  # the ending of a file beside each shard of a dataset
REJECTS = "rejects/rejects.jsonl"
REJECTED = ("rejects/contamination.jsonl", "rejects/filtered.jsonl", REJECTS)
DECONTAMINATION = "decontamination.json"  # in a corpus
HOSTS = "hosts.json"  # in a corpus of web pages
QUALITY = "quality.json"  # in a corpus with scores of a model
FORGOTTEN = "forgotten.txt"  # digests of --forget, in a dataset or corpus
HISTOGRAM = "histogram.parquet"  # the counts of words of a tokenizer


def check_version(version: int, read: int = FORMAT_VERSION) -> None:
    """Raises DataError for a version of a format that is not `read`, which this Textmill reads."""
    check(
        version == read,
        "format_version",
        version,
        f"this Textmill reads version {read}; build the dataset again, or install the "
        "Textmill that wrote it",
    )


def _is_inside(path: str) -> bool:
    """Whether a path stays inside the dataset's directory, and is printable."""
    if _PLAIN_NAME.fullmatch(path):
        return True
    parts = path.replace("\\", "/").split("/")
    return path.isprintable() and not os.path.isabs(path) and not {"", ".", ".."} & set(parts)


_XXH3 = re.compile(r"[0-9a-f]{16}")
_CONSTRAINTS = {
    "path": Constraint(_is_inside, "a relative path inside the dataset's directory"),
    "pieces": Constraint(
        lambda v: v is None or all(map(_XXH3.fullmatch, v)),
        "a list of hashes of 16 hexadecimal digits, or null",
    ),
    "bytes": number(0, (1 << 60) - 1),
    "sha256": SHA256,
}


@dataclass(frozen=True)
class ManifestFile:
    """A file of a dataset; `split` and `rows` are None unless it is a shard or beside one.

    Attributes:
      path: path relative to the dataset's directory, with "/".
      bytes: its size.
      sha256: sha256 of its bytes, hexadecimal.
      split: the split of the shard.
      rows: number of rows in the shard.
      pieces: of a shard of rows, the XXH3-64 of each of its pieces, hexadecimal, so that a reader
        can check one without the others; see `schemas.format.pieces`. None, and absent from the
        JSON, for other files.
    """

    path: str
    bytes: int
    sha256: str
    split: Optional[str] = None
    rows: Optional[int] = None
    pieces: Optional[Tuple[str, ...]] = None

    def __post_init__(self) -> None:
        """Rejects paths that lead out of the dataset, invalid sizes and invalid hashes."""
        check_constraints(vars(self), _CONSTRAINTS)
        check(
            (self.split is None) == (self.rows is None) and 0 <= (self.rows or 0) <= self.bytes,
            "rows",
            self.rows,
            "for a shard, a number that is not above its bytes, and a split; null for other files",
        )

    def to_dict(self) -> Dict[str, Any]:
        """Its JSON object."""
        values = dict(vars(self))
        if self.pieces is None:
            del values["pieces"]
        return values

    @property
    def is_shard(self) -> bool:
        """Whether it holds the rows of a split, or the documents of a corpus."""
        return self.split is not None and not self.path.endswith("." + ROW_DOCUMENTS)


@dataclass(frozen=True)
class Manifest:
    """All files of a dataset except MANIFEST.json itself.

    Attributes:
      format_version: version of the dataset's format.
      fingerprint: the fingerprint of schema.json; of a tokenizer, that of its report.
      files: the files, sorted by path.
      digest: sha256 of all other fields; computed if it is "".
    """

    format_version: int
    fingerprint: str
    files: Tuple[ManifestFile, ...]
    digest: str = ""

    def __post_init__(self) -> None:
        """Rejects a different format, and files that are not sorted, not unique or too large."""
        check_version(self.format_version)
        paths = [file.path for file in self.files]
        check(paths == sorted(set(paths)), "files", paths, "must be sorted by path, each once")
        for file in self.files:
            if file.bytes > MAX_BYTES and file.split is None:
                may_be_large = (EVALUATION, FORGOTTEN, HISTOGRAM, *REJECTED)
                good, most = file.path in may_be_large, f"{MAX_BYTES:,}"
                check(good, f"bytes of {file.path}", file.bytes, f"must be at most {most}")
        expected = self.compute_digest()
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        remedy = f"the other fields give {expected}: the file was edited; copy or build the "
        check(self.digest == expected, "digest", self.digest, remedy + "dataset again")

    def compute_digest(self) -> str:
        """The sha256 of all fields except `digest`, as canonical JSON."""
        return hash_json({k: v for k, v in self.to_dict().items() if k != "digest"})

    def to_dict(self) -> Dict[str, Any]:
        """The JSON object of MANIFEST.json."""
        return dict(vars(self), files=[file.to_dict() for file in self.files])

    def identify_rows(self) -> str:
        """Identifies the rows of a dataset: sha256 of the schema's fingerprint and all shards.

        Datasets with one schema but different rows have different ids. A copy of a dataset has the
        same id, even if its other files are changed.
        """
        shards = [(f.split, f.path, f.rows, f.sha256) for f in self.files if f.is_shard]
        return hashlib.sha256(json.dumps([self.fingerprint, shards]).encode()).hexdigest()

    def shards(self, split: str, file_format: str) -> List[ManifestFile]:
        """The shards of a split in one format, in order."""
        suffix = "." + file_format
        return [f for f in self.files if f.split == split and f.path.endswith(suffix)]

    def rows(self, split: str, file_format: str) -> int:
        """The number of rows of a split."""
        return sum(f.rows or 0 for f in self.shards(split, file_format))

    @staticmethod
    def from_dict(values: Any, source: str) -> "Manifest":
        """Converts parsed JSON; `source` is the name of the file in errors."""
        if isinstance(values, dict) and isinstance(values.get("files"), list):
            values = dict(values, files=[_with_pieces(file) for file in values["files"]])
        if isinstance(values, dict) and values.get("digest") == "":
            raise DataError(
                f"{source}: digest is empty: the file was edited; build the dataset again"
            )
        return from_json(Manifest, values, source)


def _with_pieces(file: Any) -> Any:
    """A parsed entry of a manifest with the field `pieces`, which may be absent."""
    return {"pieces": None, **file} if isinstance(file, dict) else file


def parse_manifest(content: bytes, place: str) -> Manifest:
    """Parses the content of a MANIFEST.json; `place` is its name in errors.

    Raises:
      DataError: it is not a valid manifest.
    """
    return Manifest.from_dict(parse_json(content, place), place)


def check_unchanged(path: str, file: ManifestFile) -> None:
    """Compares the sha256 of a file with the manifest.

    Raises:
      FileNotFoundError: there is no such file.
      DataError: they differ, or the file cannot be read.
    """
    if store.sha256(path) != file.sha256:
        raise changed(path)


def changed(path: str) -> DataError:
    """The error for a file whose sha256 differs from the manifest."""
    return DataError(
        f"{path} was changed after it was published: its sha256 differs from {MANIFEST}; copy or "
        "build it again"
    )
