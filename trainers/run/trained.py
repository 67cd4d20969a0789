"""Finds a trained model: that of a run, or published weights, whose dataset is unknown."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.finished import RunInfo, is_run, open_finished
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.run_settings import CONFIG_JSON
from textmill.trainers.models.chat_format import ChatFormat, format_of_directory, format_of_schema
from textmill.trainers.models.families import Weights
from textmill.trainers.models.generation_files import published_ids, run_ends, text_start
from textmill.trainers.models.hf_files import read_directory
from textmill.trainers.models.model_config import ModelConfig, published_classes
from textmill.trainers.models.set_tokenizer import published_tokenizer, read_tokenizer
from textmill.trainers.models.weights import from_published, keep_own_layer
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import BEST, Checkpoints
from textmill.trainers.run.run_directory import CHECKPOINTS, read_settings


@dataclass(frozen=True)
class Trained:
    """A model with its weights and tokenizer."""

    trainer: str  # flax_mlm
    settings: Mapping[str, Any]  # the flags that a run began with; empty for published weights
    config: ModelConfig
    directory: Path  # a run's, or one of published weights
    # Names and functions that read them; several with --checkpoint=all.
    weights: tuple[tuple[str, Callable[[], Weights]], ...]
    schema: Schema | None  # of the rows it was trained on
    tokenizer_json: bytes | None
    # The start of every document in training; None if that is what the tokenizer begins texts with.
    prefix_ids: tuple[int, ...] | None
    eos_ids: tuple[int, ...]  # each ends a text
    chat: ChatFormat | None = None
    notes: tuple[str, ...] = ()  # on published weights
    fingerprint: str | None = None  # of the dataset of a run


def find_trained(path: str, which: str | None = None) -> Trained:
    """The model in a directory of a run, a checkpoint or published weights.

    `which` names the checkpoint of a run, see `Checkpoints.choose`.

    Raises:
      UsageError: there is no such run, checkpoint or published model.
      DataError: a file is broken.
    """
    directory, place = Path(path), Path(os.path.abspath(path))
    not_a_run = UsageError(
        f"{flag('checkpoint', which)} chooses from a run, and {path} is none: use one"
    )
    if place.parent.name in (CHECKPOINTS, BEST) and place.name.isdecimal():
        if which is not None:
            raise not_a_run
        run = place.parent.parent
        return _find_run(run if directory.is_absolute() else Path(os.path.relpath(run)), place.name)
    if is_run(path) or (directory / CHECKPOINTS).is_dir():
        return _find_run(directory, which)
    if not (directory / CONFIG_JSON).is_file():
        raise UsageError(
            f"{path} is neither the output directory of a run nor a directory with config.json and "
            "model.safetensors: give one of them"
        )
    if which is not None:
        raise not_a_run
    return _find_published(directory)


def _find_run(output: Path, which: str | None) -> Trained:
    settings = read_settings(output)  # its errors name a remedy
    schema = open_finished(RunInfo, output).schema
    config = ModelConfig.from_settings(settings["model"])
    tokenizer_json = read_tokenizer(output)
    is_chat = "chat_template" in schema.parameters
    paths = Checkpoints(output).choose(which)
    return Trained(
        trainer=settings["trainer"],
        settings=settings["config"],
        config=config,
        directory=output,
        weights=tuple((path.name, partial(read_weights, path, config)) for path in paths),
        schema=schema,
        tokenizer_json=tokenizer_json,
        prefix_ids=text_start(schema),
        fingerprint=settings["fingerprint"],
        eos_ids=run_ends(output, schema, tokenizer_json) if config.is_decoder else (),
        chat=format_of_schema(schema, tokenizer_json) if is_chat else None,
    )


def _find_published(directory: Path) -> Trained:
    where = str(directory)
    content, tensors = read_directory(where, field="")
    classes = published_classes(content, where=where)
    config = ModelConfig.from_json(content, classes=classes, where=where)
    config, notes = keep_own_layer(tensors, config, where=where)
    prefix_ids, eos_ids = published_ids(content, directory)
    trainer = "flax_clm" if config.is_decoder else "tf_classifier" if config.classes else "flax_mlm"
    return Trained(
        trainer=trainer,
        settings={},
        config=config,
        directory=directory,
        weights=(("published", lambda: from_published(tensors, config, seed=0, where=where)[0]),),
        schema=None,
        tokenizer_json=published_tokenizer(directory),
        prefix_ids=prefix_ids,
        eos_ids=eos_ids,
        chat=format_of_directory(directory) if config.is_decoder else None,
        notes=tuple(notes),
    )
