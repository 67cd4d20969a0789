"""The training loop: batches in, checkpoints, measurements and a last word out.

The loop never waits for the step it has just started: it reads the measurements of the step before
while the device works. Data comes through tf.data, which reads and places batches ahead.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemas.errors import DataError
from schemas.terminal import say
from trainers.data.batches import Batch, BatchReader
from trainers.data.mixture import Mixture
from trainers.on_tf.backend import tf
from trainers.on_tf.checkpoints import Checkpoints
from trainers.on_tf.optimizers import make_optimizer
from trainers.on_tf.run_config import RunConfig
from trainers.on_tf.step import Learner, Steps, Tensors
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
from trainers.run.progress import Progress, is_due
from trainers.run.run_directory import CHECKPOINTS, claimed, start_or_resume


@dataclass(frozen=True)
class Run:
    """What the loop needs to know of a run, once its settings have met the contract.

    Attributes:
      config: the settings.
      steps: optimizer steps of the whole schedule.
      output: the run's directory.
      model: dimensions of the model, to compare on resume.
      title: over the curve.
      files: to lie in the directory besides, by name.
    """

    config: RunConfig
    steps: int
    output: Path
    model: dict[str, Any]
    title: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def train(
    run: Run, learner: Learner, shards: BatchReader, strategy: tf.distribute.Strategy
) -> Checkpoints:
    """Trains, or goes on training, to the end of the schedule.

    Args:
      run: settings.
      learner: its model made under the strategy's scope.
      shards: to read.
      strategy: the devices.

    Returns:
      The run's checkpoints; `load_weights` fills the model with the best.

    Raises:
      UsageError: the output directory does not suit.
      DataError: the loss is no longer a number, or something cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    config, line = run.config, ProgressLine()
    settings = {
        "trainer": config.entry,
        "config": asdict(config),
        "model": run.model,
        "fingerprint": shards.fingerprint,
    }
    with claimed(run.output):
        same = config.same_settings
        for change in start_or_resume(run.output, settings, resume=config.resume, same=same):
            line.say(f"note: {change}")
        files = {CONFIG: config_bytes(config.entry, config), **run.files}
        for name, content in files.items():
            (run.output / name).write_bytes(content)
        for note in mend_metrics(str(run.output / METRICS)):
            line.say(f"note: {note}")
        newest_whole(numbered(run.output / CHECKPOINTS), line.say)
        loop = _Loop(run, learner, shards, strategy, line)
        try:
            loop.go()
        except KeyboardInterrupt:
            line.say(f"interrupted; go on with:\n  {config.command(resume=True)}")
            sys.exit(130)
        return loop.checkpoints


class _Loop:
    """One call of `train`: what its steps share."""

    def __init__(
        self,
        run: Run,
        learner: Learner,
        shards: BatchReader,
        strategy: tf.distribute.Strategy,
        line: ProgressLine,
    ):
        self.run, self.config, self.learner, self.shards = run, run.config, learner, shards
        self.line, self.strategy = line, strategy
        with strategy.scope():
            optimizer = make_optimizer(self.config, run.steps, learner.model.trainable_variables)
        self.checkpoints = Checkpoints(
            run.output, self.config.keep_checkpoints, learner.model, optimizer
        )
        self.programs = Steps(
            learner,
            optimizer,
            strategy,
            batch_size=self.config.batch_size,
            clip_norm=self.config.clip_norm,
            seed=self.config.seed,
            jit_compile=self.config.jit_compile,
        )
        self.stop = min(run.steps, self.config.stop_after or run.steps)
        self.train_rows = shards.rows(self.config.train_split)
        self.metrics_path = str(run.output / METRICS)
        self.interruption = Interruption()
        self.progress = Progress()
        self.best_by: Any = {
            "best_by": learner.best_by,
            "is_highest": learner.best_is_highest,
        }
        self.began, self.waited = time.perf_counter(), 0.0

    def go(self) -> None:
        """Everything from the first state to the last word."""
        if self.checkpoints.latest:
            stored, lines = self.checkpoints.restore(), read_metrics(self.metrics_path)
            self.progress = Progress.of(stored, lines, **self.best_by)
            self.line.say(f"resuming after step {self.progress.step} of {self.run.steps}")
        elif self.config.resume:
            self.line.say("no checkpoint to resume from yet: starting with step 1")
        self.start = self.progress.step
        is_owed = self._is_evaluated_now() and self.progress.evaluated != self.start
        if self._is_enough() or (self.start >= self.stop and not is_owed):
            self.line.say(f"nothing to do: step {self.start} of {self.run.steps} is done")
            self._last_word()
            return
        if not self._evaluates():
            self.line.say(f"no rows in split {self.config.validation_split!r}: no evaluation")
        if isinstance(self.shards, Mixture):
            rows = self.run.steps * self.config.batch_size
            for part in self.shards.passes(self.config.train_split, rows):
                self.line.say(part.said(self.run.steps))
        sinks = open_sinks(
            self.config.log_to,
            str(self.run.output),
            start_step=self.start,
            name=self.run.title,
            settings=asdict(self.config),
        )
        self.metrics = MetricsFile(self.metrics_path, start_step=self.start, also=sinks)
        try:
            with self.interruption:
                if is_owed:  # a signal came when it was due
                    self._evaluate()
                if not self._is_enough():
                    self._steps()
                self.checkpoints.save(self.progress)
        finally:
            self.metrics.close()
        if self.interruption.signal is not None:
            self.line.say(
                f"interrupted: the state after step {self.progress.step} is in "
                f"{self.checkpoints.directory}. Go on with:\n  {self.config.command(resume=True)}"
            )
            sys.exit(self.interruption.exit_code)
        self._last_word()

    def _steps(self) -> None:
        """All steps, until the end, a signal, or enough evaluations without a better one."""
        config, rates = self.config, Rates()
        running: Tensors | None = None
        batches = self.programs.train_batches(
            self.shards,
            config.train_split,
            seed=config.seed,
            start=self.start,
            stop=self.stop,
        )
        while self.progress.step < self.stop and self.interruption.signal is None:
            batch = self._next(batches, rates)
            before = time.perf_counter()
            started = self.programs.train(batch)
            if self.progress.step == self.start:  # traced and compiled by now
                seconds = time.perf_counter() - before
                rates.paused(seconds)
                self.line.say(f"the first step, with its compilation, took {seconds:.1f} s")
            if running is not None:
                self._report(self.progress.step, running, rates)
            running = started
            self.progress.step += 1
            evaluates, is_last = self._is_evaluated_now(), self.progress.step == self.stop
            saves = self.progress.step % config.checkpoint_every == 0 and not is_last
            if not evaluates and not saves:
                continue
            self._report(self.progress.step, running, rates)
            running, before = None, time.perf_counter()
            if evaluates:
                self._evaluate()
            if saves:
                self.checkpoints.save(self.progress)
            rates.paused(time.perf_counter() - before)
            if self._is_enough() and not is_last:
                self.line.say(
                    f"no better {self.learner.best_by} in {config.patience} evaluations: stopping "
                    f"after step {self.progress.step}; the best was after step "
                    f"{self.progress.best_step}"
                )
                return
        if running is not None:
            self._report(self.progress.step, running, rates)

    def _next(self, batches: Iterator[Tensors], rates: Rates) -> Tensors:
        before = time.perf_counter()
        try:
            batch = next(batches)
        except tf.errors.OpError as error:  # of the reader, which tf.data runs in its own thread
            raise DataError(
                f"step {self.progress.step + 1}: the batch cannot be read: "
                f"{error.message.strip().splitlines()[-1]}. Checkpoints up to step "
                f"{self.checkpoints.latest} are kept"
            ) from error
        waited = time.perf_counter() - before
        self.waited += waited
        rates.waited(waited)
        return batch

    def _is_evaluated_now(self) -> bool:
        every, steps = self.config.evaluate_every, self.run.steps
        return self._evaluates() and is_due(self.progress.step, every=every, steps=steps)

    def _is_enough(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.progress.without_better >= patience

    def _report(self, step: int, running: Tensors, rates: Rates) -> None:
        """Waits for a step's measurements, writes and shows them."""
        found = {name: float(value) for name, value in running.items()}
        tokens_a_second, waiting = rates.step_done(found["tokens"])
        values = {"loss": found["loss"], "gradient norm": found["gradient_norm"]}
        check_finite(
            values,
            self._batch_of(step) if not _are_finite(values) else {},
            step=step,
            output=str(self.run.output),
            checkpoint=self.checkpoints.latest,
        )
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

    def _batch_of(self, step: int) -> Batch:
        """The batch of a step again: it is a pure function of the seed and the step."""
        config = self.config
        return next(
            self.shards.batches(
                config.train_split,
                batch_size=config.batch_size,
                seed=config.seed,
                start_step=step - 1,
                stop_step=step,
                prefetch=0,
            )
        )

    def _evaluates(self) -> bool:
        split = self.config.validation_split
        return split in self.shards.splits and self.shards.rows(split) > 0

    def _evaluate(self) -> None:
        """Measures the validation split, and keeps the weights if they are the best so far."""
        step, split = self.progress.step, self.config.validation_split
        try:
            measures = self.learner.measures(
                self._until_signal(self.programs.evaluated(self.shards, split))
            )
        except _SignalCame:  # before files of a part of the split replaced those of a whole one
            return
        # Its line last: what is not in metrics.jsonl is measured again.
        if self.progress.count(step, measures, **self.best_by):
            self.checkpoints.save_best(self.progress)
        self.metrics.write({"kind": "evaluation", "step": step, **measures})
        self.line.say(f"step {step}: {split} {self.learner.said(measures)}")

    def _until_signal(self, outputs: Iterator[tuple[Batch, Batch]]) -> Iterator:
        for pair in outputs:
            yield pair
            if self.interruption.signal is not None:
                raise _SignalCame

    def _last_word(self) -> None:
        """Draws the curve and says what was made and where it lies."""
        output, step = self.run.output, self.progress.step
        lines = read_metrics(self.metrics_path)
        curve = output / "loss.png"
        draw_curve(lines, str(curve), self.run.title, unit=self.learner.unit)
        seconds = time.perf_counter() - self.began
        waiting = f"{self.waited / max(seconds, 1e-9):.1%} of it waiting for data"
        say(f"{step} steps done; this run took {duration(seconds)}, {waiting}.")
        trained = [line["loss"] for line in lines if line["kind"] == "train"]
        if trained:
            say(f"  training    loss {trained[0]:.4f} at first, {trained[-1]:.4f} at last")
        by_step = {line["step"]: line for line in lines if line["kind"] == "evaluation"}
        for name, at in (("last", max(by_step, default=None)), ("best", self.progress.best_step)):
            if at in by_step:
                measures = {k: v for k, v in by_step[at].items() if k not in ("kind", "step")}
                say(f"  {name:<12}step {at}: {self.learner.said(measures)}")
        say(f"  checkpoint  {self.checkpoints.directory / str(step)}")
        if self.progress.best_step is not None:
            say(f"  best        {self.checkpoints.best_directory / str(self.checkpoints.best)}")
        say(f"  metrics     {self.metrics_path}")
        say(f"  loss curve  {curve}")
        if step < self.run.steps and not self._is_enough():
            # What was exported is there, and would be refused.
            again = {"stop_after": None, "export": None, "export_saved_model": None}
            say(f"  to go on    {self.config.command(resume=True, **again)}")


class _SignalCame(Exception):
    """Ends an evaluation."""


def _are_finite(values: dict[str, float]) -> bool:
    return all(abs(value) < float("inf") for value in values.values())
