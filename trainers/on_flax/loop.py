"""The training loop of every Flax trainer: batches in, checkpoints and measurements out.

What is trained is a `Task`; for how long and from what, a `Plan` says. The loop never waits for the
step it has just started: it reads the measurements of the step before, while the device works. Data
comes through a thread that also places it on the devices.
"""

import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from schemas.errors import UsageError
from schemas.terminal import say
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture
from trainers.data.read_ahead import read_ahead
from trainers.models.hf_files import refuse_existing
from trainers.models.set_tokenizer import keep_set_files
from trainers.on_flax.checkpoints import SAME_SETTINGS, Checkpoints
from trainers.on_flax.programs import Programs, compile_programs
from trainers.on_flax.run_config import Plan
from trainers.on_flax.step import State, StepMetrics
from trainers.on_flax.task import Batch, Sums, Task
from trainers.run.checkpoint_sums import newest_whole, numbered
from trainers.run.config_file import CONFIG, config_bytes
from trainers.run.finite_loss import check_finite
from trainers.run.interruption import Interruption
from trainers.run.journal import (
    METRICS,
    MetricsFile,
    ProgressLine,
    Rates,
    draw_curve,
    duration,
    mend_metrics,
    read_metrics,
)
from trainers.run.metric_sinks import open_sinks
from trainers.run.progress import has_evaluation, is_due
from trainers.run.run_directory import CHECKPOINTS, claimed, start_or_resume

AHEAD = 2  # batches that lie on the devices before their step
HostBatch = dict[str, np.ndarray]


def train(plan: Plan, task: Task, shards: BatchReader) -> None:
    """Trains, or goes on training, to the end of the plan.

    Args:
      plan: the settings and the contract.
      task: the model and its loss.
      shards: that the rows come from.

    Raises:
      UsageError: the output directory or the devices do not suit.
      DataError: the loss is no longer a number, or shards cannot be read.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    config, line = plan.config, ProgressLine()
    if jax.process_count() > 1:
        raise UsageError(
            f"this is one of {jax.process_count()} processes of JAX, and this trainer knows one "
            "alone: start it on one host"
        )
    settings = {
        "trainer": config.entry,
        "config": asdict(config),
        "model": asdict(plan.model),
        "fingerprint": shards.fingerprint,
    }
    if config.export is not None:
        refuse_existing(config.export)
    with claimed(plan.output):
        for change in start_or_resume(
            plan.output, settings, resume=config.resume, same=SAME_SETTINGS
        ):
            line.say(f"note: {change}")
        (plan.output / CONFIG).write_bytes(config_bytes(config.entry, config))
        keep_set_files(shards, plan.output)
        for note in mend_metrics(str(plan.output / METRICS)):
            line.say(f"note: {note}")
        newest_whole(numbered(plan.output / CHECKPOINTS), line.say)
        with closing(Checkpoints(plan.output, config.keep_checkpoints)) as checkpoints:
            try:
                _Run(plan, task, shards, checkpoints, line).go()
            except KeyboardInterrupt:
                line.say(f"interrupted; go on with:\n  {config.command(resume=True)}")
                sys.exit(130)


def _compiled(plan: Plan, task: Task, line: ProgressLine) -> Programs:
    began = time.perf_counter()
    programs = compile_programs(plan, task)
    devices = jax.local_devices()
    seconds = time.perf_counter() - began
    line.say(f"compiled in {seconds:.1f} s for {len(devices)} x {devices[0].device_kind}")
    return programs


class _Run:
    """One call of `train`: what its steps share."""

    def __init__(
        self,
        plan: Plan,
        task: Task,
        shards: BatchReader,
        checkpoints: Checkpoints,
        line: ProgressLine,
    ):
        self.plan, self.config, self.task, self.shards = plan, plan.config, task, shards
        self.checkpoints, self.line = checkpoints, line
        self.start = checkpoints.latest or 0
        self.stop = min(plan.steps, self.config.stop_after or plan.steps)
        self.train_rows = shards.rows(self.config.train_split)
        self.metrics_path = str(plan.output / METRICS)
        self.interruption = Interruption()
        self.began = time.perf_counter()
        self.waited = 0.0

    def go(self) -> None:
        """Everything from compiling to the last word."""
        is_owed = self._is_evaluated_after(self.start) and not has_evaluation(
            read_metrics(self.metrics_path), self.start
        )
        if self.start >= self.stop and not is_owed:
            self.line.say(f"nothing to do: step {self.start} of {self.plan.steps} is done")
            if self.config.export is not None:
                self.programs = _compiled(self.plan, self.task, self.line)
                self._export(self._first_state())
            self._last_word(self.start)
            return
        self.programs = _compiled(self.plan, self.task, self.line)
        state = self._first_state()
        self.metrics = self._open_metrics()
        self.began = time.perf_counter()
        if not self._evaluates():
            self.line.say(f"no rows in split {self.config.validation_split!r}: no evaluation")
        if isinstance(self.shards, Mixture):
            rows = self.plan.steps * self.config.batch_size
            for part in self.shards.passes(self.config.train_split, rows):
                self.line.say(part.said(self.plan.steps))
        with closing(self.metrics), self.interruption:
            if is_owed:  # a signal came when it was due
                self._evaluate(state, self.start)
            state, step = self._steps(state)
            self.checkpoints.save(step, state)
        if self.interruption.signal is not None:
            self.line.say(
                f"interrupted: the state after step {step} is in {self.checkpoints.directory}. "
                f"Go on with:\n  {self.config.command(resume=True)}"
            )
            sys.exit(self.interruption.exit_code)
        if self.config.export is not None:
            self._export(state)
        self._last_word(step)

    def _first_state(self) -> State:
        if self.start:
            self.line.say(f"resuming after step {self.start} of {self.plan.steps}")
            return self.checkpoints.restore(self.start, self.programs.abstract_state)
        if self.config.resume:
            self.line.say("no checkpoint to resume from yet: starting with step 1")
        for note in self.task.notes():
            self.line.say(f"note: {note}")
        return self.programs.first()

    def _open_metrics(self) -> MetricsFile:
        sinks = open_sinks(
            self.config.log_to,
            str(self.plan.output),
            start_step=self.start,
            name=self.plan.output.name,
            settings={**asdict(self.config), "model": asdict(self.plan.model)},
        )
        return MetricsFile(self.metrics_path, start_step=self.start, also=sinks)

    def _export(self, state: State) -> None:
        assert self.config.export is not None
        self.task.export(self.config.export, jax.device_get(state["params"]))
        self.line.say(f"exported to {self.config.export}")

    def _train_batches(self) -> Generator[tuple[HostBatch, Batch], None, None]:
        """Batches as the reader gives them, each with itself on the devices."""
        batches = self.shards.batches(
            self.config.train_split,
            batch_size=self.config.batch_size,
            seed=self.config.seed,
            start_step=self.start,
            stop_step=self.stop,
            prefetch=0,
        )
        return read_ahead(((batch, self.programs.place(batch)) for batch in batches), AHEAD)

    def _steps(self, state: State) -> tuple[State, int]:
        """All steps; returns the last state and its number."""
        config, rates, step = self.config, Rates(), self.start
        running: tuple[StepMetrics, HostBatch] | None = None
        with closing(self._train_batches()) as batches:
            while step < self.stop and self.interruption.signal is None:
                before = time.perf_counter()
                host_batch, batch = next(batches)
                waited = time.perf_counter() - before
                self.waited += waited
                rates.waited(waited)
                state, started = self.programs.train(state, batch)
                if running is not None:
                    self._report(step, *running, rates)
                running, step = (started, host_batch), step + 1
                evaluates = self._is_evaluated_after(step)
                saves = step % config.checkpoint_every == 0 and step < self.stop
                if evaluates or saves:
                    self._report(step, *running, rates)
                    running, before = None, time.perf_counter()
                    if evaluates:
                        self._evaluate(state, step)
                    if saves:
                        self.checkpoints.save(step, state)
                    rates.paused(time.perf_counter() - before)
        if running is not None:
            self._report(step, *running, rates)
        return state, step

    def _report(
        self, step: int, device_metrics: StepMetrics, batch: HostBatch, rates: Rates
    ) -> None:
        """Waits for a step's measurements, writes and shows them; stops at what is no number."""
        values = map(float, jax.device_get(device_metrics))
        found = dict(zip(StepMetrics._fields, values, strict=True))
        tokens_a_second, waiting = rates.step_done(found["tokens"])
        check_finite(
            {"loss": found["loss"], "gradient's norm": found["gradient_norm"]},
            batch,
            step=step,
            output=str(self.plan.output),
            checkpoint=self.checkpoints.latest or 0,
        )
        found[self.task.counts] = found.pop("counted")
        epoch = step * self.config.batch_size / self.train_rows
        self.metrics.write(
            {
                "kind": "train",
                "step": step,
                "epoch": round(epoch, 4),
                **found,
                "tokens_per_second": round(tokens_a_second, 1),
                "waiting": round(waiting, 4),
            }
        )
        left = (time.perf_counter() - self.began) / (step - self.start) * (self.stop - step)
        self.line.update(
            f"step {step}/{self.stop}  epoch {epoch:.2f}  loss {found['loss']:.4f}  "
            f"{tokens_a_second:,.0f} tokens/s  waiting for data {waiting:.1%}  "
            f"{duration(left)} left"
        )

    def _evaluates(self) -> bool:
        split = self.config.validation_split
        return split in self.shards.splits and self.shards.rows(split) > 0

    def _is_evaluated_after(self, step: int) -> bool:
        every, steps = self.config.evaluate_every, self.plan.steps
        return self._evaluates() and is_due(step, every=every, steps=steps)

    def _evaluate(self, state: State, step: int) -> None:
        """Measures the whole validation split; leaves when interrupted."""
        split = self.config.validation_split
        batches = self.shards.in_order(
            split, batch_size=self.programs.evaluation_batch_size, prefetch=0
        )
        total, running = Sums(0.0, 0.0, 0.0), None
        with closing(read_ahead(map(self.programs.place, batches), AHEAD)) as placed:
            for batch in placed:
                started = self.programs.evaluate(state["params"], batch)
                total, running = _plus(total, running), started
                if self.interruption.signal is not None:
                    return
        total = _plus(total, running)
        if not total.counted:
            self.line.say(f"step {step}: no token of {split} counts: nothing was measured")
            return
        found = self.task.evaluation(total)
        self.metrics.write({"kind": "evaluation", "step": step, **found})
        self.line.say(f"step {step}: {split} {self.task.said(found)}")

    def _last_word(self, step: int) -> None:
        """Draws the curve and says what was made and where it lies."""
        output = self.plan.output
        lines = read_metrics(self.metrics_path)
        curve = output / "loss.png"
        draw_curve(lines, str(curve), f"{output.name}, {self.config.shards}", unit=self.task.unit)
        say(self._summary(lines, step))
        say(f"  checkpoint  {self.checkpoints.directory / str(step)}")
        say(f"  metrics     {self.metrics_path}")
        say(f"  loss curve  {curve}")
        if self.config.export is not None:
            say(f"  exported    {self.config.export}")
        if step < self.plan.steps:
            again = self.config.command(resume=True, stop_after=None, export=None)
            say(f"  to go on    {again}")

    def _summary(self, lines: list[dict[str, Any]], step: int) -> str:
        seconds = time.perf_counter() - self.began
        trained = [line["loss"] for line in lines if line["kind"] == "train"]
        evaluations = [line for line in lines if line["kind"] == "evaluation"]
        said = f"{step} steps done; this run took {duration(seconds)}, "
        said += f"{self.waited / seconds:.1%} of it waiting for data."
        if trained:
            said += f" Training loss {trained[0]:.4f} at first, {trained[-1]:.4f} at last."
        if evaluations:
            said += f" Validation {self.task.said(evaluations[-1])}."
        return said


def _plus(total: Sums, sums: Sums | None) -> Sums:
    """Adds up on the host, in f64: f32 cannot count beyond 2**24."""
    if sums is None:
        return total
    return Sums(*(a + float(b) for a, b in zip(total, jax.device_get(sums), strict=True)))
