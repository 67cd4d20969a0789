"""From a command line to a run: flags, plan, program, loop, summary."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Callable

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.command_line import command_to_resume, parse_flags
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.run.agreement import check_agreement, identity
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.export import export_run
from textmill.trainers.run.interruption import Interruption
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.run.loop import Loop
from textmill.trainers.run.memory import less_memory, memory_errors
from textmill.trainers.run.plan import describe_run, plan_run
from textmill.trainers.run.prepare import prepare_directory
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.run_directory import claim
from textmill.trainers.run.summary import summarize
from textmill.trainers.run.trainer import Trainer


def main_of(trainer: Trainer) -> Callable[[list[str]], None]:
    """The main function of a trainer's entry."""

    def main(argv: list[str]) -> None:
        train(parse_flags(argv, trainer.flags), trainer)

    return main


def train(flags: RunFlags, trainer: Trainer) -> Path | None:
    """Trains or resumes to the end of the plan, then exports; returns the run's directory.

    With --dry_run it only prints, and returns None.

    Raises:
      UsageError: flags, dataset, directory and devices do not fit together.
      DataError: the loss is not finite, or a file cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    if not flags.data.shards:
        raise UsageError(f"give the dataset with {flag('shards', 'DIR')}")
    if flags.files.dry_run:
        return describe_run(flags, trainer.make_task)
    with trainer.join_run(flags) as processes:
        _train(flags, trainer, processes)
    return flags.output


def _train(flags: RunFlags, trainer: Trainer, processes: Processes) -> None:
    shards = flags.open()
    line = ProgressLine() if processes.is_first else ProgressLine.quiet()
    plan, model = plan_run(flags, shards, line.say)
    task = trainer.make_task(flags, plan.schema, shards)
    notes = [*task.prepare_training(shards), *plan.schedule.notes()]
    check_agreement(processes, identity(plan, shards, trainer.packages))
    program = trainer.make_program(plan, task)

    with closing(program), claim(plan.output) if processes.is_first else nullcontext():
        processes.share(lambda: prepare_directory(plan, shards, line.say))
        checkpoints = Checkpoints(plan.output, flags.length.keep_checkpoints)
        loop = Loop(plan, task, program, shards, checkpoints, line, processes)
        try:
            with memory_errors(program.description, flags, less_memory(flags)):
                loop.run(model, notes)
        except KeyboardInterrupt:
            line.say(f"interrupted; resume with:\n  {command_to_resume(flags)}")
            raise SystemExit(130) from None
        if loop.signal:
            line.say(
                f"interrupted: the checkpoint after step {loop.progress.step} is in "
                f"{checkpoints.directory}. Resume with:\n  {command_to_resume(flags)}"
            )
            processes.leave()
            raise SystemExit(128 + loop.signal)
        if processes.is_first:
            with Interruption() as interruption:  # the rest takes seconds
                export_run(plan, task, program, checkpoints, line.say)
                summarize(loop)
            interruption.deliver()
        processes.leave()
