"""Exports a dataset to another format: one file per shard, and export.json last."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from rich.filesize import decimal

from textmill.pipelines.inspection.export_formats import INDEX, INDICES, WRITERS
from textmill.pipelines.inspection.options import ExportOptions
from textmill.pipelines.inspection.read_rows import find_split
from textmill.pipelines.inspection.row_table import RowTable
from textmill.pipelines.runners.console import Console, Display, Journal
from textmill.pipelines.writers.output_directory import (
    EXPORT_RECORD,
    find_or_make,
    refuse_another,
    refuse_others,
)
from textmill.pipelines.writers.staging import Staging, publish_files
from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import SetInfo, read_set
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.typed_json import from_json, load_json, to_json

_UPDATE_SECONDS = 0.2
_NAME = re.compile(r"(\w+/)?[\w-]+\.\w+")  # a file name; a split may have its own folder


@dataclass(frozen=True)
class ExportRecord:
    """The description of an export (export.json).

    Attributes:
      fingerprint: fingerprint of the dataset.
      manifest: sha256 of its shards, in the order of `files`.
      to: the format, with the column layout if one was requested: `parquet, maxtext`.
      unmask: --unmask.
      text: --text.
      files: number of rows by file name; 0 for an index.
      sha256: hash by file name; empty before the files are written.
    """

    fingerprint: str
    manifest: tuple[str, ...]
    to: str
    unmask: bool
    text: bool
    files: dict[str, int]
    sha256: dict[str, str]


def export_set(options: ExportOptions) -> None:
    """Exports a dataset, or finds it exported, and reports it.

    Raises:
      UsageError: the output directory holds something else.
      DataError: the dataset is damaged.
    """
    began = time.monotonic()
    info = read_set(options.directory, follow_links=options.follow_links)
    files, indices = _name_files(info, options)
    asked = ExportRecord(
        fingerprint=info.schema.fingerprint,
        manifest=tuple(shard.sha256 for shard in files.values()),
        to=", ".join(filter(None, (options.to, options.layout))),
        unmask=options.unmask,
        text=options.text,
        files={name: shard.rows or 0 for name, shard in files.items()} | dict.fromkeys(indices, 0),
        sha256={},
    )
    refuse_others(options.output, EXPORT_RECORD)
    table = RowTable(info, options)

    def make(staging: Staging) -> None:
        folder = staging.folder
        _write(table, files, options.to, folder)
        for name, listed in indices.items():
            sizes = [(each, asked.files[each], _size(folder, each)) for each in listed]
            store.write_file(os.path.join(folder, name), INDICES[options.to](table.schema, sizes))
        size = _publish(asked, options.output, staging)
        rows, count = sum(asked.files.values()), number_of(len(files), f"{options.to} file")
        seconds = time.monotonic() - began
        say(f"ok: {rows:,} rows in {count}, {decimal(size)}, {seconds:.1f} s: {options.output}")

    if find_or_make(
        options.output,
        EXPORT_RECORD,
        lambda: _find_finished(asked, options.output),
        make,
        overwrite=options.overwrite,
    ):
        say(f"{options.output} already has this export: nothing to do")


def _name_files(
    info: SetInfo, options: ExportOptions
) -> tuple[dict[str, ManifestFile], dict[str, list[str]]]:
    """Returns the shard of each file, and the files of each index.

    `train-00000-of-00002.array_record` becomes `train-00000-of-00002.parquet`. A format with an
    index has one folder per split.
    """
    splits = sorted(info.schema.splits)
    if options.split is not None:
        splits = [find_split(info, options.split)]
    files, indices = {}, {}
    for split in splits:
        folder = f"{split}/" if options.to in INDICES else ""
        shards = info.manifest.shards(split, info.schema.read_ending)
        named = {f"{folder}{s.path.rsplit('.', 1)[0]}.{options.to}": s for s in shards}
        files |= named
        if folder and named:
            indices[folder + INDEX] = list(named)
    return files, indices


def _find_finished(asked: ExportRecord, output: str) -> ExportRecord | None:
    """Returns the export in the output directory; None if there is none; raises for another."""
    path = os.path.join(output, EXPORT_RECORD)
    remedy = f"give another {flag('output')}, or {flag('overwrite', True)}"
    if not os.path.exists(path):
        taken = [name for name in asked.files if os.path.exists(os.path.join(output, name))]
        if taken:
            raise UsageError(f"{output} already has a {taken[0]}, but no {EXPORT_RECORD}: {remedy}")
        return None
    there = from_json(ExportRecord, load_json(path), path)
    before, now = asdict(replace(there, sha256={})), asdict(asked)
    if before == now:
        _check_files(there, output)
        return there
    words = {name: "another dataset" for name in ("fingerprint", "manifest")}
    words["files"] = f"{len(there.files)} files, not {len(asked.files)}"
    differing = {
        words.get(name, f"{name} {before[name]!r}, not {now[name]!r}"): None
        for name in now
        if before[name] != now[name]
    }
    refuse_another(output, "another export", list(differing))


def _check_files(there: ExportRecord, output: str) -> None:
    remedy = (
        f"export into another {flag('output')}, or give {flag('overwrite', True)} to write it again"
    )
    for name in there.files:
        path = os.path.join(output, name)
        try:
            same = store.sha256(path) == there.sha256.get(name)
        except FileNotFoundError:
            raise DataError(f"{path} of a finished export is missing: {remedy}") from None
        if not same:
            raise DataError(f"{path} has changed since the export: {remedy}")


def _write(table: RowTable, files: dict[str, ManifestFile], to: str, staging: str) -> None:
    """Writes every shard into the staging folder."""
    total = sum(shard.rows or 0 for shard in files.values()) * table.info.schema.codec().stride
    display = Display(staging, total, "export", Console(file=sys.stderr, soft_wrap=True))
    try:
        for name, shard in files.items():
            path = os.path.join(staging, name)
            chunks = _show(table.batches(shard, Journal(staging)), display)
            with store.disk_errors(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb") as file:
                    WRITERS[to](file, table.schema, shard.rows or 0, chunks)
                    file.flush()
                    os.fsync(file.fileno())
    finally:
        display.close()


def _show(chunks: Iterator[pa.RecordBatch], display: Display) -> Iterator[pa.RecordBatch]:
    """Yields the chunks and updates the display between them."""
    shown = time.monotonic()
    for chunk in chunks:
        yield chunk
        if time.monotonic() - shown > _UPDATE_SECONDS:
            shown = time.monotonic()
            display.update()


def _publish(asked: ExportRecord, output: str, staging: Staging) -> int:
    """Publishes the files, export.json last; returns their size in bytes."""
    folder = staging.folder
    record, old = os.path.join(output, EXPORT_RECORD), ()
    if os.path.exists(record):
        # The record may be untrusted, with names that point outside.
        with suppress(DataError):  # a damaged one, which --overwrite replaces
            found = from_json(ExportRecord, load_json(record), record).files
            old = filter(_NAME.fullmatch, found)
    files = {name: (name, _size(folder, name)) for name in asked.files}
    sha256 = {name: store.sha256(os.path.join(folder, name)) for name in files}
    publish_files(
        output, staging.run, EXPORT_RECORD, to_json(replace(asked, sha256=sha256)), files, old
    )
    return sum(size for _, size in files.values())


def _size(folder: str, name: str) -> int:
    return os.path.getsize(os.path.join(folder, name))
