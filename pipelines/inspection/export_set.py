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
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST, ManifestFile, file_sha256
from schemas.sidecar import SetInfo, read_set
from schemas.terminal import say
from schemas.typed_json import from_json, load_json, to_json

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
    shards = _shards(info, options)
    asked = _record(info, options, shards)
    if os.path.exists(os.path.join(options.output, MANIFEST)):
        raise UsageError(
            f"--output={options.output} is a shard set: give the export a directory of its own"
        )
    table = _table(info, options)
    with stage(options.output) as places:
        staging = places.local
        if _is_finished(asked, options):
            say(f"{options.output} holds this very export already: nothing to do")
            return
        with disk_errors(staging):
            _make_folders(asked, staging)
        _write(info, shards, table, options.to, staging)
        _write_indices(shards, table, options.to, staging)
        size = _publish(asked, options.output, staging)
    rows = sum(asked.files.values())
    say(
        f"ok: {rows:,} rows in {len(shards):,} {options.to} file{'s' * (len(shards) != 1)}, "
        f"{decimal(size)}, {time.monotonic() - began:.1f} s: {options.output}"
    )


def _shards(info: SetInfo, options: ExportOptions) -> list[ManifestFile]:
    every = options.split is None
    wanted = sorted(info.schema.splits) if every else [find_split(info, options.split)]
    ending = info.schema.read_ending
    return [file for split in wanted for file in info.manifest.shards(split, ending)]


def _record(info: SetInfo, options: ExportOptions, shards: list[ManifestFile]) -> ExportRecord:
    return ExportRecord(
        fingerprint=info.schema.fingerprint,
        manifest=tuple(shard.sha256 for shard in shards),
        to=", ".join(filter(None, (options.to, options.layout))),
        unmask=options.unmask,
        text=options.text,
        files={
            **{_file_name(shard, options.to): shard.rows or 0 for shard in shards},
            **dict.fromkeys(_indices(shards, options.to), 0),
        },
        sha256={},
    )


def _file_name(shard: ManifestFile, file_format: str) -> str:
    """`train-00000-of-00002.array_record` -> `train-00000-of-00002.parquet`."""
    folder = f"{shard.split}/" if writer_class(file_format).index_name else ""
    return f"{folder}{shard.path.rsplit('.', 1)[0]}.{file_format}"


def _indices(shards: list[ManifestFile], file_format: str) -> dict[str, list[ManifestFile]]:
    """Name of each index that the format has, and the shards that it lists."""
    name = writer_class(file_format).index_name
    splits = sorted({shard.split or "" for shard in shards}) if name else []
    return {f"{split}/{name}": [s for s in shards if s.split == split] for split in splits}


def _table(info: SetInfo, options: ExportOptions) -> RowTable:
    info.schema.codec(info.directory)  # raises for a set that has no rows
    if options.unmask and not info.schema.static_masking:
        raise UsageError(
            f"--unmask: the rows of {info.directory} carry no masks, their ids are as they were; "
            "leave the flag out"
        )
    tokenizer = None
    if options.text:
        with open(info.locate("tokenizer.json"), "rb") as file:
            tokenizer = file.read()
    return RowTable(
        info.schema, layout=options.layout, unmasked=options.unmask, tokenizer=tokenizer
    )


def _is_finished(asked: ExportRecord, options: ExportOptions) -> bool:
    """Whether the output directory holds the export that is asked for.

    Raises:
      UsageError: it holds another one, or files that the export would replace.
      DataError: a file of it is gone or changed.
    """
    path = os.path.join(options.output, RECORD)
    if options.overwrite:
        return False
    if not os.path.exists(path):
        taken = [name for name in asked.files if os.path.exists(os.path.join(options.output, name))]
        if taken:
            raise UsageError(
                f"{options.output} has a {taken[0]} already, of no finished export: give another "
                "--output, or --overwrite to replace it"
            )
        return False
    there = from_json(ExportRecord, load_json(path), path)
    before, now = asdict(replace(there, sha256={})), asdict(asked)
    if before == now:
        _check_files(there, options.output)
        return True
    told = {name: "another set" for name in ("fingerprint", "manifest")}
    told["files"] = f"{len(there.files)} files, not {len(asked.files)}"
    differing = [
        told.get(name, f"{name} {before[name]!r}, not {now[name]!r}")
        for name in now
        if before[name] != now[name]
    ]
    raise UsageError(
        f"{options.output} holds another export ({'; '.join(dict.fromkeys(differing))}). Give "
        "another --output, or --overwrite to replace it"
    )


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
    info: SetInfo, shards: list[ManifestFile], table: RowTable, file_format: str, staging: str
) -> None:
    """Writes every shard into the staging folder."""
    stride = info.schema.codec().stride
    journal = Journal(staging)
    console = Console(file=sys.stderr, soft_wrap=True)
    display = Display(staging, sum(shard.rows or 0 for shard in shards) * stride, "export", console)
    shown = time.monotonic()
    try:
        for shard in shards:
            path = os.path.join(staging, _file_name(shard, file_format))
            rows = range(0, shard.rows or 0, table.rows_a_chunk)
            with disk_errors(path), open(path, "xb") as file:
                writer = writer_class(file_format)(file, table.schema, shard.rows or 0)
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


def _write_indices(
    shards: list[ManifestFile], table: RowTable, file_format: str, staging: str
) -> None:
    """Writes what lists the files of each split, where the format has such."""
    for name, listed in _indices(shards, file_format).items():
        paths = [os.path.join(staging, _file_name(shard, file_format)) for shard in listed]
        files = [
            FileSize(os.path.basename(path), shard.rows or 0, os.path.getsize(path))
            for path, shard in zip(paths, listed, strict=True)
        ]
        content = writer_class(file_format).index(table.schema, files)
        write_file(os.path.join(staging, name), content)


def _publish(asked: ExportRecord, output: str, staging: str) -> int:
    """Publishes the files, sealed by export.json.

    Returns:
      Bytes of the files.
    """
    record, old = os.path.join(output, RECORD), ()
    if os.path.exists(record):
        # The record may be from an untrusted source, and its names point elsewhere.
        found = from_json(ExportRecord, load_json(record), record).files
        old = filter(_NAME.fullmatch, found)
    paths = {name: os.path.join(staging, name) for name in asked.files}
    files = {name: (name, os.path.getsize(path)) for name, path in paths.items()}
    sealed = replace(asked, sha256={name: file_sha256(path) for name, path in paths.items()})
    publish_files(output, RECORD, to_json(sealed), files, old)
    return sum(size for _, size in files.values())


def _make_folders(asked: ExportRecord, directory: str) -> None:
    for folder in {os.path.dirname(name) for name in asked.files}:
        os.makedirs(os.path.join(directory, folder), exist_ok=True)
