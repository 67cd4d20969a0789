"""Models as TensorFlow SavedModels, which need TensorFlow and nothing of ours; one is asked here.

DIR/saved_model.pb, DIR/variables                        the graph, and weights
DIR/assets.extra/schema.json, .../tokenizer.json         how texts become rows
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.commands.terminal import say
from schemas.errors import DataError, UsageError
from trainers.measures.questions import PromptMaker
from trainers.models.hf_files import refuse_existing
from trainers.models.set_tokenizer import (
    SCHEMA,
    kept_schema,
    kept_tokenizer,
    open_tokenizer,
)
from trainers.on_tf.backend import keras, tf

NAME = "serving_default"
EXTRA = "assets.extra"  # TensorFlow's place for files that are none of its own


class _Served(tf.Module):
    """What a SavedModel tracks."""

    def __init__(self, model: keras.Model):
        super().__init__(name="served")
        self.weights = [variable.value for variable in model.variables]


def write_saved_model(
    path: str, model: keras.Model, serve: Any, extra: Mapping[str, bytes]
) -> None:
    """Writes a model with one signature, whole or not at all.

    Args:
      path: not there yet, or empty.
      model: whose weights are saved.
      serve: a concrete function that calls it.
      extra: files to lie beside, by name.

    Raises:
      UsageError: the path is taken.
      DataError: it cannot be written.
    """
    refuse_existing(path, flag="--export_saved_model")
    partial = os.path.abspath(path) + ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        tf.saved_model.save(_Served(model), partial, signatures={NAME: serve})
        for name, content in extra.items():
            file = Path(partial, EXTRA, name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        os.rename(partial, path)
    except (OSError, tf.errors.OpError) as error:
        raise DataError(f"--export_saved_model={path} cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def ask(saved_model: str, question: str, context: str) -> None:
    """Prints the answer of a reader's SavedModel to a question about a text.

    Args:
      saved_model: what --export_saved_model wrote; nothing else is read.
      question: for people.
      context: in which the answer stands.

    Raises:
      UsageError: it is no reader's SavedModel.
      DataError: it cannot be read.
    """
    extra = Path(saved_model, EXTRA)
    if not (extra / SCHEMA).is_file():
        raise UsageError(
            f"--saved_model={saved_model} has no {EXTRA}/{SCHEMA}: give a directory that "
            "--export_saved_model of this trainer wrote"
        )
    schema = kept_schema(extra)
    if schema.task != "qa":
        raise UsageError(
            f"--saved_model={saved_model} is of task {schema.task!r}, and is not asked"
        )
    try:
        prompts = PromptMaker(schema, open_tokenizer(kept_tokenizer(extra)))
        served = tf.saved_model.load(saved_model).signatures[NAME]
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise DataError(
            f"--saved_model={saved_model} cannot be read: {error}; export it again"
        ) from error
    prompt = prompts.prompt(question, context)
    if prompt.cut:
        note = f"note: {prompt.cut:,} tokens of question and context have no room and are not read"
        say(note, sys.stderr)
    found = served(
        input_ids=tf.constant([prompt.ids], tf.int32),
        prompt_lengths=tf.constant([len(prompt.ids)], tf.int32),
    )
    answer = prompts.text(found["answer_ids"][0, : int(found["answer_lengths"][0])].numpy())
    say(answer)
    if not answer:
        say("(the model finds no answer in the text)", sys.stderr)
