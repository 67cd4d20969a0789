"""A reader as a SavedModel, prompt ids in and answer ids out, and a question asked of one.

DIR/saved_model.pb, DIR/variables                        the graph, decoding in it, and weights
DIR/assets.extra/schema.json, .../tokenizer.json         how a question becomes a prompt
"""

import sys
from pathlib import Path
from typing import Any

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from schemas.terminal import say
from schemas.typed_json import to_json
from trainers.measures.questions import PromptMaker
from trainers.models.set_tokenizer import (
    SCHEMA,
    TOKENIZER,
    kept_schema,
    kept_tokenizer,
    open_tokenizer,
)
from trainers.on_tf.backend import tf
from trainers.on_tf.decoding import answer_prompts
from trainers.on_tf.gpt2 import Gpt2
from trainers.on_tf.qa_config import QaConfig
from trainers.on_tf.saved_model import EXTRA, SIGNATURE, write_module


class Served(tf.Module):
    """A reader as a signature; see `write_saved_model`."""

    def __init__(self, model: Gpt2, schema: Schema):
        """Takes the model, and the contract of the rows it was trained on."""
        super().__init__(name="reader")
        self.model = model
        self.weights = [variable.value for variable in model.variables]
        self._schema = schema
        self.serve = tf.function(self._serve).get_concrete_function(
            input_ids=tf.TensorSpec((None, None), tf.int32, "input_ids"),
            prompt_lengths=tf.TensorSpec((None,), tf.int32, "prompt_lengths"),
        )

    def _serve(self, input_ids: Any, prompt_lengths: Any) -> dict[str, Any]:
        parameters = self._schema.parameters
        answers = answer_prompts(
            self.model,
            input_ids,
            prompt_lengths,
            new_tokens=parameters["max_answer_length"],
            eos=self._schema.special_ids["eos"],
            prefix=parameters["qa_form"] == "prefix",
        )
        return {"answer_ids": answers.ids_BxT, "answer_lengths": answers.lengths_B}


def write_saved_model(path: str, model: Gpt2, schema: Schema, tokenizer_json: bytes) -> None:
    """Writes a SavedModel, whole or not at all.

    Its `serving_default` takes int32 `input_ids` [rows, tokens], prompts filled up at the right,
    and `prompt_lengths` [rows]; it gives int32 `answer_ids` [rows, longest answer], filled up with
    eos, and `answer_lengths` [rows], the tokens before eos. It needs TensorFlow and nothing of
    ours. A prompt may have max_length - max_answer_length tokens, of the contract that lies in it.

    Raises:
      UsageError: the path is taken.
      DataError: it cannot be written.
    """
    served = Served(model, schema)
    kept = {SCHEMA: to_json(schema), TOKENIZER: tokenizer_json}
    write_module(path, served, served.serve, kept)


def ask(config: QaConfig) -> None:
    """Prints the answer of a SavedModel to --ask about --context.

    Raises:
      UsageError: --saved_model is not what `write_saved_model` writes.
      DataError: it cannot be read.
    """
    assert config.saved_model and config.ask is not None and config.context is not None
    extra = Path(config.saved_model, EXTRA)
    if not (extra / SCHEMA).is_file():
        raise UsageError(
            f"--saved_model={config.saved_model} has no {EXTRA}/{SCHEMA}: give a directory that "
            "--export_saved_model of this trainer wrote"
        )
    schema = kept_schema(extra)
    try:
        prompts = PromptMaker(schema, open_tokenizer(kept_tokenizer(extra)))
        served = tf.saved_model.load(config.saved_model).signatures[SIGNATURE]
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise DataError(
            f"--saved_model={config.saved_model} cannot be read: {error}; export it again"
        ) from error
    prompt = prompts.prompt(config.ask, config.context)
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
