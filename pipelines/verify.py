"""Re-reads finished shard sets, all of them: `python -m pipelines.verify DIR [DIR ...]`.

Exit 0 and one line if everything is as published; else exit 1 and what is wrong, where.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pipelines.evaluation import EVALUATION, evaluation_names, example_name
from pipelines.shard_check import Contract, ShardCheck
from pipelines.text_pairs import ids_between
from pipelines.token_counts import TOKEN_COUNTS, count_problems
from pipelines.tokenization import LoadedTokenizer
from schemas.array_record import HashRows, highway_hash
from schemas.errors import DataError, UsageError, run_entry
from schemas.sidecar import (
    MANIFEST,
    SIDECARS,
    Manifest,
    ManifestFile,
    Schema,
    file_sha256,
    read_manifest,
    read_sidecars,
)
from schemas.typed_json import load_json

SHOWN = 20  # problems of a set that are printed
_COMPILED_PAYS_BYTES = 300_000_000


@dataclass(frozen=True)
class VerifyOptions:
    """Re-reads finished shard sets and checks all that they say of themselves.

    Attributes:
      directories: of the sets, each with a MANIFEST.json.
    """

    directories: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")
    ]

    def __post_init__(self) -> None:
        """Refuses an empty list."""
        if not self.directories:
            raise UsageError("give the directory of a shard set: python -m pipelines.verify DIR")


@dataclass
class Report:
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


def main(argv: list[str]) -> None:
    """Verifies the sets of a command line."""
    options = tyro.cli(
        VerifyOptions, prog="python -m pipelines.verify", args=argv, use_underscores=True
    )
    began = time.monotonic()
    rows = tokens = 0
    failures = []
    for directory in options.directories:
        try:
            with _progress(directory) as on_bytes:
                report = verify_set(directory, on_bytes)
        except DataError as error:
            failures.append(str(error))
            continue
        for note in report.notes:
            print(f"note: {directory}: {note}", file=sys.stderr)
        if report.problems:
            failures.append(_failure(directory, report.problems))
        rows += report.rows
        tokens += report.tokens
    if failures:
        raise DataError("\n".join(failures))
    sets = len(options.directories)
    print(
        f"ok: {sets} {'set' if sets == 1 else 'sets'}, {rows:,} rows, {tokens:,} tokens, "
        f"{time.monotonic() - began:.1f} s"
    )


def _failure(directory: str, problems: list[str]) -> str:
    more = len(problems) - SHOWN
    shown = problems[:SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
    what = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
    return "\n  ".join([f"{directory} is not as it was published, {what}:", *shown])


@contextmanager
def _progress(directory: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; gives what to call with numbers of bytes."""
    console = Console(file=sys.stderr)
    manifest = read_manifest(directory)
    # Shards are read twice: for their hash and for their rows.
    total = sum(f.bytes * (1 if f.split is None else 2) for f in manifest.files)
    columns = (TextColumn("verify"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("verify", total=total)
        yield lambda number: progress.advance(task, number)


def verify_set(directory: str, on_bytes: Callable[[int], None] = lambda number: None) -> Report:
    """Checks everything that a set says of itself.

    Every file: size and sha256. Every shard: the format's own checksums, number of rows, layout,
    what `pipelines.row_checks` knows, and its counts in stats.json. The set: the equations of
    stats.json, as many tokens in token_counts.npy, the tokenizer's hash and golden ids, equal rows
    in both formats.

    Args:
      directory: where MANIFEST.json lies.
      on_bytes: called with numbers of bytes as they are done, from several threads; shards count
        twice, for their hash and for their rows.

    Raises:
      DataError: there is no manifest to go by.
    """
    manifest = read_manifest(directory)
    report = Report(notes=_unlisted(directory, manifest))
    stop = threading.Event()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            tokenizer = pool.submit(_load_tokenizer, directory)  # takes a while
            hashes = pool.map(lambda file: _hash(directory, file, on_bytes), manifest.files)
            hash_rows = _choose_row_hash(manifest)
            damaged = _damaged(manifest, list(hashes))
            report.problems += damaged.values()
            contract = _contract(directory, manifest, set(damaged), tokenizer, report)
            if contract is None:
                report.notes.append("no row was read, since schema.json cannot be trusted")
                return report
            checks = _shard_checks(directory, manifest, contract, on_bytes, hash_rows)
            for check in pool.map(lambda check: check.run(stop), checks):
                report.problems += check.problems
                report.rows += check.rows
                report.tokens += check.tokens
            report.problems += _without_rows(contract, checks)
        except BaseException:  # Ctrl-C too: what runs ends at its next batch
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return report


def _choose_row_hash(manifest: Manifest) -> HashRows:
    """Compiled where that pays: 2.6 s less for a GB, and 0.5 s to load."""
    if sum(file.bytes for file in manifest.files) < _COMPILED_PAYS_BYTES:
        return highway_hash
    from pipelines.highway_hash import highway_hash as compiled_hash  # imports numba

    return compiled_hash


def _shard_checks(
    directory: str,
    manifest: Manifest,
    contract: Contract,
    on_bytes: Callable[[int], None],
    hash_rows: HashRows,
) -> list[ShardCheck]:
    schema = contract.schema
    listed = {file.path: file for file in manifest.files}
    checks = []
    for name in (name for split in sorted(schema.splits) for name in schema.shard_names(split)):
        paths = [f"{name}.{file_format}" for file_format in schema.file_formats]
        files = [listed[path] for path in paths if path in listed]
        checks.append(ShardCheck(directory, name, files, contract, on_bytes, hash_rows))
    return checks


def _without_rows(contract: Contract, checks: list[ShardCheck]) -> list[str]:
    """Lines of evaluation.jsonl that no row names."""
    if contract.evaluation is None:
        return []
    named = [names for check in checks for names in check.examples]
    lines = np.setdiff1d(contract.evaluation, np.concatenate(named or [contract.evaluation[:0]]))
    return [f"{EVALUATION}: no row is of {example_name(int(line))}" for line in lines[:SHOWN]]


def _unlisted(directory: str, manifest: Manifest) -> list[str]:
    """Notes on files that are no part of the set; hidden ones, such as a lock, are passed over."""
    listed = {file.path for file in manifest.files} | {MANIFEST}
    found = set()
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        visible = [os.path.join(folder, name) for name in names if not name.startswith(".")]
        found.update(os.path.relpath(path, directory).replace(os.sep, "/") for path in visible)
    return [f"{path} is not listed in {MANIFEST}" for path in sorted(found - listed)]


def _hash(
    directory: str, file: ManifestFile, on_bytes: Callable[[int], None]
) -> tuple[int, str] | None:
    """Size and sha256 of a file; None if there is none."""
    path = os.path.join(directory, file.path)
    if not os.path.isfile(path):
        return None
    found = os.path.getsize(path), file_sha256(path)
    on_bytes(file.bytes)
    return found


def _damaged(manifest: Manifest, hashes: list[tuple[int, str] | None]) -> dict[str, str]:
    """Path to what is wrong with the file, for those that are not as the manifest says."""
    owner = {file.sha256: file.path for file in manifest.files}
    damaged = {}
    for file, found in zip(manifest.files, hashes, strict=True):
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


def _contract(
    directory: str,
    manifest: Manifest,
    damaged: set[str],
    tokenizer: Future[LoadedTokenizer],
    report: Report,
) -> Contract | None:
    """What undamaged sidecars say; what is wrong with them goes into the report.

    Returns:
      None if schema.json is not to be trusted.
    """
    if "schema.json" in damaged:
        return None
    path = os.path.join(directory, "schema.json")
    try:
        schema = Schema.from_dict(load_json(path), path)
    except DataError as error:
        report.problems.append(str(error))
        return None
    shards, prefix, suffix, evaluation = {}, (), (), None
    if not damaged.intersection(SIDECARS):
        try:
            info = read_sidecars(directory, manifest)
            broken = info.stats.broken_equations(schema.mask_copies)
            report.problems += [f"stats.json: {equation}" for equation in broken]
            shards = info.stats.shards
            if TOKEN_COUNTS not in damaged:
                report.problems += count_problems(info)
        except DataError as error:
            report.problems.append(str(error))
    if "tokenizer.json" not in damaged:
        try:
            prefix, suffix = _surroundings(directory, schema, tokenizer)
        except DataError as error:
            report.problems.append(str(error))
    if EVALUATION not in damaged and any(f.name == "example_id" for f in schema.features):
        try:
            evaluation = _evaluation(directory, manifest)
        except DataError as error:
            report.problems.append(str(error))
    return Contract(schema, shards, prefix, suffix, evaluation)


def _evaluation(directory: str, manifest: Manifest) -> np.ndarray:
    """Names of the lines of evaluation.jsonl; a set without questions to evaluate has no file."""
    if EVALUATION not in {file.path for file in manifest.files}:
        return np.zeros(0, np.uint64)
    return evaluation_names(os.path.join(directory, EVALUATION))


def _load_tokenizer(directory: str) -> LoadedTokenizer:
    path = os.path.join(directory, "tokenizer.json")
    if not os.path.isfile(path):
        raise DataError(f"{path} is missing, and not listed in {MANIFEST}")
    with open(path, "rb") as file:
        return LoadedTokenizer.from_json(file.read())


def _surroundings(
    directory: str, schema: Schema, loading: Future[LoadedTokenizer]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is before and after each segment.

    Raises:
      DataError: the tokenizer is missing, broken, or not the schema's.
    """
    path = os.path.join(directory, "tokenizer.json")
    tokenizer = loading.result()
    if file_sha256(path) != schema.tokenizer_sha256:
        raise DataError(f"{path} is not the tokenizer of schema.json: its sha256 is another")
    if tokenizer.vocab_size > schema.vocab_size:
        raise DataError(
            f"{path} has {tokenizer.vocab_size:,} ids, schema.json says {schema.vocab_size:,}"
        )
    now = dict(tokenizer.golden)
    for text, ids in schema.golden:
        if now.get(text, ids) != ids:
            raise DataError(f"{path} gives {now[text]} for {text!r}, schema.json says {ids}")
    if schema.task == "qa":
        ids = schema.special_ids
        return (ids["bos"],) * schema.parameters["bos"], (ids["eos"],)
    if schema.task not in ("mlm", "classification"):  # the others wrap documents, not segments
        return (), ()
    surroundings = tokenizer.prefix_ids, tokenizer.suffix_ids
    if "middle_ids" in schema.parameters:
        before, _, after = ids_between(tokenizer.pair_form)
        surroundings = tuple(before), tuple(after)
    said = tuple(tuple(schema.parameters.get(name, ())) for name in ("prefix_ids", "suffix_ids"))
    if said != surroundings:
        raise DataError(f"{path} puts {surroundings} around a text, schema.json says {said}")
    return surroundings


if __name__ == "__main__":
    run_entry(main)
