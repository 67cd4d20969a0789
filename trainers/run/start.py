"""From a command line to a run: flags, schema, plan, program, loop, summary."""

import os
import re
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from textmill.schemas.commands.entry import want_addresses
from textmill.schemas.commands.flag_file import CONFIG, config_bytes
from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.tokenizers.tokenizer_json import (
    read_tokenizer_json,
    token_ids,
    tokenizer_settings,
)
from textmill.schemas.typed_json import to_json
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.shards_value import absolute_shards
from textmill.trainers.flags.command_line import command_to_resume, flag_values, parse_flags
from textmill.trainers.flags.framework_flags import FlaxRunFlags, ProcessFlags
from textmill.trainers.flags.run_flags import RunFlags, refuse_existing
from textmill.trainers.metrics.plots import draw_curve
from textmill.trainers.models.chat_format import exported_template
from textmill.trainers.models.families import Weights
from textmill.trainers.models.generation_files import (
    GENERATION,
    INPUTS,
    for_prompts,
    generation_settings,
    run_ends,
    text_ends,
    text_start,
    tokenizer_notes,
)
from textmill.trainers.models.hf_files import write_directory
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.models.set_tokenizer import (
    TOKENIZER,
    check_same_tokens,
    keep_set_files,
    read_tokenizer,
    set_file,
)
from textmill.trainers.models.weights import to_published
from textmill.trainers.run.agreement import check_agreement, identity
from textmill.trainers.run.checkpoints import Checkpoints, read_weights
from textmill.trainers.run.journal import METRICS, ProgressLine, cut_metrics, duration, each_metrics
from textmill.trainers.run.loop import Loop
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.program import (
    Interruption,
    Metrics,
    Program,
    Trainer,
    TrainingPlan,
    TrainingTask,
)
from textmill.trainers.run.run_directory import PROFILE, claim, start_or_resume
from textmill.trainers.run.schedule import Schedule

_NO_MEMORY = re.compile("RESOURCE_EXHAUSTED|out of memory|OOM when", re.IGNORECASE)


def main_of(trainer: Trainer) -> Callable[[List[str]], None]:
    """The main function of a trainer's entry."""

    def main(argv: List[str]) -> None:
        train(parse_flags(argv, trainer.flags), trainer)

    return main


def train(flags: RunFlags, trainer: Trainer) -> Path:
    """Trains or resumes to the end of the plan, then exports; returns the run's directory.

    Raises:
      UsageError: flags, dataset, directory and devices do not fit together.
      DataError: the loss is not finite, or a file cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    if not flags.data.shards:
        raise UsageError(f"give the dataset with {flag('shards', 'DIR')}")
    want_addresses(trainer.gigabytes, trainer.framework)
    with trainer.join(flags) as processes:
        _train(flags, trainer, processes)
    return flags.output


def _train(flags: RunFlags, trainer: Trainer, processes: Processes) -> None:
    shards, line = flags.data.open(flags.compute.seed), ProgressLine()
    if not processes.is_first:
        line = ProgressLine(open(os.devnull, "w"))
    schema, init_from = shards.schema, flags.files.init_from
    flags.task.check_rows(schema, flags.data.shards)
    model = plan_model(flags, schema)
    if init_from is not None:
        directory = find_on_hub(init_from, field="init_from").path
        for note in check_same_tokens(set_file(shards, TOKENIZER), directory):
            line.say(f"note: {note}")
    flags.check_splits(shards)
    steps = flags.plan_steps(shards)
    task = trainer.make_task(flags, schema, shards)
    task_notes = [*task.prepare_training(shards), *Schedule(steps, flags.optimization).notes()]
    plan = TrainingPlan(flags, schema, model.config, steps, flags.output)
    check_agreement(processes, identity(plan, shards, trainer.packages))
    program = trainer.make_program(plan, task)

    def first_weights() -> Weights:
        weights, notes = model.first_weights(flags.compute.seed)
        for note in [*notes, *task_notes]:
            line.say(f"note: {note}")
        return weights

    with claim(plan.output) if processes.is_first else nullcontext():
        processes.share(lambda: _prepare(plan, shards, line))
        checkpoints = Checkpoints(plan.output, flags.length.keep_checkpoints)
        loop = Loop(plan, task, program, shards, checkpoints, line, processes)
        more = f" {flag('remat', True)}," if isinstance(flags, FlaxRunFlags) else ""
        microbatches = 2 * (flags.compute.accumulation or 1)
        remedy = (
            f"give more microbatches, such as {flag('accumulation', microbatches)},{more} or a "
            "smaller model"
        )
        try:
            with memory_errors(program.description, flags, remedy):
                loop.run(first_weights)
        except KeyboardInterrupt:
            line.say(f"interrupted; resume with:\n  {command_to_resume(flags)}")
            sys.exit(130)
        if processes.is_first:
            with Interruption() as interruption:  # the rest takes seconds
                _export_run(plan, task, program, checkpoints, line)
                _summarize(loop)
            interruption.deliver()
        processes.leave()


@contextmanager
def memory_errors(where: str, flags: RunFlags, remedy: str) -> Iterator[None]:
    """Names the batch size and a remedy if a device's memory is too small."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except Exception as error:  # each framework has its own for this
        if not _NO_MEMORY.search(str(error)):
            raise
        batch = flag("batch_size", flags.compute.batch_size)
        raise DataError(f"{where}: the memory is too small for {batch}: {remedy}") from error


def _prepare(plan: TrainingPlan, shards: BatchReader, line: ProgressLine) -> None:
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
    settings = {
        "trainer": flags.entry,
        "config": values,
        "model": asdict(plan.model),
        "fingerprint": shards.fingerprint,
    }
    same = flags.same_settings
    notes = start_or_resume(plan.output, settings, resume=flags.files.resume, same=same)
    (plan.output / CONFIG).write_bytes(config_bytes(f"trainers.{flags.entry}", flags))
    keep_set_files(shards, plan.output)
    if plan.model.is_decoder:
        _keep_ends(plan, set_file(shards, TOKENIZER))
    for note in notes:
        line.say(f"note: {note}")
    checkpoints = Checkpoints(plan.output)
    checkpoints.prepare(line.say)
    if damage := cut_metrics(str(plan.output / METRICS), checkpoints.latest):
        line.say(f"note: {damage}")


def _keep_ends(plan: TrainingPlan, tokenizer_json: bytes) -> None:
    """Writes generation_config.json, since --init_from may be gone when the run is used."""
    init_from, first_weights = plan.flags.files.init_from, None
    if init_from is not None:
        first_weights = Path(find_on_hub(init_from, field="init_from").path)
    size = plan.model.vocab_size
    ends = text_ends(plan.schema, tokenizer_json, vocab_size=size, first_weights=first_weights)
    (plan.output / GENERATION).write_bytes(to_json(generation_settings(plan.schema, ends)))


def _export_run(
    plan: TrainingPlan,
    task: TrainingTask,
    program: Program,
    checkpoints: Checkpoints,
    line: ProgressLine,
) -> None:
    """Exports the best weights at the end of a run, if flags request it."""
    if plan.flags.files.export is None and not plan.flags.compute.exports_program:
        return
    [path] = checkpoints.choose(None)
    line.say(f"exporting the weights after step {path.name}")
    read = partial(read_weights, path, plan.model)
    if plan.flags.compute.exports_program:
        program.load(read(), None)
    tokenizer_json = read_tokenizer(plan.output)
    export_weights(plan, plan.flags.files.export, task, program, read, tokenizer_json, line)


def export_weights(
    plan: TrainingPlan,
    directory: Optional[str],
    task: TrainingTask,
    program: Optional[Program],
    read: Callable[[], Weights],
    tokenizer_json: bytes,
    line: ProgressLine,
) -> None:
    """Exports the weights that `read` returns for transformers, and by `Program.export`.

    For the latter, the program has loaded them.

    Raises:
      UsageError: a directory exists already.
      DataError: a directory cannot be written.
    """
    schema, model = plan.schema, plan.model
    if directory is not None:
        tokens = token_ids(read_tokenizer_json(tokenizer_json, "tokenizer.json"))
        ids, start = schema.special_ids, text_start(schema)
        settings: Dict[str, Any] = {"model_max_length": model.max_positions}
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
        )
        line.say(f"weights for transformers: {directory}")
        for note in [*task.export_notes(), *tokenizer_notes(model.family, tokenizer_json)]:
            line.say(f"note: {note}")
    if plan.flags.compute.exports_program and program is not None:
        line.say(program.export(schema, tokenizer_json))


def _summarize(loop: Loop) -> None:
    """Draws the loss curve; prints time, losses, and the paths of all outputs."""
    plan, flags, task, step = loop.plan, loop.flags, loop.task, loop.progress.step
    output, checkpoints = plan.output, loop.checkpoints
    curve, names = output / "loss.png", ("kind", "step", "loss")
    lines = [
        line if line["kind"] == "evaluation" else {name: line[name] for name in names}
        for line in each_metrics(str(output / METRICS))
    ]
    draw_curve(lines, str(curve), f"{output.name}, {flags.data.shards}", unit=task.unit)
    mean, took = loop.rates.mean(), duration(time.perf_counter() - loop.began)
    rates = f"{mean.steps:,.2f} steps/s, {mean.tokens:,.0f} tokens/s"
    rates = f": on average {rates}, waiting for data {mean.waiting:.1%}" if mean.steps else ""
    say(f"{step} steps done; this run took {took}{rates}")
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    by_step: Dict[Any, Metrics] = {
        line["step"]: {name: value for name, value in line.items() if name not in ("kind", "step")}
        for line in lines
        if line["kind"] == "evaluation"
    }
    if losses:
        say(f"  training    loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    for name, at in (("last", max(by_step, default=None)), ("best", loop.progress.best_step)):
        if at in by_step:
            say(f"  {name:<12}step {at}: {task.describe(by_step[at])}")
    say(f"  checkpoint  {checkpoints.directory / str(step)}")
    if checkpoints.best is not None:
        say(f"  best        {checkpoints.best_directory / str(checkpoints.best)}")
    say(f"  metrics     {output / METRICS}")
    say(f"  loss curve  {curve}")
    if (output / PROFILE).exists():
        say(f"  profile     {output / PROFILE}: open its perfetto_trace.json.gz at ui.perfetto.dev")
    if step < loop.program.steps and not loop.is_enough:
        # The exported directory exists now; a second export to it would be refused.
        names = ("stop_after", "export", "export_saved_model", "profile")
        without: Dict[str, Any] = dict.fromkeys(names)
        say(f"  resume      {command_to_resume(flags, **without)}")
