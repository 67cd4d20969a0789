"""A decoder from what is on disk: a run's checkpoint, or a directory of Hugging Face's form."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from trainers.models.hf_files import read_directory
from trainers.models.set_tokenizer import SCHEMA, TOKENIZER
from trainers.on_flax.checkpoints import readable
from trainers.on_flax.decoder import init_params
from trainers.on_flax.decoder_config import DecoderConfig
from trainers.on_flax.decoder_files import FAMILIES, decoder_config, with_defaults
from trainers.on_flax.decoder_weights import from_hugging_face
from trainers.on_flax.layers import Params
from trainers.run.checkpoint_sums import check_whole
from trainers.run.run_directory import CHECKPOINTS, SETTINGS, errors_in_words, read_settings


@dataclass(frozen=True)
class Decoder:
    """A model that can be used.

    Attributes:
      config: its dimensions.
      params: f32 weights.
      name: where they come from, for people.
      directory: that has its tokenizer.
      tokenizer_json: what it was trained with; None where the directory has none.
      prefix_ids: what every document began with in training.
      eos_ids: that end a document.
    """

    config: DecoderConfig
    params: Params
    name: str
    directory: str
    tokenizer_json: bytes | None
    prefix_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]


def load_decoder(path: str) -> Decoder:
    """Reads a checkpoint.

    Args:
      path: a run's output directory (its newest checkpoint), OUTPUT/checkpoints/N, or a directory
        with config.json and model.safetensors.

    Raises:
      UsageError: it is none of these, or no decoder.
      DataError: a file is broken.
    """
    directory = Path(path)
    with errors_in_words(directory, "Mend that, then ask again"):
        if directory.parent.name == CHECKPOINTS and directory.name.isdecimal():
            return _from_run(directory.parent.parent, int(directory.name))
        if (directory / CHECKPOINTS).is_dir():
            return _from_run(directory, None)
        if not (directory / SETTINGS).is_file():
            raise UsageError(
                f"--checkpoint={path} is neither the output directory of a run nor one with "
                "config.json and model.safetensors: give one of these"
            )
        return _from_hugging_face(path)


def _from_run(output: Path, step: int | None) -> Decoder:
    config = _model_of(output)
    with ocp.CheckpointManager((output / CHECKPOINTS).resolve()) as manager:
        found = manager.all_steps()
        if not found or step not in (None, *found):
            held = ", ".join(map(str, sorted(found))) or "none yet"
            raise UsageError(
                f"--checkpoint={output}: no checkpoint "
                f"{'' if step is None else f'after step {step} '}there; it holds {held}"
            )
        step = max(found) if step is None else step
        checkpoint = output.resolve() / CHECKPOINTS / str(step)
        check_whole(checkpoint, f"Give another one: {_others(output, found, step)}")
        here = SingleDeviceSharding(jax.local_devices()[0])
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here),
            jax.eval_shape(partial(init_params, config), jax.random.key(0)),
        )
        # Weights only: what the optimizer remembers would be two times as much again.
        wanted = ocp.args.PyTreeRestore(
            {"params": abstract},
            restore_args=ocp.checkpoint_utils.construct_restore_args({"params": abstract}),
            partial_restore=True,
        )
        with readable(checkpoint):
            params = manager.restore(step, args=wanted)["params"]
    try:
        schema = Schema.from_dict(json.loads((output / SCHEMA).read_bytes()), str(output / SCHEMA))
        tokenizer_json = (output / TOKENIZER).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"{output}: the run's copy of its contract: {error}") from error
    return Decoder(
        config=config,
        params=params,
        name=f"{output}, step {step}",
        directory=str(output),
        tokenizer_json=tokenizer_json,
        prefix_ids=tuple(schema.parameters["prefix_ids"]),
        eos_ids=_ids(schema.special_ids.get("eos")),
    )


def _others(output: Path, steps: Iterable[int], step: int) -> str:
    others = [f"--checkpoint={output / CHECKPOINTS / str(n)}" for n in sorted(steps) if n != step]
    return " or ".join(others) or "this run has no other"


def _model_of(output: Path) -> DecoderConfig:
    settings = read_settings(output, "flax_clm")
    try:
        return DecoderConfig(**settings["model"])
    except TypeError:
        raise UsageError(
            f"--checkpoint={output} holds a run of another trainer: its model is "
            f"{settings['model'].get('family', 'no decoder')}; give one of trainers.flax_clm"
        ) from None


def _from_hugging_face(path: str) -> Decoder:
    found, tensors = read_directory(path, model_types=FAMILIES, flag="--checkpoint")
    place = f"--checkpoint={path}"
    config = decoder_config(found, dropout=0.0, place=place)
    shapes = jax.eval_shape(partial(init_params, config), jax.random.key(0))
    tokenizer = os.path.join(path, TOKENIZER)
    tokenizer_json = None
    if os.path.isfile(tokenizer):
        with open(tokenizer, "rb") as file:
            tokenizer_json = file.read()
    found = with_defaults(found)
    # OPT was published with a tokenizer that begins every text so; ours say what they began with.
    theirs = _ids(found["bos_token_id"]) if config.family == "opt" else ()
    return Decoder(
        config=config,
        params=from_hugging_face(tensors, config, shapes, place=place),
        name=path,
        directory=path,
        tokenizer_json=tokenizer_json,
        prefix_ids=tuple(found.get("prefix_ids", theirs)),
        eos_ids=_ids(found["eos_token_id"]),
    )


def _ids(value: Any) -> tuple[int, ...]:
    """None -> (); 2 -> (2,); [2, 50118] -> (2, 50118)."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)
