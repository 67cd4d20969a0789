"""Shards that a run finished before it died, for the next one to go on with.

A shard is a function of its examples and the schema. With --resume a note is written beside each
staged shard, called by a hash of both, with its counts and its files with their sha256. The next
run reads and routes all documents anew, but makes no shard that has such a note and whose files
have these sha256. So the set has the same bytes as that of one run.
"""

import io
import json
import os
import zipfile
from dataclasses import dataclass

import numpy as np
import xxhash

from pipelines.rows.example_batch import COPIES, ExampleBatch
from pipelines.storage import store
from pipelines.writers.shard_files import STAGED_NAME, staged_name
from schemas.errors import DataError
from schemas.manifest import ManifestFile
from schemas.metadata import Schema
from schemas.statistics import ShardStatistics
from schemas.typed_json import from_json, to_json

_NOTE = ".finished.npz"
_DAMAGE = (DataError, OSError, ValueError, KeyError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Finished:
    """A shard that is staged.

    Attributes:
      examples: hash of what it is made of, as `examples_hash` gives it.
      statistics: its counts.
      files: it in each format.
    """

    examples: str
    statistics: ShardStatistics
    files: tuple[ManifestFile, ...]


def examples_hash(schema: Schema, name: str, examples: ExampleBatch | None) -> str:
    """A hash of all that decides a shard's bytes; examples are in order and without repeats."""
    found = xxhash.xxh3_128(f"{schema.fingerprint} {name}".encode())
    if examples is not None:
        for column_name, column in zip(
            examples.batch.schema.names, examples.batch.columns, strict=True
        ):
            if column_name == COPIES:  # which is how often a document came, not what it is
                continue
            found.update(f"{column_name} {len(column)}".encode())
            for buffer in filter(None, column.buffers()):
                found.update(buffer)
    return found.hexdigest()


def note_finished(
    staging: str,
    name: str,
    examples: str,
    statistics: ShardStatistics,
    files: tuple[ManifestFile, ...],
    token_counts: np.ndarray,
) -> None:
    """Notes that a shard is whole, in a file beside it."""
    finished = to_json(Finished(examples, statistics, files))
    note = io.BytesIO()
    np.savez_compressed(note, finished=np.frombuffer(finished, np.uint8), token_counts=token_counts)
    store.write_file(_note(staging, name, examples), note.getvalue())


def find_finished(staging: str, name: str, examples: str) -> tuple[Finished, np.ndarray] | None:
    """A staged shard of the examples with this hash, and its token counts; None if not whole."""
    path = _note(staging, name, examples)
    try:
        finished, token_counts = _read(store.read(path), path)
    except _DAMAGE:
        return None
    whole = finished.examples == examples and all(
        store.sha256(os.path.join(staging, staged_name(file))) == file.sha256
        for file in finished.files
    )
    return (finished, token_counts) if whole else None


def count_finished(staging: str) -> int:
    """How many shards are staged."""
    staged = filter(None, map(STAGED_NAME.fullmatch, store.sizes(staging)))
    return len({name["shard"] for name in staged})


def keep_finished(left: str, staging: str) -> None:
    """Moves what a run left of finished shards on this disk into a new staging folder."""
    for entry in sorted(os.listdir(left)):
        if not entry.endswith(_NOTE):
            continue
        path = os.path.join(left, entry)
        try:
            found, _ = _read(store.read(path), path)
        except _DAMAGE:
            continue
        names = [staged_name(file) for file in found.files]
        if all(os.path.exists(os.path.join(left, name)) for name in names):
            for name in (*names, entry):
                os.replace(os.path.join(left, name), os.path.join(staging, name))


def _note(staging: str, name: str, examples: str) -> str:
    return os.path.join(staging, f"{name}.{examples[:16]}{_NOTE}")


def _read(content: bytes, path: str) -> tuple[Finished, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as note:
        finished = json.loads(note["finished"].tobytes())
        return from_json(Finished, finished, path), note["token_counts"]
