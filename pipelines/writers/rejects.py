"""Refused documents -> rejects/rejects.jsonl; those that filters dropped -> filtered.jsonl.

The former are few and come with reports. The latter may be most of the corpus: where their text is
to be kept, workers stash it in scratch files, and only pointers go through Beam.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import xxhash

from pipelines.readers.documents import Reject, place_of
from pipelines.storage import store
from pipelines.storage.scratch import Pointer, load, write_scratch
from pipelines.storage.store import disk_errors
from schemas.manifest import ManifestFile

REJECTS = "rejects/rejects.jsonl"
FILTERED = "rejects/filtered.jsonl"
_WRITTEN = ("detail", "offset", "path", "reason")  # of a reject


def rejects_file(rejects: Iterable[Reject]) -> dict[str, bytes]:
    """The file's name and content, sorted by place; nothing if none was refused."""
    ordered = sorted(rejects, key=place_of)
    written = ({name: getattr(reject, name) for name in _WRITTEN} for reject in ordered)
    lines = [json.dumps(fields, ensure_ascii=False) for fields in written]
    return {REJECTS: ("\n".join(lines) + "\n").encode()} if lines else {}


@dataclass(frozen=True, order=True)
class Stashed:
    """Lines of dropped documents in a scratch file; they sort as the documents were read."""

    block: int
    piece: int
    pointer: Pointer


def stash(lines: bytes, directory: str, block: int, piece: int) -> tuple[Stashed, ...]:
    """Writes lines into a new scratch file; nothing if there are none.

    Args:
      lines: as `Filtered.lines` has them.
      directory: for scratch files.
      block: number of the block that the documents are from.
      piece: number of the piece in it.
    """
    if not lines:
        return ()
    with disk_errors(os.path.join(directory, "filtered")):
        [pointer] = write_scratch(directory, [lines])
    return (Stashed(block, piece, pointer),)


def collect(stashed: Iterable[Stashed], staging: str) -> list[ManifestFile]:
    """Puts all lines into FILTERED in the staging folder, if there are any."""
    ordered = sorted(stashed)
    if not ordered:
        return []
    path, size, hashes = os.path.join(staging, FILTERED), 0, (sha256(), xxhash.xxh3_128())
    with store.workspace(staging) as folder, disk_errors(path):
        local = os.path.join(folder, FILTERED)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(local, "wb") as file:
            for one in ordered:
                lines = load(one.pointer)
                file.write(lines)
                size += len(lines)
                for found in hashes:
                    found.update(lines)
        store.put(local, path, hashes[1].digest())
    return [ManifestFile(FILTERED, size, hashes[0].hexdigest())]
