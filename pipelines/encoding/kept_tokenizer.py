"""Keeps what was made of a tokenizer's files in the user's cache, for later processes.

Parsing o200k's tokenizer.json and making its word table takes 2 s of processor time, mapping both
from the cache 0.02 s. Compiling GPT-2's splitting pattern takes 0.1 s, mapping its tables 5 ms.
Processes share the memory of a file:

    $XDG_CACHE_HOME/textmill/tokenizers/KEY    ~/.cache by default

KEY is the SHA-256 of the tokenizer's files, or of a splitting pattern, and of all that decides what
is made of them: Textmill's code, and the versions of the libraries. A file has a checksum, values
in JSON, and arrays. Damaged files, and those that another user could have written, are ignored and
made again.
"""

import contextlib
import hashlib
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from textmill.schemas.files.cache import default_directory

LEAST_BYTES = 1 << 17  # smaller tokenizers load quickly and are not kept
MOST_BYTES = 1 << 30  # of all files together; those that were used least recently are removed
_ALIGNED = 64
_SUM, _SIZE = 8, 8  # bytes of the checksum, and of the size of the values
_HERE = Path(__file__).parent
_CODE = (_HERE, _HERE.parent.parent / "schemas" / "tokenizers", _HERE.parent / "rows")


def directory() -> str:
    """Where files are kept."""
    return os.path.join(default_directory(), "tokenizers")


def key_of(files: Mapping[str, bytes], named_roles: Mapping[str, str]) -> str:
    """The key of a tokenizer's files and of the roles that are named for it; "" if it is small."""
    if sum(map(len, files.values())) < LEAST_BYTES:
        return ""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return _key(sorted(digests.items()), sorted(named_roles.items()))


def key_of_pattern(pattern: str) -> str:
    """The key of a splitting pattern."""
    return _key("pattern", pattern)


def _key(*values: Any) -> str:
    return hashlib.sha256(repr((_code(), *values)).encode()).hexdigest()


@cache
def _code() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in ("gigatoken", "numpy", "tokenizers"):
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    for path in sorted(path for folder in _CODE for path in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find(key: str, tokenizer: Any) -> Any:
    """The value that was kept under a key, or None; objects in it refer to `tokenizer`."""
    with contextlib.suppress(Exception):  # there is no file, or whatever is wrong with it
        with open(os.path.join(directory(), key), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            with contextlib.suppress(OSError):  # the directory may be read-only
                os.utime(file.fileno())
        keys, value = _unpack(memoryview(data), tokenizer)
        return value if key in keys else None
    return None


def keep(keys: Sequence[str], value: Any, tokenizer: Any) -> None:
    """Keeps a value under some keys, except `tokenizer`; without effect if there is no room.

    A value has JSON's types, bytes, tuples, arrays, and objects and functions of this package.
    """
    content = _pack((keys, value), tokenizer)
    with contextlib.suppress(OSError):
        os.makedirs(directory(), mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory(), prefix=".") as file:
            file.writelines(content)
            file.flush()
            for key in keys:
                linked = f"{file.name}-{key}"
                os.link(file.name, linked)
                os.replace(linked, os.path.join(directory(), key))
        _remove_oldest(keys)


def _remove_oldest(but: Sequence[str]) -> None:
    """Removes the files that were used least recently. A file may have several names."""
    names = [(entry.stat(), entry) for entry in os.scandir(directory())]
    size = sum(status.st_size / status.st_nlink for status, _ in names)
    for status, entry in sorted(names, key=lambda pair: pair[0].st_mtime):
        if size > MOST_BYTES and entry.name not in but:
            os.unlink(entry.path)
            size -= status.st_size / status.st_nlink


def _pack(value: Any, tokenizer: Any) -> list[Any]:
    """The parts of a file."""
    arrays: list[np.ndarray] = []

    def encode(value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [*map(encode, value)]
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, tuple):
            return {"tuple": [*map(encode, value)]}
        if isinstance(value, dict):
            return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
        if value is tokenizer:
            return {"tokenizer": 0}
        if isinstance(value, np.ndarray):
            start = sum(array.nbytes + -array.nbytes % _ALIGNED for array in arrays)
            arrays.append(np.ascontiguousarray(value))
            return {"array": [value.dtype.str, value.shape, start]}
        if callable(value):
            return {"name": [value.__module__, value.__qualname__]}
        return {"object": [encode(type(value)), encode(value.__getstate__())]}

    values = json.dumps(encode(value)).encode()
    values += b" " * (-(_SUM + _SIZE + len(values)) % _ALIGNED)
    parts: list[Any] = [len(values).to_bytes(_SIZE, "little"), values]
    for array in arrays:
        parts += [array.reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNED)]
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return [digest.digest(), *parts]


def _unpack(data: memoryview, tokenizer: Any) -> Any:
    """The value of a file.

    Raises:
      ValueError: it is damaged.
    """
    if xxhash.xxh3_64(data[_SUM:]).digest() != data[:_SUM]:
        raise ValueError("the sum differs")
    begin = _SUM + _SIZE + int.from_bytes(data[_SUM : _SUM + _SIZE], "little")

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(decode, value)]
        if not isinstance(value, dict):
            return value
        [(kind, content)] = value.items()
        if kind == "bytes":
            return content.encode("latin-1")
        if kind == "tuple":
            return tuple(map(decode, content))
        if kind == "dict":
            return {decode(key): decode(item) for key, item in content}
        if kind == "tokenizer":
            return tokenizer
        if kind == "array":
            dtype, shape, start = content
            size = int(np.prod(shape, dtype=np.int64))
            return np.frombuffer(data, dtype, size, begin + start).reshape(shape)
        if kind == "name":
            module, name = content
            if not module.startswith(f"{__package__}."):
                raise ValueError(f"{module} is not of this package")
            return getattr(import_module(module), name)
        made = object.__new__(decode(content[0]))
        vars(made).update(decode(content[1]))
        return made

    return decode(json.loads(bytes(data[_SUM + _SIZE : begin])))
