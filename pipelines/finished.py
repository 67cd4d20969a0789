"""Shards that a run finished before it died, for the next one to go on with.

A shard is a function of its examples and the contract. Beside each staged shard lies a small
manifest: a hash of both, its counts, its files with their sha256. A run with --resume reads and
routes all documents anew, but makes no shard whose hash is the same and whose files are whole.
Nothing is trusted that was not looked at, and the set is, byte by byte, that of one go.
"""

import os
from dataclasses import dataclass

import numpy as np
import xxhash

from pipelines.exchange import COPIES, SubBlock
from pipelines.staging import write_file
from pipelines.token_counts import counts_bytes, read_counts
from schemas.errors import DataError
from schemas.sidecar import ManifestFile, Schema, file_sha256
from schemas.statistics import ShardStatistics
from schemas.typed_json import from_json, load_json, to_json

_NOTE, _COUNTS = ".finished.json", ".token_counts.npy"


@dataclass(frozen=True)
class Finished:
    """A shard that is staged.

    Attributes:
      examples: hash of what it is made of, as `examples_hash` gives it.
      statistics: its counts.
      files: it in each format.
      token_counts: of the file that holds how often it has each token.
    """

    examples: str
    statistics: ShardStatistics
    files: tuple[ManifestFile, ...]
    token_counts: ManifestFile


def examples_hash(schema: Schema, name: str, examples: SubBlock | None) -> str:
    """A hash of all that decides a shard's bytes.

    Args:
      schema: the contract.
      name: of the shard.
      examples: in the order in which rows are made of them, without repeats; None for none.
    """
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
    counts = name + _COUNTS
    write_file(os.path.join(staging, counts), counts_bytes(token_counts))
    sha256 = file_sha256(os.path.join(staging, counts))
    listed = ManifestFile(counts, os.path.getsize(os.path.join(staging, counts)), sha256)
    note = to_json(Finished(examples, statistics, files, listed))
    write_file(os.path.join(staging, name + _NOTE), note)


def find_finished(staging: str, name: str, examples: str) -> tuple[Finished, np.ndarray] | None:
    """A staged shard that is made of these examples, and its token counts; None if none is whole.

    Args:
      staging: the folder.
      name: of the shard.
      examples: hash of what it is to be made of.
    """
    path = os.path.join(staging, name + _NOTE)
    if not os.path.exists(path):
        return None
    try:
        found = from_json(Finished, load_json(path), path)
    except DataError:
        return None
    listed = (*found.files, found.token_counts)
    if found.examples != examples or not all(_is_whole(staging, file) for file in listed):
        return None
    return found, read_counts(os.path.join(staging, found.token_counts.path))


def count_finished(staging: str) -> int:
    """How many shards lie there that an earlier run finished."""
    return sum(name.endswith(_NOTE) for name in os.listdir(staging))


def keep_finished(left: str, staging: str) -> None:
    """Moves what a run left of finished shards into a new staging folder."""
    for entry in sorted(os.listdir(left)):
        if not entry.endswith(_NOTE):
            continue
        try:
            found = from_json(Finished, load_json(os.path.join(left, entry)), entry)
        except DataError:
            continue
        names = [file.path for file in (*found.files, found.token_counts)]
        if all(os.path.exists(os.path.join(left, name)) for name in names):
            for name in (*names, entry):
                os.replace(os.path.join(left, name), os.path.join(staging, name))


def _is_whole(staging: str, file: ManifestFile) -> bool:
    path = os.path.join(staging, file.path)
    return (
        os.path.exists(path)
        and os.path.getsize(path) == file.bytes
        and file_sha256(path) == file.sha256
    )
