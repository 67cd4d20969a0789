"""Trained weights as a directory for transformers, and as files of the framework."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from textmill.schemas.tokenizers.tokenizer_json import (
    read_tokenizer_json,
    token_ids,
    tokenizer_settings,
)
from textmill.trainers.models.chat_format import exported_template
from textmill.trainers.models.generation_files import (
    INPUTS,
    for_prompts,
    generation_settings,
    run_ends,
    text_start,
    tokenizer_notes,
)
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.set_tokenizer import read_tokenizer
from textmill.trainers.models.weights import to_published
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import TrainingTask


def export_run(
    plan: TrainingPlan,
    task: TrainingTask,
    program: Program,
    checkpoints: Checkpoints,
    say: Callable[[str], None],
) -> None:
    """Exports the best weights at the end of a run, if flags request it."""
    directory, exports_program = plan.flags.files.export, plan.flags.compute.exports_program
    if directory is None and not exports_program:
        return
    [path] = checkpoints.choose(None)
    say(f"exporting the weights after step {path.name}")
    read, tokenizer_json = partial(read_weights, path, plan.model), read_tokenizer(plan.output)
    if directory is not None:
        export_weights(plan, directory, task, read, tokenizer_json, say)
    if exports_program:
        program.load(read(), None)
        say(program.export(plan.schema, tokenizer_json))


def export_weights(
    plan: TrainingPlan,
    directory: str,
    task: TrainingTask,
    read: Callable[[], Arrays],
    tokenizer_json: bytes,
    say: Callable[[str], None],
    *,
    field: str = "export",
) -> None:
    """Exports the weights that `read` returns for transformers; errors name the flag `field`.

    Raises:
      UsageError: the directory exists already.
      DataError: it cannot be written.
    """
    schema, model = plan.schema, plan.model
    tokens = token_ids(read_tokenizer_json(tokenizer_json, "tokenizer.json"))
    ids, start = schema.special_ids, text_start(schema)
    settings: dict[str, Any] = {"model_max_length": model.max_positions}
    config, generation = model.to_json(ids, start), None
    if "chat_template" in schema.parameters:
        settings["chat_template"] = exported_template(schema)
    if model.is_decoder:
        ends = run_ends(plan.output, schema, tokenizer_json)
        generation = generation_settings(schema, ends)
        config.update(generation)
        settings.update(INPUTS)
        tokenizer_json = for_prompts(tokenizer_json, start)
    write_directory(
        directory,
        config,
        to_published(read(), model),
        tokenizer_json,
        tokenizer_settings(tokens, ids, **settings),
        generation,
        field=field,
    )
    say(f"weights for transformers: {directory}")
    for note in [*task.export_notes(), *tokenizer_notes(model.family, tokenizer_json)]:
        say(f"note: {note}")
