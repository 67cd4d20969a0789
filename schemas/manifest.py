"""MANIFEST.json: every file of a shard set with size, rows and sha256, written last.

A directory without it is not a shard set. Its `digest` is of its own content, so that no entry
changes or goes by mistake; `schemas.agreement` compares it with the other metadata
files. Python 3.8 syntax.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from schemas.errors import DataError, describe_refusal
from schemas.typed_json import (
    MAX_BYTES,
    SHA256,
    Kind,
    check,
    check_kinds,
    from_json,
    hash_json,
    number,
    parse_json,
)

FORMAT_VERSION = 2  # of rows and metadata files
MANIFEST = "MANIFEST.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# What may be as large as the documents; others are read whole, and are bounded.
EVALUATION = "evaluation.jsonl"
REJECTS = "rejects/rejects.jsonl"
REJECTED = ("rejects/contamination.jsonl", "rejects/filtered.jsonl", REJECTS)
DECONTAMINATION = "decontamination.json"  # of a corpus


def check_version(version: int) -> None:
    """Raises DataError for a format that is not read here."""
    check(
        version == FORMAT_VERSION,
        "format_version",
        version,
        f"this Textmill reads version {FORMAT_VERSION}; build the set anew or install the Textmill "
        "that wrote it",
    )


def _is_inside(path: str) -> bool:
    """Whether a path stays inside the set's directory, and can be printed."""
    if _PLAIN_NAME.fullmatch(path):
        return True
    parts = path.replace("\\", "/").split("/")
    return path.isprintable() and not os.path.isabs(path) and not {"", ".", ".."} & set(parts)


_KINDS = {
    "path": Kind(_is_inside, "a relative path inside the set's directory"),
    "bytes": number(0, (1 << 60) - 1),
    "sha256": SHA256,
}


@dataclass(frozen=True)
class ManifestFile:
    """One file of a set; `split` and `rows` are None for what is not a shard.

    Attributes:
      path: relative to the set's directory, with "/".
      bytes: its size.
      sha256: of its bytes, hexadecimal.
      split: whose shard it is.
      rows: in the shard.
    """

    path: str
    bytes: int
    sha256: str
    split: Optional[str] = None
    rows: Optional[int] = None

    def __post_init__(self) -> None:
        """Refuses paths that lead outside the set, and what is no size or no hash."""
        check_kinds(vars(self), _KINDS)
        check(
            (self.split is None) == (self.rows is None) and 0 <= (self.rows or 0) <= self.bytes,
            "rows",
            self.rows,
            "a number for a shard, with its split, not above its bytes; null for another file",
        )


@dataclass(frozen=True)
class Manifest:
    """Every file of a set but itself (MANIFEST.json), sorted by path.

    Attributes:
      format_version: of the set.
      fingerprint: that of schema.json.
      files: all but this one.
      digest: sha256 of all other fields; computed where it is not given.
    """

    format_version: int
    fingerprint: str
    files: Tuple[ManifestFile, ...]
    digest: str = ""

    def __post_init__(self) -> None:
        """Refuses another format, and a list that is not sorted or names a file twice."""
        check_version(self.format_version)
        paths = [file.path for file in self.files]
        check(paths == sorted(set(paths)), "files", paths, "sorted by path, each once")
        for file in self.files:
            if file.bytes > MAX_BYTES and file.split is None:
                good, most = file.path in (EVALUATION, *REJECTED), f"{MAX_BYTES:,}"
                check(good, f"bytes of {file.path}", file.bytes, f"such a file has up to {most}")
        expected = self.compute_digest()
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        remedy = f"the other fields give {expected}: the file was edited; copy the set again or "
        check(self.digest == expected, "digest", self.digest, remedy + "build it anew")

    def compute_digest(self) -> str:
        """The sha256 of every field but `digest`, as canonical JSON."""
        values = {name: value for name, value in vars(self).items() if name != "digest"}
        return hash_json(dict(values, files=[vars(file) for file in self.files]))

    def identify_rows(self) -> str:
        """The sha256 of what decides a set's rows: its schema's fingerprint and all its shards.

        Two sets of one schema have different ones if their rows differ; one set has the same
        wherever it lies, whatever is changed in its other files.
        """
        shards = [(f.split, f.path, f.rows, f.sha256) for f in self.files if f.split is not None]
        return hashlib.sha256(json.dumps([self.fingerprint, shards]).encode()).hexdigest()

    def shards(self, split: str, file_format: str) -> List[ManifestFile]:
        """A split's shards in one format, in order."""
        suffix = "." + file_format
        return [f for f in self.files if f.split == split and f.path.endswith(suffix)]

    def rows(self, split: str, file_format: str) -> int:
        """The number of rows of a split."""
        return sum(f.rows or 0 for f in self.shards(split, file_format))

    @staticmethod
    def from_dict(values: Any, source: str) -> "Manifest":
        """From parsed JSON; `source` names the file in errors."""
        if isinstance(values, dict) and values.get("digest") == "":
            raise DataError(f"{source}: digest is empty: the file was edited; build the set anew")
        return from_json(Manifest, values, source)


def parse_manifest(content: bytes, place: str) -> Manifest:
    """The manifest of these bytes; `place` names it in errors.

    Raises:
      DataError: it is not as Textmill writes it.
    """
    return Manifest.from_dict(parse_json(content, place), place)


def file_sha256(path: str) -> str:
    """sha256 of a file's bytes, as hexadecimal.

    Raises:
      FileNotFoundError: there is none.
      DataError: it may not be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise describe_refusal(path, error) from error
    return digest.hexdigest()


def check_unchanged(path: str, file: ManifestFile) -> None:
    """Refuses a file that is not the one of the manifest.

    Raises:
      DataError: its sha256 is another, or it may not be read.
    """
    if file_sha256(path) != file.sha256:
        raise DataError(
            f"{path} was changed after the set was published: its sha256 is not the one in "
            f"{MANIFEST}. Copy the set again or build it anew"
        )
