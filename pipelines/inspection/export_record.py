"""export.json: the description of an export, with which it is found and published."""

import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from textmill.pipelines.writers.output_directory import EXPORT_RECORD, refuse_another
from textmill.pipelines.writers.staging import Staging, publish_files
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.typed_json import from_json, load_json, to_json

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


def find_finished_export(asked: ExportRecord, output: str) -> ExportRecord | None:
    """The requested export if it is in the output directory, else None; raises for any other."""
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


def publish_export(asked: ExportRecord, output: str, staging: Staging) -> int:
    """Publishes the files, export.json last; returns their size in bytes."""
    folder = staging.folder
    record, old = os.path.join(output, EXPORT_RECORD), ()
    if os.path.exists(record):
        # The record may be untrusted, with names that point outside.
        with suppress(DataError):  # a damaged one, which --overwrite replaces
            found = from_json(ExportRecord, load_json(record), record).files
            old = filter(_NAME.fullmatch, found)
    files = {name: (name, os.path.getsize(os.path.join(folder, name))) for name in asked.files}
    sha256 = {name: store.sha256(os.path.join(folder, name)) for name in files}
    publish_files(
        output, staging.run, EXPORT_RECORD, to_json(replace(asked, sha256=sha256)), files, old
    )
    return sum(size for _, size in files.values())
