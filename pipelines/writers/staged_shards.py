"""Shards that an interrupted run staged, which the next one reuses (--resume).

A shard is a function of its examples and the schema. With --resume, a run writes a record beside
each staged shard, named after a hash of both, with the shard's counts and the sha256 of its files.
The next run reads and routes all documents again, but reuses each shard whose record and files
match. So the dataset has the same bytes as that of an uninterrupted run.
"""

import io
import json
import os
import zipfile
from dataclasses import dataclass

import numpy as np
import xxhash

from textmill.pipelines.rows.example_batch import COPIES, ExampleBatch
from textmill.pipelines.writers.shard_files import STAGED_NAME, staged_name
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import ShardStatistics
from textmill.schemas.typed_json import from_json, to_json

_NOTE = ".finished.npz"
_DAMAGE = (DataError, OSError, ValueError, KeyError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Finished:
    """A shard that is staged.

    Attributes:
      examples: `examples_hash` of its examples.
      statistics: its counts.
      files: its file in each format.
    """

    examples: str
    statistics: ShardStatistics
    files: tuple[ManifestFile, ...]


def examples_hash(schema: Schema, name: str, examples: ExampleBatch | None) -> str:
    """A hash of all that decides a shard's bytes; examples are in order and without repeats."""
    digest = xxhash.xxh3_128(f"{schema.fingerprint} {name}".encode())
    if examples is not None:
        for column, parts in examples.contents():
            if column == COPIES:  # counts a document's copies and changes no byte of a shard
                continue
            digest.update(f"{column} {len(examples)}".encode())
            for part in parts:
                digest.update(part)
    return digest.hexdigest()


def note_finished(
    staging: str,
    name: str,
    examples: str,
    statistics: ShardStatistics,
    files: tuple[ManifestFile, ...],
    token_counts: np.ndarray,
) -> None:
    """Records that a shard is complete, in a file beside it."""
    finished = to_json(Finished(examples, statistics, files))
    note = io.BytesIO()
    np.savez_compressed(note, finished=np.frombuffer(finished, np.uint8), token_counts=token_counts)
    store.write_file(_note(staging, name, examples), note.getvalue())


def find_finished(staging: str, name: str, examples: str) -> tuple[Finished, np.ndarray] | None:
    """The staged shard of the examples with this hash, and its token counts; None if incomplete."""
    path = _note(staging, name, examples)
    try:
        finished, token_counts = _read(store.read(path), path)
    except _DAMAGE:
        return None
    whole = finished.examples == examples and all(
        store.has_sha256(os.path.join(staging, staged_name(file)), file.sha256)
        for file in finished.files
    )
    return (finished, token_counts) if whole else None


def count_finished(staging: str) -> int:
    """The number of staged shards."""
    staged = filter(None, map(STAGED_NAME.fullmatch, store.sizes(staging)))
    return len({name["shard"] for name in staged})


def keep_finished(old: str, staging: str) -> None:
    """Moves the finished shards of an old staging folder into a new one, on this disk."""
    for entry in sorted(os.listdir(old)):
        if not entry.endswith(_NOTE):
            continue
        path = os.path.join(old, entry)
        try:
            shard, _ = _read(store.read(path), path)
        except _DAMAGE:
            continue
        names = [staged_name(file) for file in shard.files]
        if all(os.path.exists(os.path.join(old, name)) for name in names):
            for name in (*names, entry):
                os.replace(os.path.join(old, name), os.path.join(staging, name))


def _note(staging: str, name: str, examples: str) -> str:
    return os.path.join(staging, f"{name}.{examples[:16]}{_NOTE}")


def _read(content: bytes, path: str) -> tuple[Finished, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as note:
        finished = json.loads(note["finished"].tobytes())
        return from_json(Finished, finished, path), note["token_counts"]
