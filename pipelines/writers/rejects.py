"""Rejected documents -> rejects/rejects.jsonl; filtered documents -> rejects/filtered.jsonl.

Rejected documents are few and come with the workers' reports. Filtered ones may be most of the
corpus: if they are to be kept, workers write them to scratch files and send pointers through Beam.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.documents import Reject
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.writers.scratch import Pointer, load, write_scratch
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError, as_flags, flag
from textmill.schemas.files import store
from textmill.schemas.format.manifest import REJECTS, ManifestFile

FILTERED = "rejects/filtered.jsonl"
_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.large_string()),
        ("unit", pa.string()),
    ]
)
_WRITTEN = ("detail", "offset", "path", "reason")  # of a reject


@dataclass(frozen=True)
class Rejects:
    """The rejected documents of a run, which may be millions."""

    table: pa.Table = field(default_factory=_COLUMNS.empty_table)

    @staticmethod
    def of(rejects: Iterable[Reject]) -> "Rejects":
        """Makes a table of rejected documents."""
        rows = [asdict(reject) for reject in rejects]
        return Rejects(pa.Table.from_pylist(rows, _COLUMNS)) if rows else Rejects()

    @staticmethod
    def sum(parts: "Iterable[Rejects]") -> "Rejects":
        """Joins the tables of workers."""
        tables = [part.table for part in parts if len(part)]
        return Rejects(pa.concat_tables(tables).combine_chunks()) if tables else Rejects()

    def __len__(self) -> int:
        """The number of rejected documents."""
        return self.table.num_rows

    def __iter__(self) -> Iterator[Reject]:
        """Yields the documents by path and offset, in whatever order they were read."""
        return _rows(self._ordered())

    def first_of_reasons(self) -> dict[str, Reject]:
        """The first document of each reason."""
        ordered = self._ordered()
        codes = ordered["reason"].combine_chunks().dictionary_encode().indices.to_numpy()
        firsts = np.unique(codes, return_index=True)[1]
        return {reject.reason: reject for reject in _rows(ordered.take(pa.array(firsts)))}

    def _ordered(self) -> pa.Table:
        offset = self.table["offset"].fill_null(0)
        keys = self.table.set_column(1, _COLUMNS.field("offset"), offset)
        by = [(name, "ascending") for name in ("path", "offset", "detail", "reason")]
        return self.table.take(pc.sort_indices(keys, by))

    def describe_first(self) -> str:
        """Describes the first one: "; the first is in a.jsonl at byte 0: broken_json, ..."."""
        first = next(iter(self), None)
        if first is None:
            return ""
        return f"; the first is in {first.place}: {first.reason}, {first.detail}"

    def refuse_too_many(self, most: int) -> None:
        """Raises DataError if more than `most` documents were rejected; `most` < 0 allows all.

        The message has the reasons and the first document.
        """
        if not 0 <= most < len(self):
            return
        counts = sorted(self.table["reason"].value_counts().to_pylist(), key=lambda c: c["values"])
        reasons = ", ".join(f"{each['counts']:,} {each['values']}" for each in counts)
        raise DataError(
            f"{number_of(len(self), 'document was', 'documents were')} rejected, more than "
            f"{flag('max_rejects', f'{most:,}')} ({reasons}){self.describe_first()}. Correct the "
            "input, or allow more (-1: any number)"
        )


def _rows(table: pa.Table) -> Iterator[Reject]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from (Reject(**row) for row in batch.to_pylist())


def rejects_file(rejects: Rejects) -> dict[str, bytes]:
    """The file's name and content, sorted by path and offset; {} if no document was rejected."""
    content = io.StringIO()
    for reject in rejects:
        written = {name: getattr(reject, name) for name in _WRITTEN}
        written["detail"] = as_flags(reject.detail)
        content.write(json.dumps(written, ensure_ascii=False) + "\n")
    return {REJECTS: content.getvalue().encode()} if len(rejects) else {}


@dataclass(frozen=True, order=True)
class Stashed:
    """Lines of filtered documents in a scratch file, sorted by block and piece."""

    block: int
    piece: int
    pointer: Pointer


def stash(lines: bytes, directory: str, block: int, piece: int) -> tuple[Stashed, ...]:
    """Writes the lines of `Filtered` of a piece of a block, if any, into a new scratch file."""
    if not lines:
        return ()
    with store.disk_errors(os.path.join(directory, "filtered")):
        [pointer] = write_scratch(directory, [lines])
    return (Stashed(block, piece, pointer),)


def collect(stashed: Iterable[Stashed], staging: str) -> list[ManifestFile]:
    """Writes all lines, if there are any, into FILTERED in the staging folder."""
    ordered = sorted(stashed)
    if not ordered:
        return []
    path, size, digest = os.path.join(staging, FILTERED), 0, sha256()
    with store.workspace(staging) as folder, store.disk_errors(path):
        local = os.path.join(folder, FILTERED)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(local, "wb") as file:
            for one in ordered:
                lines = load(one.pointer)
                file.write(lines)
                size += len(lines)
                digest.update(lines)
        store.put(local, path)
    return [ManifestFile(FILTERED, size, digest.hexdigest())]
