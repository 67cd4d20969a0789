"""The summary that a run prints at its end, and the curve of its losses."""

from __future__ import annotations

import time
from typing import Any, Iterator

from textmill.schemas.commands.terminal import say
from textmill.trainers.flags.command_line import command_to_resume
from textmill.trainers.metrics.plots import draw_curve
from textmill.trainers.run.journal import METRICS, duration, each_metrics
from textmill.trainers.run.loop import Loop
from textmill.trainers.run.run_directory import PROFILE
from textmill.trainers.run.training_task import Metrics, TrainingTask


def summarize(loop: Loop) -> None:
    """Draws the loss curve; prints time, losses, and the paths of all outputs."""
    plan, flags, task, step = loop.plan, loop.flags, loop.task, loop.progress.step
    output, checkpoints, reports = plan.output, loop.checkpoints, loop.reports
    curve, names = output / "loss.png", ("kind", "step", "loss")
    lines = [
        line if line["kind"] == "evaluation" else {name: line[name] for name in names}
        for line in each_metrics(str(output / METRICS))
    ]
    stages = loop.shards.stages
    starts = stages.starts if stages else []
    title = f"{output.name}, {flags.data.shards}"
    draw_curve(lines, str(curve), title, unit=task.unit, starts=starts[1:])
    mean, took = reports.rates.mean(), duration(time.perf_counter() - reports.began)
    rates = f"{mean.steps:,.2f} steps/s, {mean.tokens:,.0f} tokens/s"
    rates = f": on average {rates}, waiting for data {mean.waiting:.1%}" if mean.steps else ""
    say(f"{step} steps done; this run took {took}{rates}")
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    by_step: dict[Any, Metrics] = {
        line["step"]: {name: value for name, value in line.items() if name not in ("kind", "step")}
        for line in lines
        if line["kind"] == "evaluation"
    }
    if losses:
        say(f"  training    loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    for text in _describe_stages([*starts, step], lines, by_step, task):
        say(text)
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
        without: dict[str, Any] = dict.fromkeys(names)
        say(f"  resume      {command_to_resume(flags, **without)}")


def _describe_stages(
    bounds: list[int],
    lines: list[dict[str, Any]],
    by_step: dict[Any, Metrics],
    task: TrainingTask,
) -> Iterator[str]:
    """The last losses of each stage, a line each; `bounds` are the steps before stages, and all."""
    for number, (start, next_start) in enumerate(zip(bounds, bounds[1:]), 1):
        end = min(next_start, bounds[-1])
        of_stage = [line for line in lines if start < line["step"] <= end]
        trained = [line["loss"] for line in of_stage if line["kind"] == "train"]
        if not trained:
            continue
        text = f"steps {start + 1:,} to {end:,}: training loss {trained[-1]:.4f} at last"
        measured = [line["step"] for line in of_stage if line["kind"] == "evaluation"]
        if measured:
            text += f"; step {measured[-1]}: {task.describe(by_step[measured[-1]])}"
        yield f"  {f'stage {number}':<12}{text}"
