"""Compares files with the lines of a manifest."""

import os
from collections.abc import Callable
from contextlib import ExitStack

from textmill.pipelines.inspection.checks.findings import Findings
from textmill.schemas.files import store
from textmill.schemas.files.finished import FinishedDirectory, note_unlisted
from textmill.schemas.files.set_files import FinishedFiles, MissingFile, WrongFileError
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.pieces import sum_pieces


class ListedFiles:
    """The files of a manifest.

    Attributes:
      by_path: the lines of the manifest.
      damaged: by path, the problem of each file that differs from the manifest.
    """

    def __init__(self, files: FinishedFiles, on_bytes: Callable[[int], None]):
        """Takes the files, and a function that is called with the number of bytes just checked."""
        self.by_path = {file.path: file for file in files.manifest.files}
        self.damaged: dict[str, str] = {}
        self._places: dict[str, str] = {}  # local path of a copy to the file's place
        self._owner = {file.sha256: file.path for file in files.manifest.files}
        self._directory, self._on_bytes = files.directory, on_bytes

    def check(self, file: ManifestFile, take: Callable[[str], str]) -> str | None:
        """Returns the local path of a file, or None; records its problem in `damaged`.

        Args:
          file: its line in the manifest.
          take: makes the file local; raises MissingFile or WrongFileError.
        """
        path, found = None, None
        try:
            path = take(file.path)
            place = os.path.join(self._directory, file.path)
            if path != place:
                self._places[path] = place
            if os.path.isfile(path):
                found = os.path.getsize(path), store.sha256(path)
        except MissingFile:
            pass
        except WrongFileError as error:
            found = error.found
        if found is None:
            self.damaged[file.path] = f"{file.path} is missing"
            return None
        self._on_bytes(file.bytes)
        if found != (file.bytes, file.sha256):
            size, sha256 = found
            if size != file.bytes:
                what = f"has {size:,} bytes, not the {file.bytes:,} of the manifest"
            else:
                what = f"has sha256 {sha256}, not the manifest's {file.sha256}"
            owner = self._owner.get(sha256)
            swapped = f": it has the content of {owner}" if owner else ""
            self.damaged[file.path] = f"{file.path} {what}{swapped}"
        return path

    def check_pieces(self, file: ManifestFile, path: str, stride: int) -> None:
        """Records in `damaged` which hash of a piece is wrong, if the file's sha256 is right.

        Args:
          file: a shard of rows of `stride` bytes.
          path: its local path.
          stride: bytes of a row.
        """
        if not self.is_whole(file.path):
            return
        found = sum_pieces(path, stride, file.rows or 0)
        for number, (listed, actual) in enumerate(zip(file.pieces or (), found, strict=False)):
            if listed != actual:
                self.damaged[file.path] = (
                    f"{file.path}: piece {number} of {len(found)} has XXH3-64 {actual}, not the "
                    f"manifest's {listed}"
                )
                return

    def is_whole(self, *paths: str) -> bool:
        """Whether none of these files is damaged, as far as they were checked."""
        return not self.damaged.keys() & set(paths)

    def has(self, path: str) -> bool:
        """Whether the manifest lists this file, and it is not damaged."""
        return path in self.by_path and self.is_whole(path)

    def problems(self) -> list[str]:
        """The problems of damaged files, in the order of the manifest."""
        return [self.damaged[path] for path in self.by_path if path in self.damaged]

    def with_places(self, problems: list[str]) -> list[str]:
        """Problems with the place of a file in the dataset instead of the path of a local copy."""
        for path, place in self._places.items():
            problems = [problem.replace(path, place) for problem in problems]
        return problems


def check_sums(info: FinishedDirectory) -> Findings:
    """Compares all files with the manifest, and notes files that it does not list."""
    listed = ListedFiles(info.files, lambda _: None)
    for file in info.manifest.files:
        with ExitStack() as stack:
            listed.check(
                file, lambda path, stack=stack: stack.enter_context(info.open_temporarily(path))
            )
    return Findings(listed.with_places(listed.problems()), note_unlisted(info.files))
