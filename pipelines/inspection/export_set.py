"""Exports a dataset to a different format: one file per shard, and export.json last."""

import os
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from rich.filesize import decimal

from textmill.pipelines.inspection.export_formats import INDEX, INDICES, WRITERS
from textmill.pipelines.inspection.export_record import (
    ExportRecord,
    find_finished_export,
    publish_export,
)
from textmill.pipelines.inspection.options import ExportOptions
from textmill.pipelines.inspection.read_rows import find_split
from textmill.pipelines.inspection.row_table import RowTable
from textmill.pipelines.runners.console import Console, Display, Journal
from textmill.pipelines.writers.output_directory import (
    find_or_make,
    refuse_others,
)
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo, read_dataset
from textmill.schemas.format.manifest import ManifestFile

_UPDATE_SECONDS = 0.2


def export_set(options: ExportOptions) -> None:
    """Exports a dataset, or finds it exported, and reports it.

    Raises:
      UsageError: the output directory holds something else.
      DataError: the dataset is damaged.
    """
    began = time.monotonic()
    info = read_dataset(options.directory, follow_links=options.follow_links)
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
    refuse_others(options.output, None)
    table = RowTable(info, options)

    def make(staging: Staging) -> None:
        folder = staging.folder
        _write(table, files, options.to, folder)
        for name, listed in indices.items():
            sizes = [
                (each, asked.files[each], os.path.getsize(os.path.join(folder, each)))
                for each in listed
            ]
            store.write_file(os.path.join(folder, name), INDICES[options.to](table.schema, sizes))
        size = publish_export(asked, options.output, staging)
        rows, count = sum(asked.files.values()), number_of(len(files), f"{options.to} file")
        seconds = time.monotonic() - began
        say(f"ok: {rows:,} rows in {count}, {decimal(size)}, {seconds:.1f} s: {options.output}")

    if find_or_make(
        options.output,
        None,
        lambda: find_finished_export(asked, options.output),
        make,
        overwrite=options.overwrite,
    ):
        say(f"{options.output} already has this export: nothing to do")


def _name_files(
    info: DatasetInfo, options: ExportOptions
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
