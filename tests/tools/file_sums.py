"""The sha256 of every file in a folder, to compare what two runs wrote."""

from collections.abc import Container
from hashlib import sha256
from pathlib import Path


def file_sums(folder: Path, *, without: Container[str] = (".lock",)) -> dict[str, str]:
    """{relative path: sha256}, but for files whose name is in `without`."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }
