"""Pieces of a dataset's shards in the local cache, downloaded ahead by threads.

    pieces = PieceFiles(files, part_of)     # files: CachedFiles; part_of: number -> FilePart
    pieces.prefetch([7, 2, 5])              # in the background, in this order
    pieces.open(7)                          # its bytes, mapped; waits for them

    CACHE/<sha256 of a manifest>/pieces/train-00000-of-00004.tfrecord-0     begins with byte 0

A piece is downloaded with one request, checked, and retried like a file, see
`schemas.files.set_files`. Processes that share a cache download it once. As pieces arrive, the
least recently used ones are removed, so the cache stays within its bound; a piece that is mapped
stays readable. Python 3.8 syntax.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import Callable, Sequence

import numpy as np

from textmill.schemas.errors import DataError, flag
from textmill.schemas.files.cache import PIECES, mark_used
from textmill.schemas.files.set_files import CachedFiles, FilePart

THREADS = 16  # that download in the background
_TRIES = 5  # to map a piece before other processes remove it
_LOCKS = 64  # so that a cache of many pieces has few files of locks
_STEPS = 64  # parts of the cache, after each of which room is made for eight more
_MOST_STEP = 512 << 20  # bytes of such a part at most


class PieceFiles:
    """The pieces of some shards; neither pickled nor forked."""

    def __init__(self, files: CachedFiles, part_of: Callable[[int], FilePart], *, largest: int):
        """Downloads nothing yet.

        Args:
          files: the dataset.
          part_of: where the piece of a number is, and its sum.
          largest: bytes of the largest piece.
        """
        self._files, self._part_of = files, part_of
        self._change = threading.Condition()  # of all below
        self._due: deque[int] = deque()  # pieces that threads will download
        self._busy: set[int] = set()  # pieces that a thread downloads or checks
        self._good: set[int] = set()  # pieces that were due, and that this process has checked
        self._threads = 0
        # Other processes may each download a step before they make room.
        self._step = int(min(files.bound / _STEPS, _MOST_STEP))
        self._room = _STEPS // 8 * self._step + THREADS * largest
        self._since = self._step  # bytes that were due for download since room was made

    def open(self, number: int) -> np.ndarray:
        """The bytes of a piece, uint8 [n], mapped.

        Raises:
          DataError: as `CachedFiles.fetch`.
        """
        for _ in range(_TRIES):
            path = self._fetch(number)
            with suppress(FileNotFoundError):  # another process has just removed it to make room
                mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
                mark_used(path)
                return mapped
            with self._change:
                self._good.discard(number)
        raise DataError(
            f"{self._files.directory}/{self._part_of(number)} is removed from the cache each time "
            "before it is read: other processes use the cache, too; raise "
            f"{flag('cache_gigabytes')} for all of them"
        )

    def prefetch(self, numbers: Sequence[int]) -> None:
        """Downloads these pieces in the background, in this order, and no others any more.

        Errors are ignored there, since `open` of the same piece raises them again.
        """
        with self._change:
            self._good.intersection_update(numbers)
            self._due = deque(n for n in numbers if n not in self._good and n not in self._busy)
            missing = min(THREADS, len(self._due)) - self._threads
            self._threads += max(0, missing)
        for _ in range(missing):
            threading.Thread(target=self._work, name="pieces", daemon=True).start()

    def _work(self) -> None:
        try:
            while True:
                with self._change:
                    if not self._due:
                        return
                    number = self._due.popleft()
                self._fetch(number)
        except Exception:
            with self._change:
                self._due.clear()
        finally:
            with self._change:
                self._threads -= 1

    def _fetch(self, number: int) -> str:
        """Has a piece in the cache, checked; its path."""
        part = self._part_of(number)
        name = f"{part.path.replace('/', '+')}-{part.begin}"
        local = os.path.join(self._files.folder, PIECES, name)
        with self._change:
            while number in self._busy:
                self._change.wait()
            if number in self._good:
                return local
            self._busy.add(number)
            with suppress(ValueError):
                self._due.remove(number)
        try:
            self._make_room(part.bytes)
            lock = f"{PIECES}-{number % _LOCKS}"
            downloaded = self._files.bring(part, local, lock=lock)
            with self._change:
                self._since -= part.bytes - downloaded
                self._good.add(number)
        finally:
            with self._change:
                self._busy.discard(number)
                self._change.notify_all()
        return local

    def _make_room(self, needed: int) -> None:
        with self._change:
            self._since += needed
            if self._since < self._step:
                return
            self._since = needed
        self._files.make_room(self._room)
