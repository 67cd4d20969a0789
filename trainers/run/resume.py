"""Where a run begins: at the newest checkpoint, or at its first step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Callable

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.run_settings import CONFIG_JSON
from textmill.trainers.data.stages import Stages
from textmill.trainers.run.agreement import check_agreement, digest_of
from textmill.trainers.run.checkpoint_files import Stored
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.journal import METRICS, each_metrics
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.program import Program
from textmill.trainers.run.progress import Progress
from textmill.trainers.run.run_directory import read_settings
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import TrainingTask


def find_start(
    plan: TrainingPlan,
    task: TrainingTask,
    program: Program,
    checkpoints: Checkpoints,
    processes: Processes,
    say: Callable[[str], None],
    *,
    first_weights: Callable[[], Arrays],
) -> Stored:
    """The newest checkpoint with the evaluations since then, or the first weights of a new run.

    All processes of the run call this, and compare their weights.

    Raises:
      DataError: the checkpoint cannot be read, or it is between the steps of a call of the program.
    """
    step = processes.share(lambda: checkpoints.latest)
    if step % program.steps_per_call:
        raise DataError(
            f"the newest checkpoint is after step {step}, not a multiple of "
            f"{flag('device_iterations', program.steps_per_call)}: give a divisor of {step}"
        )
    if not step:
        if plan.flags.files.resume:
            say("there is no checkpoint yet: starting with step 1")
        found = Stored(Progress(), first_weights(), None)
    else:
        say(f"resuming after step {step} of {program.steps}")
        directory = checkpoints.directory / str(step)
        if not directory.is_dir():
            raise DataError(
                f"process {processes.index} has no {directory}: put {flag('output')} on a file "
                "system that all processes share, to resume"
            )
        found = checkpoints.read(step, plan.model)

    def update() -> dict[str, Any]:
        found.progress.update(each_metrics(str(plan.output / METRICS)), task.best_metric)
        if lost := checkpoints.forget_lost_best(found.progress):
            say(f"note: {lost}")
        return asdict(found.progress)

    if processes.count > 1:
        name = f"weights after step {step}" if step else "first weights"
        check_agreement(processes, {name: digest_of(found.weights)})
    return found._replace(progress=Progress(**processes.share(update))) if step else found


def check_past_stages(plan: TrainingPlan, stages: Stages | None) -> None:
    """Refuses other stages than a resumed run's up to its newest checkpoint; later ones may change.

    Raises:
      UsageError: names the stages of both.
    """
    if stages is None or not (plan.output / CONFIG_JSON).exists():
        return  # the fingerprint tells datasets with stages from those without
    before = read_settings(plan.output, plan.flags.entry)["config"].get("stages")
    step = Checkpoints(plan.output).latest
    if not (before and step):
        return
    was, now = (each.until(step) for each in (Stages.parse(before), stages))
    if was != now:
        raise UsageError(
            f"{plan.output} cannot be resumed with these stages: up to its checkpoint of step "
            f"{step:,} they were {was}, and would be {now} (starts in steps). Stages that begin "
            f"after step {step:,} may change; give the others as before, or another "
            f"{flag('output')}"
        )
