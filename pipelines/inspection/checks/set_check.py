"""Checks every file and every row of a finished dataset, for `pipelines.verify`."""

import json
import math
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.shard_check import ExpectedRows, ShardCheck
from textmill.pipelines.rows.evaluation import EVALUATION, evaluation_names, example_name
from textmill.pipelines.runners.console import Console
from textmill.pipelines.tasks.task import task_class
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, count_problems
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.set_files import Cache, MissingFile, SetFiles, WrongFile, open_files
from textmill.schemas.files.store import is_url
from textmill.schemas.format.agreement import disagreements
from textmill.schemas.format.manifest import MANIFEST, Manifest, ManifestFile
from textmill.schemas.format.metadata import METADATA_FILES, Schema, SetInfo, load_metadata
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG, odd_settings
from textmill.schemas.typed_json import load_json, quote, read_bounded

SHOWN = 20  # problems of a dataset that are printed


@dataclass
class Findings:
    """The result of checking a dataset or a corpus.

    Attributes:
      problems: sentences, each of which names the file.
      notes: oddities that harm no reader.
      rows: rows read; a dataset in two formats counts once.
      tokens: tokens in these rows, without padding.
      documents: documents of a corpus.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    documents: int = 0

    def failure(self, directory: str) -> str:
        """Describes the problems of this directory in a few lines."""
        more = len(self.problems) - SHOWN
        shown = self.problems[:SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
        what = number_of(len(self.problems), "problem")
        return "\n  ".join([f"{directory} differs from what was published, {what}:", *shown])


@contextmanager
def _open(directory: str, follow_links: bool) -> Iterator[SetFiles]:
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


def verify_set(
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
        return _SetCheck(files, on_bytes).run()


class _SetCheck:
    """Reads the files of a dataset, several at a time.

    Attributes:
      damaged: by path, the problem of each file that differs from the manifest.
      problems: all other problems.
      places: by local path of a copy, the file's place in the dataset, for messages.
    """

    def __init__(self, files: SetFiles, on_bytes: Callable[[int], None]):
        self.damaged: dict[str, str] = {}
        self.problems: list[str] = []
        self.places: dict[str, str] = {}
        self._files, self._on_bytes = files, on_bytes
        self._listed = {file.path: file for file in files.manifest.files}
        self._owner = {file.sha256: file.path for file in files.manifest.files}
        self._stop = threading.Event()

    def run(self) -> Findings:
        """Checks everything."""
        shards: dict[str, list[ManifestFile]] = {}  # one file per format
        for file in self._listed.values():
            if file.split is not None:
                shards.setdefault(file.path.split(".", 1)[0], []).append(file)
        others = (file for file in self._listed.values() if file.split is None)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                tokenizer = pool.submit(self._load_tokenizer)  # takes a while
                list(pool.map(lambda file: self._hash(file, self._files.fetch), others))
                expected = self._expected_rows(tokenizer)
                found = pool.map(lambda n: self._check_shard(n, shards[n], expected), shards)
                checks = [check for check in found if check is not None]
            except BaseException:  # Ctrl-C too: threads end at their next batch
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        problems = [self.damaged[path] for path in self._listed if path in self.damaged]
        problems += self.problems
        problems += (problem for check in checks for problem in check.problems)
        for path, place in self.places.items():
            problems = [problem.replace(path, place) for problem in problems]
        # `names` skips hidden files, such as a lock.
        unlisted = (n for n in self._files.names() if n not in self._listed and n != MANIFEST)
        notes = [f"{name} is not listed in {MANIFEST}" for name in unlisted]
        if expected is None:
            notes.append("no row was read, because schema.json is damaged")
        else:
            problems += _find_lines_without_rows(expected, checks)
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
                path = self._hash(file, lambda p: stack.enter_context(self._files.borrow(p)))
                if path is not None:
                    located[file.path] = path
            if expected is None:
                return None
            check = ShardCheck(name, files, expected, self._on_bytes)
            check.run(self._stop, located)
            return check

    def _hash(self, file: ManifestFile, take: Callable[[str], str]) -> str | None:
        """Returns the local path of a file, or None; records its problem in `damaged`."""
        path, found = None, None
        try:
            path = take(file.path)
            place = os.path.join(self._files.directory, file.path)
            if path != place:
                self.places[path] = place
            if os.path.isfile(path):
                found = os.path.getsize(path), store.sha256(path)
        except MissingFile:
            pass
        except WrongFile as error:
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

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            self.problems.append(str(error))

    def _is_whole(self, *paths: str) -> bool:
        return not self.damaged.keys() & set(paths)

    def _expected_rows(self, tokenizer: Future[LoadedTokenizer]) -> ExpectedRows | None:
        """Collects expectations from undamaged metadata files; None without a schema.json."""
        schema, shards, surroundings, evaluation = None, {}, ((), ()), None
        if self._is_whole("schema.json"):
            with self._noting():
                path = self._files.fetch("schema.json")
                schema = Schema.from_dict(load_json(path), path)
        if schema is None:
            return None
        if self._is_whole(*METADATA_FILES):
            with self._noting():
                info = load_metadata(self._files)
                self.problems += disagreements(schema, info.stats, info.manifest)
                shards = info.stats.shards
                if TOKEN_COUNTS in self._listed and self._is_whole(TOKEN_COUNTS):
                    self.problems += count_problems(info)
                self.problems += self._tfds_problems(info)
        if self._is_whole("tokenizer.json"):
            with self._noting():
                surroundings = self._surroundings(schema, tokenizer)
        if self._is_whole(EVALUATION) and any(f.name == "example_id" for f in schema.features):
            with self._noting():  # a dataset without evaluation questions has no such file
                evaluation = np.zeros(0, np.uint64)
                if EVALUATION in self._listed:
                    evaluation = None
                    evaluation = evaluation_names(self._files.fetch(EVALUATION))
        return ExpectedRows(schema, shards, *surroundings, evaluation)

    def _tfds_problems(self, info: SetInfo) -> Iterator[str]:
        """Finds files for TensorFlow Datasets that do not describe the rows."""
        for name, content in tfds_files(info.schema, info.manifest.files, info.stats).items():
            if name not in self._listed or not self._is_whole(name):
                continue
            found, due = load_json(self._files.fetch(name)), json.loads(content)
            text = str(found.get("description")) if isinstance(found, dict) else ""
            if "description" in due and f" {info.schema.code_version}: " in text:
                due["description"] = text  # prose, which may differ between versions
            if found != due:
                yield f"{name} does not describe the rows of schema.json and stats.json"

    def _load_tokenizer(self) -> LoadedTokenizer:
        path = self._files.fetch("tokenizer.json")
        if not os.path.isfile(path):
            raise DataError(f"{path} is missing, and not listed in {MANIFEST}")
        return LoadedTokenizer(read_bounded(path))

    def _surroundings(
        self, schema: Schema, loading: Future[LoadedTokenizer]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and after each segment; raises DataError for another tokenizer."""
        tokenizer = loading.result().with_roles(schema.special_ids)
        path = self._files.fetch("tokenizer.json")
        if store.sha256(path) != schema.tokenizer_sha256:
            return (), ()  # `disagreements` reports this
        for name in ("vocab_size", "special_ids", "all_special_ids"):
            found, due = getattr(tokenizer, name), getattr(schema, name)
            if found != due:
                raise DataError(
                    f"{path} has the {name} {quote(found)}, but schema.json has {quote(due)}"
                )
        self._check_tokenizer_config(schema, tokenizer)
        if schema.golden != tokenizer.golden:
            pairs = zip_longest(tokenizer.golden, schema.golden)
            [found, due] = next((now, stated) for now, stated in pairs if now != stated)
            raise DataError(
                f"{path} gives the golden text and ids {quote(found)}, but schema.json has "
                f"{quote(due)}"
            )
        task = task_class(schema.task)
        found = task.surroundings(schema, tokenizer)
        due = tuple(tuple(schema.parameters.get(n, ())) for n in ("prefix_ids", "suffix_ids"))
        if task.wraps_segments and due != found:
            raise DataError(f"{path} puts {found} around a text, but schema.json has {due}")
        return found

    def _check_tokenizer_config(self, schema: Schema, tokenizer: LoadedTokenizer) -> None:
        """Notes roles that transformers would find and that are not the schema's."""
        if TOKENIZER_CONFIG not in self._listed or not self._is_whole(TOKENIZER_CONFIG):
            return
        path = self._files.fetch(TOKENIZER_CONFIG)
        settings = load_json(path)
        if not isinstance(settings, dict):
            self.problems.append(f"{path} holds a {type(settings).__name__}, not an object")
            return
        for name in odd_settings(settings, tokenizer.ids, schema.special_ids):
            given = quote(settings.get(name))
            self.problems.append(f"{path}: {name} is {given}, schema.json has another")


def _find_lines_without_rows(expected: ExpectedRows, checks: list[ShardCheck]) -> list[str]:
    if expected.evaluation is None:
        return []
    named = [names for check in checks for names in check.examples]
    lines = np.setdiff1d(expected.evaluation, np.concatenate(named or [expected.evaluation[:0]]))
    return [f"{EVALUATION}: no row belongs to {example_name(int(line))}" for line in lines[:SHOWN]]
