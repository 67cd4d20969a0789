"""Re-reads a finished shard set, all of it: what `verify` does with each."""

import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.host.console import Console
from pipelines.inspection.checks.shard_check import ExpectedRows, ShardCheck
from pipelines.rows.evaluation import EVALUATION, evaluation_names, example_name
from pipelines.tasks.task import task_class
from pipelines.writers.tfds_info import tfds_files
from pipelines.writers.token_counts import TOKEN_COUNTS, count_problems
from schemas.agreement import disagreements
from schemas.commands.terminal import number_of
from schemas.errors import DataError
from schemas.manifest import MANIFEST, Manifest, ManifestFile, file_sha256
from schemas.sidecar import SIDECARS, Schema, SetInfo, load_sidecars
from schemas.stores.set_files import Cache, MissingFile, SetFiles, WrongFile, open_files
from schemas.stores.store import is_url
from schemas.typed_json import load_json, quote, read_bounded
from schemas.version import VERSION

_Hashes = dict[str, tuple[int, str] | None]  # path to size and sha256, None where it is missing
SHOWN = 20  # problems of a set that are printed
_OF_TOKENIZER = ("vocab_size", "special_ids", "all_special_ids")


@dataclass
class Findings:
    """What `verify_set` found.

    Attributes:
      problems: each a sentence that names the file.
      notes: what is odd, but harms no reader.
      rows: that were read; of a set in two formats, once.
      tokens: in them, padding not counted.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0

    def failure(self, directory: str) -> str:
        """Says in a few lines what is wrong with the set in this directory."""
        more = len(self.problems) - SHOWN
        shown = self.problems[:SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
        what = number_of(len(self.problems), "problem")
        return "\n  ".join([f"{directory} is not as it was published, {what}:", *shown])


@contextmanager
def _open(directory: str, follow_links: bool) -> Iterator[SetFiles]:
    """The files of a set; of one in a store as many lie on this machine as are being read."""
    if not is_url(directory):
        yield open_files(directory, follow_links=follow_links)
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield open_files(directory, Cache(folder, gigabytes=math.inf))


@contextmanager
def _progress(manifest: Manifest) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; gives what to call with numbers of bytes."""
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
    """Checks everything that a set says of itself.

    Every file: size and sha256. Every shard: the format's own checksums, number of rows, layout,
    what `row_checks` knows, and its counts in stats.json. The set: the equations of
    stats.json, as many tokens in token_counts.npy, the tokenizer's hash and golden ids, equal rows
    in both formats.

    Args:
      directory: where MANIFEST.json lies, or its URL: then no more shards are on this machine at a
        time than it has processors.
      on_bytes: called with numbers of bytes as they are done, from several threads; shards count
        twice, for their hash and for their rows. None: a bar on a terminal.
      follow_links: see `schemas.stores.set_files.LocalFiles`.

    Raises:
      DataError: there is no manifest to go by, or the store does not answer.
    """
    with _open(directory, follow_links) as files:
        if on_bytes is not None:
            return _check_files(files, on_bytes)
        with _progress(files.manifest) as on_bytes:
            return _check_files(files, on_bytes)


def _check_files(files: SetFiles, on_bytes: Callable[[int], None]) -> Findings:
    manifest, stop = files.manifest, threading.Event()
    others = [file for file in manifest.files if file.split is None]
    shards = _shards(manifest)
    hashes: _Hashes = {}
    problems: list[str] = []

    def hash_file(file: ManifestFile, take: Callable[[str], str] = files.fetch) -> str | None:
        hashes[file.path], path = _hash(file, take, on_bytes)
        return path

    def check_shard(name: str) -> ShardCheck | None:
        """Hashes a shard's files, and reads their rows while they are here."""
        with ExitStack() as stack:
            located = {}
            for file in shards[name]:
                if stop.is_set():
                    return None
                path = hash_file(file, lambda path: stack.enter_context(files.borrow(path)))
                if path is not None:
                    located[file.path] = path
            if expected is None:
                return None
            check = ShardCheck(name, shards[name], expected, on_bytes)
            check.run(stop, located)
            return check

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            tokenizer = pool.submit(_load_tokenizer, files)  # takes a while
            list(pool.map(hash_file, others))
            damaged = set(_find_damage(manifest, hashes))
            expected = _expected_rows(files, damaged, tokenizer, problems)
            checks = [check for check in pool.map(check_shard, shards) if check is not None]
        except BaseException:  # Ctrl-C too: what runs ends at its next batch
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    problems = [*_find_damage(manifest, hashes).values(), *problems]
    return _sum_up(Findings(problems, _note_unlisted(files)), expected, checks)


def _shards(manifest: Manifest) -> dict[str, list[ManifestFile]]:
    """Name of a shard to its files, one a format."""
    shards: dict[str, list[ManifestFile]] = {}
    for file in manifest.files:
        if file.split is not None:
            shards.setdefault(file.path.split(".", 1)[0], []).append(file)
    return shards


def _sum_up(
    findings: Findings, expected: ExpectedRows | None, checks: list[ShardCheck]
) -> Findings:
    """Adds what was found in the rows."""
    if expected is None:
        findings.notes.append("no row was read, since schema.json cannot be trusted")
        return findings
    for check in checks:
        findings.problems += check.problems
        findings.rows += check.rows
        findings.tokens += check.tokens
    findings.problems += _find_lines_without_rows(expected, checks)
    return findings


def _find_lines_without_rows(expected: ExpectedRows, checks: list[ShardCheck]) -> list[str]:
    """Lines of evaluation.jsonl that no row names."""
    if expected.evaluation is None:
        return []
    named = [names for check in checks for names in check.examples]
    lines = np.setdiff1d(expected.evaluation, np.concatenate(named or [expected.evaluation[:0]]))
    return [f"{EVALUATION}: no row is of {example_name(int(line))}" for line in lines[:SHOWN]]


def _note_unlisted(files: SetFiles) -> list[str]:
    """Notes on files that are no part of the set; hidden ones, such as a lock, are passed over."""
    listed = {file.path for file in files.manifest.files} | {MANIFEST}
    return [f"{path} is not listed in {MANIFEST}" for path in files.names() if path not in listed]


def _hash(
    file: ManifestFile, take: Callable[[str], str], on_bytes: Callable[[int], None]
) -> tuple[tuple[int, str] | None, str | None]:
    """Size and sha256 of a file, and where `take` brought it; None for what is not there."""
    try:
        path = take(file.path)
        if not os.path.isfile(path):
            return None, None
        found = os.path.getsize(path), file_sha256(path)
    except MissingFile:
        return None, None
    except WrongFile as error:
        found, path = error.found, None
    on_bytes(file.bytes)
    return found, path


def _find_damage(manifest: Manifest, hashes: _Hashes) -> dict[str, str]:
    """Path to what is wrong with the file, for those that are not as the manifest says."""
    owner = {file.sha256: file.path for file in manifest.files}
    damaged = {}
    for file in manifest.files:
        if file.path not in hashes:
            continue
        found = hashes[file.path]
        if found is None:
            damaged[file.path] = f"{file.path} is missing"
        elif found != (file.bytes, file.sha256):
            size, sha256 = found
            if size != file.bytes:
                what = f"has {size:,} bytes, where the manifest says {file.bytes:,}"
            else:
                what = f"has sha256 {sha256}, where the manifest says {file.sha256}"
            swapped = f": it holds what should be in {owner[sha256]}" if sha256 in owner else ""
            damaged[file.path] = f"{file.path} {what}{swapped}"
    return damaged


@contextmanager
def _note_error(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        problems.append(str(error))


def _expected_rows(
    files: SetFiles,
    damaged: set[str],
    tokenizer: Future[LoadedTokenizer],
    problems: list[str],
) -> ExpectedRows | None:
    """What undamaged sidecars say of rows; what is wrong with them goes into `problems`.

    Returns:
      None if schema.json is not to be trusted.
    """
    schema, shards, surroundings, evaluation = None, {}, ((), ()), None
    if "schema.json" not in damaged:
        with _note_error(problems):
            path = files.fetch("schema.json")
            schema = Schema.from_dict(load_json(path), path)
    if schema is None:
        return None
    if not damaged.intersection(SIDECARS):
        with _note_error(problems):
            info = load_sidecars(files)
            problems += disagreements(schema, info.stats, files.manifest)
            shards = info.stats.shards
            if TOKEN_COUNTS in {file.path for file in files.manifest.files} - damaged:
                problems += count_problems(info)
            problems += _tfds_problems(info, files, damaged)
    if "tokenizer.json" not in damaged:
        with _note_error(problems):
            surroundings = _surroundings(files, schema, tokenizer)
    if EVALUATION not in damaged and any(f.name == "example_id" for f in schema.features):
        with _note_error(problems):
            evaluation = _evaluation(files)
    return ExpectedRows(schema, shards, *surroundings, evaluation)


def _tfds_problems(info: SetInfo, files: SetFiles, damaged: set[str]) -> Iterator[str]:
    """Where the files for TensorFlow Datasets do not describe the rows."""
    listed = {file.path for file in info.manifest.files} - damaged
    for name, written in tfds_files(info.schema, info.manifest.files, info.stats).items():
        if name not in listed:
            continue
        found, due = load_json(files.fetch(name)), json.loads(written)
        if info.schema.code_version != VERSION and isinstance(found, dict):
            # The sentence for people is another version's; but that is named in it.
            told = found.get("description")
            if "description" in due and f" {info.schema.code_version}: " in str(told):
                due["description"] = told
        if found != due:
            yield f"{name} does not describe the rows of schema.json and stats.json"


def _evaluation(files: SetFiles) -> np.ndarray:
    """Names of the lines of evaluation.jsonl; a set without questions to evaluate has no file."""
    if EVALUATION not in {file.path for file in files.manifest.files}:
        return np.zeros(0, np.uint64)
    return evaluation_names(files.fetch(EVALUATION))


def _load_tokenizer(files: SetFiles) -> LoadedTokenizer:
    path = files.fetch("tokenizer.json")
    if not os.path.isfile(path):
        raise DataError(f"{path} is missing, and not listed in {MANIFEST}")
    return LoadedTokenizer.from_json(read_bounded(path))


def _surroundings(
    files: SetFiles, schema: Schema, loading: Future[LoadedTokenizer]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is before and after each segment.

    Raises:
      DataError: the tokenizer is missing, broken, or not the schema's.
    """
    tokenizer = loading.result().with_roles(schema.special_ids)
    path = files.fetch("tokenizer.json")
    if file_sha256(path) != schema.tokenizer_sha256:
        return (), ()  # another one, as the manifest tells
    found = tokenizer.vocab_size, tokenizer.special_ids, tokenizer.all_special_ids
    said = schema.vocab_size, schema.special_ids, schema.all_special_ids
    for name, one, other in zip(_OF_TOKENIZER, found, said, strict=True):
        if one != other:
            raise DataError(f"{path} has the {name} {quote(one)}, schema.json says {quote(other)}")
    now = dict(tokenizer.golden)
    for text, ids in schema.golden:
        if now.get(text, ids) != ids:
            raise DataError(f"{path} gives {now[text]} for {text!r}, schema.json says {ids}")
    task = task_class(schema.task)
    surroundings = task.surroundings(schema, tokenizer)
    said = tuple(tuple(schema.parameters.get(name, ())) for name in ("prefix_ids", "suffix_ids"))
    if task.wraps_segments and said != surroundings:
        raise DataError(f"{path} puts {surroundings} around a text, schema.json says {said}")
    return surroundings
