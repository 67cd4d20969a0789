"""The weights of a run for others: a directory that transformers opens, and the framework's own.

Python 3.8 syntax.
"""

from functools import partial
from typing import Any, Callable, Dict, Optional

from schemas.sidecar import Schema
from trainers.models.encoder import EncoderConfig
from trainers.models.hf_config import decoder_to_json, encoder_to_json
from trainers.models.hf_files import tokenizer_settings, write_directory
from trainers.models.modules import Weights
from trainers.models.set_tokenizer import kept_tokenizer
from trainers.models.weights import to_published
from trainers.run.checkpoints import Checkpoints, read_weights
from trainers.run.journal import ProgressLine
from trainers.run.program import Plan, Program


def export_run(plan: Plan, program: Program, checkpoints: Checkpoints, line: ProgressLine) -> None:
    """Writes what --export and its like ask for at the end of a run, by --checkpoint's weights."""
    if not plan.flags.uses_run:
        return
    [path] = checkpoints.choose(plan.flags.checkpoint)
    line.say(f"exporting the weights after step {path.name}")
    read = partial(read_weights, path)
    if plan.flags.exports_program:
        program.load(read(), None)
    export_weights(plan, program, read, kept_tokenizer(plan.output), line)


def export_weights(
    plan: Plan,
    program: Optional[Program],
    read: Callable[[], Weights],
    tokenizer_json: bytes,
    line: ProgressLine,
) -> None:
    """Writes what the flags ask for of these weights.

    Args:
      plan: of the run.
      program: with the weights loaded, where it is to write files of its own.
      read: gives the weights.
      tokenizer_json: of the run.
      line: tells the user.

    Raises:
      UsageError: a directory is taken.
      DataError: one cannot be written.
    """
    flags, schema, model = plan.flags, plan.schema, plan.model
    if flags.export is not None:
        write_directory(
            flags.export,
            _config_json(model, schema),
            to_published(read(), model),
            tokenizer_json,
            tokenizer_settings(tokenizer_json, schema.special_ids, max_length=model.max_positions),
        )
        line.say(f"weights for transformers: {flags.export}")
    if flags.exports_program and program is not None:
        line.say(program.export(schema, tokenizer_json))


def _config_json(config: Any, schema: Schema) -> Dict[str, Any]:
    if isinstance(config, EncoderConfig):
        return encoder_to_json(config, schema.special_ids)
    return decoder_to_json(config, schema.special_ids, schema.parameters.get("prefix_ids", ()))
