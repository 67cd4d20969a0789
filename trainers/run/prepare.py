"""The files of a run before its first step: settings, schema, tokenizer."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Callable

from textmill.schemas.commands.flag_file import CONFIG, config_bytes
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.typed_json import to_json
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.shards_value import absolute_shards
from textmill.trainers.flags.command_line import flag_values
from textmill.trainers.flags.framework_flags import FlaxRunFlags, ProcessFlags
from textmill.trainers.flags.run_flags import refuse_existing
from textmill.trainers.models.generation_files import GENERATION, generation_settings, text_ends
from textmill.trainers.models.set_tokenizer import TOKENIZER, keep_set_files, set_file
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.journal import METRICS, cut_metrics
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.resume import check_past_stages
from textmill.trainers.run.run_directory import start_or_resume


def prepare_directory(plan: TrainingPlan, shards: BatchReader, say: Callable[[str], None]) -> None:
    """Writes the settings of a new run, or compares and cleans the files of a resumed one.

    Raises:
      UsageError: the directory holds something else, or a run that cannot be resumed so.
      DataError: all its checkpoints are damaged, or its settings cannot be read.
    """
    flags = plan.flags
    if isinstance(flags, FlaxRunFlags):  # a run may be resumed by other processes
        flags = replace(flags, processes=ProcessFlags())
    values = flag_values(flags)
    for name in ("export", "export_saved_model"):
        if values.get(name) is not None:  # it may be --output, or hold it, which exists by now
            refuse_existing(values[name], field=name)
    weights = flags.files.init_from
    if weights is not None:
        found = find_on_hub(weights, field="init_from")
        weights = os.path.abspath(weights) if found.path == weights else found.recorded
    values.update(shards=absolute_shards(flags.data.shards), init_from=weights)
    values.update(order=shards.row_order)  # what auto is
    if shards.stages is not None:  # --steps may change, and with it what 90% is
        values.update(stages=str(shards.stages))
    settings = {
        "trainer": flags.entry,
        "config": values,
        "model": asdict(plan.model),
        "fingerprint": shards.fingerprint,
    }
    same = flags.same_settings
    if flags.files.resume:
        check_past_stages(plan, shards.stages)
    notes = start_or_resume(plan.output, settings, resume=flags.files.resume, same=same)
    (plan.output / CONFIG).write_bytes(config_bytes(f"trainers.{flags.entry}", flags))
    keep_set_files(shards, plan.output)
    if plan.model.is_decoder:
        _keep_ends(plan, set_file(shards, TOKENIZER))
    for note in notes:
        say(f"note: {note}")
    checkpoints = Checkpoints(plan.output)
    checkpoints.prepare(say)
    if damage := cut_metrics(str(plan.output / METRICS), checkpoints.latest):
        say(f"note: {damage}")


def _keep_ends(plan: TrainingPlan, tokenizer_json: bytes) -> None:
    """Writes generation_config.json, since --init_from may be gone when the run is used."""
    init_from, first_weights = plan.flags.files.init_from, None
    if init_from is not None:
        first_weights = Path(find_on_hub(init_from, field="init_from").path)
    size = plan.model.vocab_size
    ends = text_ends(plan.schema, tokenizer_json, vocab_size=size, first_weights=first_weights)
    (plan.output / GENERATION).write_bytes(to_json(generation_settings(plan.schema, ends)))
