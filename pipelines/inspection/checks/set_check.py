"""Checks every file and every row of a finished dataset, for `pipelines.verify`."""

import math
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from textmill.pipelines.inspection.checks.findings import SHOWN, Findings
from textmill.pipelines.inspection.checks.listed_files import ListedFiles
from textmill.pipelines.inspection.checks.metadata_check import MetadataCheck
from textmill.pipelines.inspection.checks.set_tokenizer import load_tokenizer
from textmill.pipelines.inspection.checks.shard_check import (
    ExpectedRows,
    ShardCheck,
    find_lines_without_rows,
)
from textmill.pipelines.runners.console import Console
from textmill.schemas.files.finished import note_unlisted
from textmill.schemas.files.set_files import Cache, FinishedFiles, open_files
from textmill.schemas.files.store import is_url
from textmill.schemas.format.manifest import Manifest, ManifestFile


@contextmanager
def _open(directory: str, follow_links: bool) -> Iterator[FinishedFiles]:
    """Opens the files of a dataset; from a bucket, downloads only those being read."""
    if not is_url(directory):
        yield open_files(directory, follow_links=follow_links)
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield open_files(directory, Cache(folder, gigabytes=math.inf))


@contextmanager
def _progress(manifest: Manifest) -> Iterator[Callable[[int], None]]:
    """Shows a bar on a terminal; yields the function that adds bytes to it."""
    console = Console(file=sys.stderr)
    # Shards are read twice: for their hash and for their rows.
    total = sum(f.bytes * (1 if f.split is None else 2) for f in manifest.files)
    columns = (TextColumn("verify"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("verify", total=total)
        yield lambda number: progress.advance(task, number)


def verify_dataset(
    directory: str,
    on_bytes: Callable[[int], None] | None = None,
    *,
    follow_links: bool = False,
) -> Findings:
    """Checks every statement of a dataset's files.

    Every file: size and sha256. Every shard: the format's own checksums, number of rows, encoding,
    `row_checks`, and its counts in stats.json. The dataset: the equations of stats.json, the sum of
    token_counts.npy, the tokenizer's hash and golden ids, and equal rows in both formats.

    Args:
      directory: the directory of MANIFEST.json, or its URL; from a bucket, as many shards are
        downloaded at a time as there are processors.
      on_bytes: called from several threads with the number of bytes just checked; shards count
        twice, for their hash and for their rows. None shows a bar on a terminal.
      follow_links: see `schemas.files.set_files.LocalFiles`.

    Raises:
      DataError: there is no manifest, or the object store does not answer.
    """
    with _open(directory, follow_links) as files, ExitStack() as stack:
        on_bytes = on_bytes or stack.enter_context(_progress(files.manifest))
        return _DatasetCheck(files, on_bytes).run()


class _DatasetCheck:
    """Reads the files of a dataset, several at a time."""

    def __init__(self, files: FinishedFiles, on_bytes: Callable[[int], None]):
        self._files, self._on_bytes = files, on_bytes
        self._listed = ListedFiles(files, on_bytes)
        self._metadata = MetadataCheck(files, self._listed)
        self._stop = threading.Event()

    def run(self) -> Findings:
        """Checks everything."""
        shards: dict[str, list[ManifestFile]] = {}  # one file per format
        others = []
        for file in self._listed.by_path.values():
            if file.split is None:
                others.append(file)
            else:
                shards.setdefault(file.path.split(".", 1)[0], []).append(file)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                tokenizer = pool.submit(load_tokenizer, self._files)
                list(pool.map(lambda file: self._listed.check(file, self._files.fetch), others))
                expected = self._metadata.expected_rows(tokenizer)
                found = pool.map(lambda n: self._check_shard(n, shards[n], expected), shards)
                checks = [check for check in found if check is not None]
            except BaseException:  # Ctrl-C too: threads end at their next batch
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        of_shards = (problem for check in checks for problem in check.problems)
        problems = self._listed.with_places(
            [*self._listed.problems(), *self._metadata.problems, *of_shards]
        )
        notes = note_unlisted(self._files)
        if expected is None:
            notes.append("no row was read, because schema.json is damaged")
        else:
            problems += find_lines_without_rows(expected, checks)[:SHOWN]
        counts = sum((check.counts for check in checks), Counter())
        return Findings(problems, notes, counts["rows"], counts["tokens_in_rows"])

    def _check_shard(
        self, name: str, files: list[ManifestFile], expected: ExpectedRows | None
    ) -> ShardCheck | None:
        with ExitStack() as stack:
            located = {}
            for file in files:
                if self._stop.is_set():
                    return None
                path = self._listed.check(
                    file, lambda p: stack.enter_context(self._files.open_temporarily(p))
                )
                if path is not None:
                    located[file.path] = path
                    if expected is not None and file.pieces:
                        self._listed.check_pieces(file, path, expected.schema.codec().stride)
            if expected is None:
                return None
            check = ShardCheck(name, files, expected, self._on_bytes)
            check.run(self._stop, located)
            return check
