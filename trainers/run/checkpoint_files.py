"""The files of one checkpoint, the same for all frameworks; it is written atomically.

    500/state.safetensors   weights/NAME and state/NAME after step 500
    500/progress.json       steps, the best evaluation so far
    500/SHA256SUMS          checksums of both; a damaged checkpoint is not used

They are written to a directory that ends in .partial, which is then renamed: a run killed meanwhile
resumes from the checkpoint before. safetensors cannot run code, unlike pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, Iterable, Iterator, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.typed_json import parse_json, read_bounded
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import shapes
from textmill.trainers.run.progress import Progress
from textmill.trainers.run.tensors import Arrays, Tensors, first_difference

STATE, PROGRESS, SUMS = "state.safetensors", "progress.json", "SHA256SUMS"
PARTIAL = ".partial"
_WEIGHTS, _STATE = "weights/", "state/"  # prefixes of tensors' names
_MOST_TEXT = 1 << 16  # bytes of progress.json, which has about 100
_SUM = rb"([0-9a-f]{64})  "
_SUMS = re.compile(_SUM + rb"progress\.json\n" + _SUM + rb"state\.safetensors\n")


class Stored(NamedTuple):
    """The content of a checkpoint."""

    progress: Progress
    weights: Arrays  # named as in `trainers.models.weights`
    state: Arrays | None  # of the optimizer; None if only weights were kept


def in_file_order(weights: Tensors, state: Tensors) -> Tensors:
    """The tensors of a checkpoint by their names in its file, in the order of the file."""
    tensors = {_WEIGHTS + name: tensor for name, tensor in weights.items()}
    tensors.update({_STATE + name: tensor for name, tensor in state.items()})
    # The widest dtype first, so that each array starts at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    return {name: tensors[name] for name in names}


def write_checkpoint(
    path: Path, progress: bytes, header: bytes, arrays: Iterator[np.ndarray]
) -> None:
    """Writes a checkpoint: the text of progress.json, the header of the tensors, their arrays.

    Raises:
      OSError: it cannot be written; nothing of it is left.
    """
    partly = path.with_name(path.name + PARTIAL)
    try:
        shutil.rmtree(str(partly), ignore_errors=True)
        partly.mkdir(parents=True)
        parts = {PROGRESS: [progress], STATE: _parts_of(header, arrays)}
        sums = [f"{_write(partly / name, parts[name])}  {name}\n" for name in parts]
        _write(partly / SUMS, ["".join(sums).encode()])
        os.rename(str(partly), str(path))
    finally:
        shutil.rmtree(str(partly), ignore_errors=True)


def header_of(tensors: Tensors) -> bytes:
    """The header of a safetensors file, behind its length."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.dtype.itemsize * math.prod(tensor.shape)
        kind = tensor.dtype.kind.upper()  # F, I, U or B
        dtype = "BOOL" if kind == "B" else f"{kind}{8 * tensor.dtype.itemsize}"
        header[name] = dict(dtype=dtype, shape=list(tensor.shape), data_offsets=[begin, end])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _parts_of(header: bytes, arrays: Iterator[np.ndarray]) -> Iterator[Any]:
    """The parts of a safetensors file: its header, and arrays in row-major order."""
    yield header
    for value in arrays:
        rows = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        yield rows.reshape(-1).view(np.uint8).data


def _write(path: Path, parts: Iterable[Any]) -> str:
    """Writes a file in one pass and syncs it; returns its sha256."""
    digest = hashlib.sha256()
    with open(str(path), "wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read_checkpoint(path: Path, model: ModelConfig | None = None) -> Stored:
    """The content of a checkpoint; its arrays are read from the file where they are used.

    Raises:
      DataError: it cannot be read, or its weights do not fit `model`.
    """
    arrays: dict[str, Arrays] = {_WEIGHTS: {}, _STATE: {}}
    try:
        values = parse_json(read_bounded(str(path / PROGRESS), _MOST_TEXT), PROGRESS)
        progress = Progress(**values)  # refuses other names and impossible values
        if str(progress.step) != path.name:
            raise ValueError(f"{PROGRESS}: step is {progress.step} instead of {path.name}")
        with safe_open(str(path / STATE), framework="np"):  # checks the structure
            tensors = _map_tensors(path / STATE)
        for name, value in tensors.items():
            kind = _WEIGHTS if name.startswith(_WEIGHTS) else _STATE
            arrays[kind][name[len(kind) :]] = value
        if model is not None:
            due = {n: np.broadcast_to(np.float32(), s) for n, s in shapes(model).items()}
            if difference := first_difference(arrays[_WEIGHTS], due):
                raise ValueError(f"{STATE}: {_WEIGHTS}{difference}")
    except (OSError, ValueError, TypeError, RecursionError, SafetensorError, DataError) as error:
        raise DataError(
            f"the checkpoint {path} cannot be read: {error!s:.300}. Move it away to use the one "
            "before"
        ) from error
    return Stored(progress, arrays[_WEIGHTS], arrays[_STATE] or None)


def _map_tensors(path: Path) -> Arrays:
    """Read-only arrays in the memory map of a safetensors file that `safe_open` accepted."""
    with open(str(path), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    content = np.memmap(str(path), np.uint8, "r", offset=8 + size)
    arrays = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = np.asarray(content[begin:end]).view(_dtype_of(tensor["dtype"]))
        arrays[name] = values.reshape(tensor["shape"])
    return arrays


def _dtype_of(name: str) -> np.dtype:
    """The dtype of a name in safetensors: F32 is "<f4"; raises a ValueError for BF16 and others."""
    match = re.fullmatch(r"([FIU])(8|16|32|64)", name)
    if name != "BOOL" and match is None:
        raise ValueError(f"{STATE} has the unknown dtype {name:.20}")
    return np.dtype("?" if match is None else f"<{match[1].lower()}{int(match[2]) // 8}")


def read_weights(path: Path, model: ModelConfig | None = None) -> Arrays:
    """The weights of a checkpoint; raises like `read_checkpoint`."""
    return read_checkpoint(path, model).weights


def damage_of(checkpoint: Path) -> str | None:
    """The first damage of a checkpoint: "FILE is missing"; None if it is intact.

    Raises:
      OSError: a file exists and cannot be read.
    """
    progress, state, sums = (checkpoint / name for name in (PROGRESS, STATE, SUMS))
    for path in (progress, state, sums):
        if not path.is_file():
            return f"{path} is missing"
    with open(str(sums), "rb") as file:
        match = _SUMS.fullmatch(file.read(1000))
    if match is None:
        return f"{sums} is broken"
    for path, digest in zip((progress, state), match.groups()):
        if store.sha256(str(path)) != digest.decode():
            return f"{path} has changed: its sha256 is not the one in {SUMS}"
    return None
