"""From a command line to a run: flags, contract, plan, program, loop, last word."""

import os
import sys
import time
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Type

from schemas.commands.flag_file import CONFIG, config_bytes
from schemas.commands.terminal import say
from trainers.data.batches import BatchReader
from trainers.data.flag_values import absolute_shards
from trainers.measures.pictures import draw_curve
from trainers.models.modules import Weights
from trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, keep_set_files, set_file
from trainers.run.checkpoints import Checkpoints
from trainers.run.flags import Flags, check_task, open_set, parse_flags
from trainers.run.interruption import Interruption
from trainers.run.journal import METRICS, ProgressLine, duration, each_metrics, mend_metrics
from trainers.run.loop import Loop
from trainers.run.model_flags import initial_weights, plan_model
from trainers.run.program import Measures, Plan, Task, Trainer
from trainers.run.run_directory import claimed, start_or_resume
from trainers.run.use import export_run, use


def run_trainer(argv: List[str], kind: Type[Flags], trainer: Trainer) -> None:
    """Parses a command line of an entry; trains, or does what else it asks for."""
    run(parse_flags(argv, kind), trainer)


def run(flags: Any, trainer: Trainer) -> None:
    """Trains, or does what else the flags ask for with what was trained."""
    train(flags, trainer) if flags.trains else use(flags, trainer)


def train(flags: Any, trainer: Trainer) -> None:
    """Trains, or goes on training, to the end of the plan; then exports what is asked for.

    Raises:
      UsageError: flags, set, directory and devices do not go together.
      DataError: the loss is no longer a number, or something cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    shards, line = open_set(flags, flags.shards), ProgressLine()
    schema = shards.schema
    check_task(flags.task, schema, flags.shards)
    planned = plan_model(flags, schema)
    if flags.init_from is not None:
        for note in check_same_tokens(
            set_file(shards, TOKENIZER), flags.init_from, flag="--init_from"
        ):
            line.say(f"note: {note}")
    steps = flags.planned_steps(shards.rows(flags.train_split))
    flags.check_exported_step(steps)
    task = trainer.make_task(flags, schema, shards)
    plan = Plan(flags, schema, planned.config, steps, flags.output_directory(flags.model))
    program = trainer.make_program(plan, task)

    def first_weights() -> Weights:
        weights, notes = initial_weights(planned, seed=flags.seed, init_from=flags.init_from)
        for note in [*notes, *task.notes()]:
            line.say(f"note: {note}")
        return weights

    with claimed(plan.output):
        checkpoints = _prepare(plan, shards, line)
        loop = Loop(plan, task, program, shards, checkpoints, line)
        try:
            loop.run(first_weights)
        except KeyboardInterrupt:
            line.say(f"interrupted; go on with:\n  {flags.command(resume=True)}")
            sys.exit(130)
        with Interruption() as interruption:  # what is left takes seconds
            export_run(plan, program, checkpoints, line)
            _say_last_word(loop)
        interruption.deliver()


def _prepare(plan: Plan, shards: BatchReader, line: ProgressLine) -> Checkpoints:
    """Makes the run's directory ready: settings, the set's files, sound metrics, checkpoints."""
    flags = plan.flags
    weights = flags.init_from and os.path.abspath(flags.init_from)
    settings = {
        "trainer": flags.entry,
        "config": {**asdict(flags), "shards": absolute_shards(flags.shards), "init_from": weights},
        "model": asdict(plan.model),
        "fingerprint": shards.fingerprint,
    }
    same = flags.same_settings
    notes = start_or_resume(plan.output, settings, resume=flags.resume, same=same)
    (plan.output / CONFIG).write_bytes(config_bytes(f"trainers.{flags.entry}", flags))
    keep_set_files(shards, plan.output)
    for note in notes + mend_metrics(str(plan.output / METRICS)):
        line.say(f"note: {note}")
    checkpoints = Checkpoints(plan.output, flags.keep_checkpoints)
    checkpoints.prepare(line.say)
    return checkpoints


def _say_last_word(loop: Loop) -> None:
    """Draws the curve and says what was made and where it lies."""
    plan, flags, task, step = loop.plan, loop.flags, loop.task, loop.progress.step
    output, checkpoints = plan.output, loop.checkpoints
    curve, shown = output / "loss.png", ("kind", "step", "loss")
    lines = [
        line if line["kind"] == "evaluation" else {name: line[name] for name in shown}
        for line in each_metrics(str(output / METRICS))
    ]
    draw_curve(lines, str(curve), f"{output.name}, {flags.shards}", unit=task.unit)
    seconds = time.perf_counter() - loop.began
    waiting = f"{loop.waited / max(seconds, 1e-9):.1%} of it waiting for data"
    say(f"{step} steps done; this run took {duration(seconds)}, {waiting}.")
    for text in summarize(lines, task, loop.progress.best_step):
        say(text)
    say(f"  checkpoint  {checkpoints.directory / str(step)}")
    if checkpoints.best is not None:
        say(f"  best        {checkpoints.best_directory / str(checkpoints.best)}")
    say(f"  metrics     {output / METRICS}")
    say(f"  loss curve  {curve}")
    if step < loop.program.steps and not loop.is_enough:
        # What was exported is there, and would be refused.
        exported = {name: None for name in asdict(flags) if name.startswith("export")}
        say(f"  to go on    {flags.command(resume=True, stop_after=None, **exported)}")


def summarize(lines: List[Dict[str, Any]], task: Task, best_step: Optional[int]) -> List[str]:
    """What metrics.jsonl says of a run: the losses, the last evaluation and the best."""
    trained = [line["loss"] for line in lines if line["kind"] == "train"]
    by_step: Dict[int, Measures] = {
        line["step"]: {name: value for name, value in line.items() if name not in ("kind", "step")}
        for line in lines
        if line["kind"] == "evaluation"
    }
    said = []
    if trained:
        said.append(f"  training    loss {trained[0]:.4f} at first, {trained[-1]:.4f} at last")
    for name, step in (("last", max(by_step, default=None)), ("best", best_step)):
        if step in by_step:
            said.append(f"  {name:<12}step {step}: {task.describe(by_step[step])}")
    return said
