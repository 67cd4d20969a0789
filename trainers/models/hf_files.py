"""Reads and writes directories of published weights in Hugging Face's format.

    config, tensors = read_directory("roberta-base")     # config.json, model.safetensors
    tensors["roberta.embeddings.word_embeddings.weight"]  # float32, read on access
    write_directory("out", config, tensors, tokenizer_json)

Only safetensors are read: opening a pickle can run any code.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import (
    Any,
    Iterator,
    Mapping,
    NamedTuple,
    NoReturn,
    Sequence,
)

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.typed_json import load_json, quote, to_json
from textmill.trainers.flags.run_flags import refuse_existing

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
# Buffers that old versions of transformers saved: causal masks, and the numbers 0, 1, 2, ...
_BUFFERS = re.compile(
    r"(^|\.)(attn\.(bias|masked_bias)|embeddings\.(position_ids|token_type_ids))$"
)
_FIRST_NAMES = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")  # BERT's for a norm's weight and bias


FLOATS = ("F32", "F16", "BF16", "F64")  # as safetensors names them


class _Place(NamedTuple):
    """A tensor in a file."""

    file: str
    name: str
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it


class Tensors(Mapping[str, np.ndarray]):
    """Tensors of a directory by name, read from disk on access.

    Floating tensors are converted to float32, as trainers keep weights; from bfloat16 and float16
    without loss. `shapes` and `dtypes` need no read.
    """

    def __init__(self, places: Mapping[str, _Place]):
        self._places = dict(sorted(places.items()))
        self.shapes = {name: place.shape for name, place in self._places.items()}
        self.dtypes = {name: place.dtype for name, place in self._places.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """One tensor, C-contiguous."""
        place = self._places[name]
        try:
            with safe_open(place.file, framework="np") as file:
                if place.dtype == "BF16":
                    # Registers the dtype with numpy; only bfloat16 needs it.
                    import ml_dtypes  # noqa: F401
                value = np.ascontiguousarray(file.get_tensor(place.name))
        except (SafetensorError, OSError) as error:
            raise DataError(f"{place.file}: {place.name} cannot be read: {error}") from error
        with np.errstate(over="ignore"):  # of float64; what becomes infinite is found later
            return value.astype(np.float32) if place.dtype in FLOATS else value

    def __iter__(self) -> Iterator[str]:
        """Names, sorted."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._places)


def read_directory(
    path: str, *, model_types: Sequence[str] = (), field: str = "init_from"
) -> tuple[dict[str, Any], Tensors]:
    """Opens a directory of config.json and model.safetensors, in one file or with an index.

    Returns config.json and the tensors without buffers. Accepts any of `model_types`, or all if it
    is empty; errors name the path, and the field.

    Raises:
      UsageError: there is no such directory, or it has no readable weights.
      DataError: a file is broken, or a shard is missing.
    """
    where = flag(field, path) if field else path
    if not os.path.isdir(path):
        raise UsageError(
            f"{where}: there is no such directory. Download published weights first: "
            "`hf download NAME --local-dir DIR`"
        )
    config = _read_object(os.path.join(path, CONFIG), where)
    model_type = config.get("model_type")
    if model_types and model_type not in model_types:
        raise UsageError(
            f"{where}: config.json has model_type {quote(model_type)}, and this trainer accepts "
            f"{', '.join(model_types)}: give weights of one of them"
        )
    places = {
        _FIRST_NAMES.sub(lambda name: "weight" if name[0] == "gamma" else "bias", place.name): place
        for place in _tensor_places(path, where)
        if not _BUFFERS.search(place.name)
    }
    return config, Tensors(places)


def _read_object(path: str, where: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        _refuse_without(os.path.basename(path), os.path.dirname(path), where)
    try:
        content = load_json(path)
    except DataError as error:
        raise DataError(f"{error}; copy the directory again") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not an object; copy it again")
    return content


def _tensor_places(path: str, where: str) -> Iterator[_Place]:
    whole, index = os.path.join(path, WEIGHTS), os.path.join(path, INDEX)
    if os.path.isfile(whole):
        yield from _places_in(whole)
        return
    if not os.path.isfile(index):
        _refuse_without(WEIGHTS, path, where)
    file_of = _read_object(index, where).get("weight_map")
    if not isinstance(file_of, dict) or not all(isinstance(f, str) for f in file_of.values()):
        raise DataError(f"{index} has no weight_map of names to files; copy the directory again")
    for part in sorted(set(file_of.values())):
        if part != os.path.basename(part):
            raise DataError(
                f"{index} names {quote(part)}, a file outside its directory; copy the directory "
                "again"
            )
        file = os.path.join(path, part)
        if not os.path.isfile(file):
            raise DataError(f"{file} is missing, and {INDEX} names it: copy the directory again")
        places = {place.name: place for place in _places_in(file)}
        for name in sorted(name for name, file_name in file_of.items() if file_name == part):
            if name not in places:
                raise DataError(f"{file} lacks {name}, which {INDEX} lists there: copy it again")
            yield places[name]


def _refuse_without(name: str, path: str, where: str) -> NoReturn:
    """Raises a UsageError with the remedy for a directory that lacks a file."""
    names = sorted(os.listdir(path))
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if name != WEIGHTS or not pickles:
        raise UsageError(
            f"{where}: the directory has no {name} (it has {', '.join(names[:9]) or 'no files'}); "
            f"give one that `save_pretrained` of transformers or {flag('export')} of a trainer "
            "wrote"
        )
    raise UsageError(
        f"{where}: the directory has {pickles[0]} and no {WEIGHTS}. Opening a pickle can run any "
        "code, so trainers read none. If you trust it, convert it once with transformers: "
        "`AutoModel.from_pretrained(DIR).save_pretrained(OTHER)`, with the class that config.json "
        "names under architectures"
    )


def _places_in(file: str) -> list[_Place]:
    try:
        with safe_open(file, framework="np") as reader:
            tensors = {name: reader.get_slice(name) for name in reader.keys()}
            return [
                _Place(file, name, tuple(tensor.get_shape()), tensor.get_dtype())
                for name, tensor in tensors.items()
            ]
    except (SafetensorError, OSError) as error:
        raise DataError(f"{file} is truncated or broken ({error}): copy it again") from error


def write_directory(
    path: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    tokenizer_json: bytes | None = None,
    tokenizer_config: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    *,
    field: str = "export",
) -> None:
    """Writes a directory for `from_pretrained` of transformers, atomically.

    `tensors` has no tied tensor; `tokenizer_config` is the result of `tokenizer_settings`,
    `generation` that of `generation_settings`. Errors name the flag `field`.

    Raises:
      UsageError: the path exists already.
      DataError: it cannot be written.
    """
    refuse_existing(path, field=field)
    path = os.path.abspath(path)
    files = {CONFIG: to_json(config), "tokenizer.json": tokenizer_json}
    files["tokenizer_config.json"] = tokenizer_config and to_json(tokenizer_config)
    files["generation_config.json"] = generation and to_json(generation)
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    try:
        parent, name = os.path.split(path)
        os.makedirs(parent, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.partial-", dir=parent) as partial:
            whole = Path(partial) / "whole"  # others cannot open a temporary directory
            whole.mkdir()
            # transformers refuses files without this metadata.
            save_file(contiguous, str(whole / WEIGHTS), metadata={"format": "pt"})
            for file, content in files.items():
                if content is not None:
                    (whole / file).write_bytes(content)
            shutil.copymode(str(whole / CONFIG), str(whole / WEIGHTS))  # else only the owner reads
            os.rename(str(whole), path)
    except (OSError, SafetensorError) as error:  # save_file raises the latter if the disk is full
        raise DataError(
            f"{flag(field, path)} cannot be written: {error}; free some space, or give another path"
        ) from error
