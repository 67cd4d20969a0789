"""MANIFEST.json: every file of a shard set with size, rows and sha256, written last.

A directory without it is not a shard set. Python 3.8 syntax.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from schemas.errors import DataError, refused
from schemas.typed_json import from_json, parse_json

FORMAT_VERSION = 1  # of rows and sidecars
MANIFEST = "MANIFEST.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check(good: bool, name: str, value: Any, remedy: str) -> None:
    """Raises DataError for a value that is not good, with what to do."""
    if not good:
        raise DataError(f"{name} is {value!r:.200}: {remedy}")


def is_sha256(text: str) -> bool:
    """Whether it is 64 hexadecimal digits."""
    return bool(_SHA256.fullmatch(text))


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
        parts = self.path.replace("\\", "/").split("/")
        inside = bool(self.path) and not os.path.isabs(self.path) and not {"", ".."} & set(parts)
        check(inside, "path", self.path, "a relative path inside the set's directory")
        check(self.bytes >= 0, "bytes", self.bytes, "at least 0")
        check(is_sha256(self.sha256), "sha256", self.sha256, "64 hex digits")
        check(
            (self.split is None) == (self.rows is None) and (self.rows or 0) >= 0,
            "rows",
            self.rows,
            "a number for a shard, with its split; null for another file",
        )


@dataclass(frozen=True)
class Manifest:
    """Every file of a set but itself (MANIFEST.json), sorted by path."""

    format_version: int
    fingerprint: str
    files: Tuple[ManifestFile, ...]

    def __post_init__(self) -> None:
        """Refuses another format, and a list that is not sorted or names a file twice."""
        check(
            self.format_version == FORMAT_VERSION,
            "format_version",
            self.format_version,
            f"this Textmill reads version {FORMAT_VERSION}; build the set anew or install the "
            "Textmill that wrote it",
        )
        paths = [file.path for file in self.files]
        check(paths == sorted(set(paths)), "files", paths, "sorted by path, each once")

    def shards(self, split: str, file_format: str) -> List[ManifestFile]:
        """A split's shards in one format, in order."""
        suffix = "." + file_format
        return [f for f in self.files if f.split == split and f.path.endswith(suffix)]

    def rows(self, split: str, file_format: str) -> int:
        """Rows of a split."""
        return sum(f.rows or 0 for f in self.shards(split, file_format))

    @staticmethod
    def from_dict(values: Any, source: str) -> "Manifest":
        """From parsed JSON; `source` names the file in errors."""
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
        raise refused(path, error) from error
    return digest.hexdigest()
