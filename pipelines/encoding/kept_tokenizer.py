"""Keeps tokenizers in the user's cache, with their word tables, for later processes.

Parsing o200k's tokenizer.json and making its word table takes 2.5 s of processor time, finding both
in the cache 0.2 s. A file has a header of JSON, and arrays that are mapped into memory, so that the
processes of a run share them:

    $XDG_CACHE_HOME/textmill/tokenizers/KEY-CODE       ~/.cache by default

KEY is the SHA-256 of the tokenizer.json, CODE a digest of everything else that decides the content:
the files of this package and the version of `tokenizers`. A file that is damaged, or made by other
code, is ignored and made again.
"""

import contextlib
import hashlib
import json
import mmap
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from textmill.schemas.files.set_files import default_directory

LEAST_BYTES = 1 << 20  # a smaller tokenizer.json is quick to parse, and is not kept
MOST_BYTES = 1 << 30  # of all files together; those that were used least recently are removed
_ALIGNED = 64
_HEADER, _SUM = 8, 8  # bytes of the header's size, and of the sum of all that follows


class KeptTokenizer(NamedTuple):
    """The content of a file: values that JSON can hold, and arrays, which are read-only."""

    values: dict[str, Any]
    arrays: dict[str, np.ndarray]


def directory() -> str:
    """Where files are kept."""
    return os.path.join(default_directory(), "tokenizers")


def key_of(content: bytes) -> str:
    """The name of the file for the content of a tokenizer.json."""
    return f"{hashlib.sha256(content).hexdigest()}-{_code()}"


@cache
def _code() -> str:
    digest = hashlib.sha256(f"{version('tokenizers')} {np.__version__}".encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), here.parent / "rows" / "text_bytes.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def find(key: str) -> KeptTokenizer | None:
    """The content of the file with this name; None if there is none that is whole."""
    path = os.path.join(directory(), key)
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        os.utime(path)
        return _unpack(memoryview(data))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(keys: tuple[str, ...], kept: KeptTokenizer) -> None:
    """Writes a file, under several names; without effect if the directory is not writable."""
    folder = directory()
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".") as file:
            for part in _pack(kept):
                file.write(part)
            file.flush()
            for key in keys:
                linked = f"{file.name}-{key}"
                os.link(file.name, linked)
                os.replace(linked, os.path.join(folder, key))
        _remove_oldest(folder, keys)


def _remove_oldest(folder: str, but: tuple[str, ...]) -> None:
    files = defaultdict(list)  # one file may have several names
    for entry in os.scandir(folder):
        files[entry.inode()].append(entry)
    status = {number: entries[0].stat() for number, entries in files.items()}
    size = sum(one.st_size for one in status.values())
    for number, entries in sorted(files.items(), key=lambda item: status[item[0]].st_mtime):
        if size > MOST_BYTES and not any(entry.name in but for entry in entries):
            for entry in entries:
                os.unlink(entry.path)
            size -= status[number].st_size


def _pack(kept: KeptTokenizer) -> list[bytes]:
    """The parts of a file."""
    described, parts, place = {}, [], 0
    for name, array in kept.arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        described[name] = [array.dtype.str, array.shape, place]
        parts += [data, bytes(-len(data) % _ALIGNED)]
        place += len(data) + len(parts[-1])
    header = json.dumps({"values": kept.values, "arrays": described}).encode()
    header += b" " * (-(len(header) + _HEADER + _SUM) % _ALIGNED)
    rest = [len(header).to_bytes(_HEADER, "little"), header, *parts]
    digest = xxhash.xxh3_64()
    for part in rest:
        digest.update(part)
    return [digest.digest(), *rest]


def _unpack(data: memoryview) -> KeptTokenizer | None:
    if xxhash.xxh3_64(data[_SUM:]).digest() != data[:_SUM]:
        return None
    begin = _SUM + _HEADER + int.from_bytes(data[_SUM : _SUM + _HEADER], "little")
    header: Mapping[str, Any] = json.loads(bytes(data[_SUM + _HEADER : begin]))
    arrays = {}
    for name, (dtype, shape, place) in header["arrays"].items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(data, dtype, count, begin + place).reshape(shape)
    return KeptTokenizer(header["values"], arrays)
