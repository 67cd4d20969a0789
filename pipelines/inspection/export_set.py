"""Rows of a shard set in the files of another format: a file a shard, export.json last."""

import os
import re
import sys
import time
from dataclasses import asdict, dataclass, replace

from rich.filesize import decimal

from pipelines.host.console import Console
from pipelines.inspection.export_formats.export_file import FileSize, writer_class
from pipelines.inspection.options import ExportOptions
from pipelines.inspection.read_rows import read_rows
from pipelines.inspection.row_export import RowTable
from pipelines.inspection.show_row import find_split
from pipelines.runners.progress import Display, Journal
from pipelines.storage.store import disk_errors, write_file
from pipelines.writers.publish import publish_files
from pipelines.writers.staging import stage
from schemas.commands.terminal import number_of, say
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST, ManifestFile, file_sha256
from schemas.sidecar import SetInfo, read_set
from schemas.typed_json import from_json, load_json, read_bounded, to_json

RECORD = "export.json"
_UPDATE_SECONDS = 0.2
_NAME = re.compile(r"(\w+/)?[\w-]+\.\w+")  # of a file; a split may have a folder


@dataclass(frozen=True)
class ExportRecord:
    """What an export is (export.json).

    Attributes:
      fingerprint: of the set.
      manifest: sha256s of its shards, in the order of `files`.
      to: the format, and the layout if one was asked for: `parquet` or `parquet, maxtext`.
      unmask: as the flag.
      text: as the flag.
      files: a file's name to its rows, 0 of an index.
      sha256: a file's name to the hash of its bytes; empty of one that is not written yet.
    """

    fingerprint: str
    manifest: tuple[str, ...]
    to: str
    unmask: bool
    text: bool
    files: dict[str, int]
    sha256: dict[str, str]


def export_set(options: ExportOptions) -> None:
    """Exports a set, or finds it exported, and says so.

    Raises:
      UsageError: the output directory holds something else.
      DataError: the set is damaged.
    """
    began = time.monotonic()
    info = read_set(options.directory, follow_links=options.follow_links)
    files, indices = _files(info, options)
    asked = ExportRecord(
        fingerprint=info.schema.fingerprint,
        manifest=tuple(shard.sha256 for shard in files.values()),
        to=", ".join(filter(None, (options.to, options.layout))),
        unmask=options.unmask,
        text=options.text,
        files={name: shard.rows or 0 for name, shard in files.items()} | dict.fromkeys(indices, 0),
        sha256={},
    )
    if os.path.exists(os.path.join(options.output, MANIFEST)):
        raise UsageError(
            f"--output={options.output} is a shard set: give the export a directory of its own"
        )
    table = _table(info, options)
    with stage(options.output) as places:
        staging = places.local
        if not options.overwrite and _is_finished(asked, options.output):
            say(f"{options.output} holds this very export already: nothing to do")
            return
        with disk_errors(staging):
            for name in asked.files:
                os.makedirs(os.path.dirname(os.path.join(staging, name)), exist_ok=True)
        _write(info, files, table, options.to, staging)
        for name, listed in indices.items():
            sizes = [
                FileSize(os.path.basename(each), asked.files[each], _size(staging, each))
                for each in listed
            ]
            content = writer_class(options.to).index(table.schema, sizes)
            write_file(os.path.join(staging, name), content)
        size = _publish(asked, options.output, staging)
    rows, count = sum(asked.files.values()), number_of(len(files), f"{options.to} file")
    seconds = time.monotonic() - began
    say(f"ok: {rows:,} rows in {count}, {decimal(size)}, {seconds:.1f} s: {options.output}")


def _files(
    info: SetInfo, options: ExportOptions
) -> tuple[dict[str, ManifestFile], dict[str, list[str]]]:
    """Each file and its shard; and each index that the format has, and the files that it lists.

    `train-00000-of-00002.array_record` becomes `train-00000-of-00002.parquet`, and that of a format
    with indices is in a folder of its split.
    """
    splits = sorted(info.schema.splits)
    if options.split is not None:
        splits = [find_split(info, options.split)]
    index = writer_class(options.to).index_name
    files, indices = {}, {}
    for split in splits:
        folder = f"{split}/" if index else ""
        shards = info.manifest.shards(split, info.schema.read_ending)
        named = {f"{folder}{s.path.rsplit('.', 1)[0]}.{options.to}": s for s in shards}
        files |= named
        if index and named:
            indices[folder + index] = list(named)
    return files, indices


def _table(info: SetInfo, options: ExportOptions) -> RowTable:
    info.schema.codec(info.directory)  # raises for a set that has no rows
    if options.unmask and not info.schema.static_masking:
        raise UsageError(
            f"--unmask: the rows of {info.directory} carry no masks, their ids are as they were; "
            "leave the flag out"
        )
    tokenizer = read_bounded(info.locate("tokenizer.json")) if options.text else None
    return RowTable(
        info.schema, layout=options.layout, unmasked=options.unmask, tokenizer=tokenizer
    )


def _is_finished(asked: ExportRecord, output: str) -> bool:
    """Whether the output directory holds the export that is asked for.

    Raises:
      UsageError: it holds another one, or files that the export would replace.
      DataError: a file of it is gone or changed.
    """
    path, remedy = (
        os.path.join(output, RECORD),
        "give another --output, or --overwrite to replace it",
    )
    if not os.path.exists(path):
        taken = [name for name in asked.files if os.path.exists(os.path.join(output, name))]
        if taken:
            raise UsageError(f"{output} has a {taken[0]} already, of no finished export: {remedy}")
        return False
    there = from_json(ExportRecord, load_json(path), path)
    before, now = asdict(replace(there, sha256={})), asdict(asked)
    if before == now:
        _check_files(there, output)
        return True
    told = {name: "another set" for name in ("fingerprint", "manifest")}
    told["files"] = f"{len(there.files)} files, not {len(asked.files)}"
    differing = [
        told.get(name, f"{name} {before[name]!r}, not {now[name]!r}")
        for name in now
        if before[name] != now[name]
    ]
    differences = "; ".join(dict.fromkeys(differing))
    raise UsageError(f"{output} holds another export ({differences}): {remedy}")


def _check_files(there: ExportRecord, output: str) -> None:
    remedy = "export into another --output, or give --overwrite to write it again"
    for name in there.files:
        path = os.path.join(output, name)
        try:
            same = file_sha256(path) == there.sha256.get(name)
        except FileNotFoundError:
            raise DataError(f"{path} of a finished export is gone: {remedy}") from None
        if not same:
            raise DataError(f"{path} is not as the export wrote it: {remedy}")


def _write(
    info: SetInfo, files: dict[str, ManifestFile], table: RowTable, to: str, staging: str
) -> None:
    """Writes every shard into the staging folder."""
    stride = info.schema.codec().stride
    total = sum(shard.rows or 0 for shard in files.values()) * stride
    journal, console = Journal(staging), Console(file=sys.stderr, soft_wrap=True)
    display = Display(staging, total, "export", console)
    shown = time.monotonic()
    try:
        for name, shard in files.items():
            path = os.path.join(staging, name)
            rows = range(0, shard.rows or 0, table.rows_a_chunk)
            with disk_errors(path), open(path, "xb") as file:
                writer = writer_class(to)(file, table.schema, shard.rows or 0)
                try:
                    for _, columns in read_rows(info, shard, rows):
                        chunk = table.batch(columns)
                        writer.write(chunk)
                        journal.add(bytes_read=len(chunk) * stride, rows=len(chunk))
                        if time.monotonic() - shown > _UPDATE_SECONDS:
                            shown = time.monotonic()
                            display.update()
                    writer.close()
                except BaseException:
                    writer.abandon()
                    raise
                file.flush()
                os.fsync(file.fileno())
    finally:
        display.close()


def _publish(asked: ExportRecord, output: str, staging: str) -> int:
    """Publishes the files, sealed by export.json; gives their bytes."""
    record, old = os.path.join(output, RECORD), ()
    if os.path.exists(record):
        # The record may be from an untrusted source, and its names point elsewhere.
        found = from_json(ExportRecord, load_json(record), record).files
        old = filter(_NAME.fullmatch, found)
    files = {name: (name, _size(staging, name)) for name in asked.files}
    sha256 = {name: file_sha256(os.path.join(staging, name)) for name in files}
    publish_files(output, RECORD, to_json(replace(asked, sha256=sha256)), files, old)
    return sum(size for _, size in files.values())


def _size(folder: str, name: str) -> int:
    return os.path.getsize(os.path.join(folder, name))
