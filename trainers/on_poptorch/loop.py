"""The training loop: batches in, checkpoints, measurements and a last word out.

The loop reads the measurements of a call after it has started the next one, so that a device is
never idle for them; rows come through a thread that also makes tensors of them.
"""

import sys
import time
from contextlib import closing
from dataclasses import asdict
from typing import Any, Dict, Generator, Optional, Tuple

import numpy as np

from schemas.errors import UsageError
from trainers.data.batches import BatchReader
from trainers.data.read_ahead import read_ahead
from trainers.measures.class_scores import class_measures
from trainers.models.set_tokenizer import keep_set_files
from trainers.on_poptorch.checkpoints import Checkpoints, check_kind
from trainers.on_poptorch.config import SAME_SETTINGS, Plan
from trainers.on_poptorch.devices import runner_for
from trainers.on_poptorch.last_word import say_last_word, told
from trainers.on_poptorch.runner import Measured, Placed, Runner
from trainers.run.config_file import CONFIG, config_bytes
from trainers.run.finite_loss import check_finite
from trainers.run.interruption import Interruption
from trainers.run.journal import (
    METRICS,
    MetricsFile,
    ProgressLine,
    Rates,
    duration,
    mend_metrics,
    read_metrics,
)
from trainers.run.metric_sinks import open_sinks
from trainers.run.progress import Progress, is_due
from trainers.run.run_directory import claimed, start_or_resume

AHEAD = 2  # calls whose rows are ready before their turn


def train(plan: Plan, shards: BatchReader) -> None:
    """Trains, or goes on training, to the end of the plan.

    Raises:
      UsageError: the output directory or the device do not suit.
      DataError: the loss is no longer a number, or shards cannot be read.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    config, line = plan.config, ProgressLine()
    settings = {
        "trainer": config.entry,
        "config": asdict(config),
        "model": asdict(plan.model),
        "fingerprint": shards.fingerprint,
    }
    runner, steps, notes = runner_for(plan)
    with claimed(plan.output):
        changes = start_or_resume(plan.output, settings, resume=config.resume, same=SAME_SETTINGS)
        checkpoints = Checkpoints(plan.output, config.keep_checkpoints)
        for note in mend_metrics(str(plan.output / METRICS)):
            line.say(f"note: {note}")
        checkpoints.prepare(line.say)
        for note in changes + ([] if checkpoints.latest else notes):
            line.say(f"note: {note}")
        (plan.output / CONFIG).write_bytes(config_bytes("poptorch_classifier", config))
        keep_set_files(shards, plan.output)
        try:
            _Run(plan, steps, runner, shards, checkpoints, line).go()
        except KeyboardInterrupt:
            line.say(f"interrupted; go on with:\n  {config.command(resume=True)}")
            sys.exit(130)


class _Run:
    """One call of `train`: what its steps share."""

    def __init__(
        self,
        plan: Plan,
        steps: int,
        runner: Runner,
        shards: BatchReader,
        checkpoints: Checkpoints,
        line: ProgressLine,
    ):
        self.plan, self.config, self.shards = plan, plan.config, shards
        self.runner, self.checkpoints, self.line = runner, checkpoints, line
        self.steps, self.start = steps, checkpoints.latest or 0
        self.stop = min(steps, self.config.stop_after or steps)
        self.train_rows = shards.rows(self.config.train_split)
        self.metrics_path = str(plan.output / METRICS)
        self.interruption = Interruption()
        self.progress = Progress()
        self.began, self.waited = time.perf_counter(), 0.0

    def go(self) -> None:
        """Everything from the first state to the last word."""
        self._begin()
        is_owed = self._is_evaluated_now() and self.progress.evaluated != self.start
        if self._is_enough() or (self.start >= self.stop and not is_owed):
            self.line.say(f"nothing to do: step {self.start} of {self.steps} is done")
            self._last_word()
            return
        self.line.say(f"on {self.runner.placement.description}")
        self.runner.compile(self.plan.schema, trains=True, evaluates=self._evaluates())
        self.line.say(f"ready in {time.perf_counter() - self.began:.1f} s")
        if not self._evaluates():
            self.line.say(f"no rows in split {self.config.validation_split!r}: no evaluation")
        sinks = open_sinks(
            self.config.log_to,
            str(self.plan.output),
            start_step=self.start,
            name=self.plan.output.name,
            settings=asdict(self.config),
        )
        self.metrics = MetricsFile(self.metrics_path, start_step=self.start, also=sinks)
        self.began = time.perf_counter()
        with closing(self.metrics), self.interruption:
            if is_owed:  # a signal came when it was due
                self._evaluate()
            if not self._is_enough():
                self._train()
            self._save()
        if self.interruption.signal is not None:
            self.line.say(
                f"interrupted: the state after step {self.progress.step} is in "
                f"{self.checkpoints.directory}. Go on with:\n  {self.config.command(resume=True)}"
            )
            sys.exit(self.interruption.exit_code)
        self._last_word()

    def _begin(self) -> None:
        """Puts the newest checkpoint in place, if the run goes on."""
        if not self.start:
            if self.config.resume:
                self.line.say("no checkpoint to resume from yet: starting with step 1")
            return
        if self.start % self.runner.placement.device_iterations:
            raise UsageError(
                f"the newest checkpoint is after step {self.start}, which is no multiple of "
                f"--device_iterations={self.config.device_iterations}: give one that divides it"
            )
        self.line.say(f"resuming after step {self.start} of {self.steps}")
        state = self.checkpoints.restore(self.start)
        check_kind(state, self.runner.kind, self.checkpoints.path(self.start))
        lines = read_metrics(self.metrics_path)
        self.progress = Progress.of(state["progress"], lines, **self._best_by)
        self.checkpoints.forget_best_after(self.start)
        self.runner.restore(state)

    def _train_batches(self) -> Generator[Placed, None, None]:
        # The rows of D steps are one call: steps s * D to s * D + D - 1 of the same order.
        a_call = self.runner.placement.device_iterations
        batches = self.shards.batches(
            self.config.train_split,
            batch_size=self.runner.placement.call_rows,
            seed=self.config.seed,
            start_step=self.start // a_call,
            stop_step=self.stop // a_call,
            prefetch=0,
        )
        return read_ahead(map(self.runner.place, batches), AHEAD)

    def _train(self) -> None:
        """All steps, until the end, a signal, or enough evaluations without a better one."""
        config, rates, progress = self.config, Rates(), self.progress
        running: Optional[Tuple[Placed, Measured]] = None
        with closing(self._train_batches()) as batches:
            while progress.step < self.stop and self.interruption.signal is None:
                before = time.perf_counter()
                placed = next(batches)
                waited = time.perf_counter() - before
                self.waited += waited
                rates.waited(waited)
                started = placed, self.runner.train(placed, progress.step)
                if running is not None:
                    self._report(running, rates)
                running = started
                progress.step += self.runner.placement.device_iterations
                evaluates, is_last = self._is_evaluated_now(), progress.step >= self.stop
                saves = progress.step % config.checkpoint_every == 0 and not is_last
                if not evaluates and not saves:
                    continue
                self._report(running, rates)
                running, before = None, time.perf_counter()
                if evaluates:
                    self._evaluate()
                if saves:
                    self._save()
                rates.paused(time.perf_counter() - before)
                if self._is_enough() and not is_last:
                    self.line.say(
                        f"no better {config.best_by} in {config.patience} evaluations: stopping "
                        f"after step {progress.step}; the best was after step {progress.best_step}"
                    )
                    return
        if running is not None:
            self._report(running, rates)

    @property
    def _best_by(self) -> Dict[str, Any]:
        return {"best_by": self.config.best_by, "is_highest": self.config.best_by != "loss"}

    def _is_evaluated_now(self) -> bool:
        every = self.config.evaluate_every
        return self._evaluates() and is_due(self.progress.step, every=every, steps=self.steps)

    def _is_enough(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.progress.without_better >= patience

    def _report(self, running: Tuple[Placed, Measured], rates: Rates) -> None:
        """Waits for a call's measurements, writes and shows them."""
        (rows, _), measured = running
        size, losses = self.config.batch_size, measured.losses.tolist()
        for index, loss in enumerate(losses):
            step = measured.step + index + 1
            batch = {name: part[index * size : (index + 1) * size] for name, part in rows.items()}
            found = {"loss": loss}
            if measured.gradient_norm is not None:
                found["gradient_norm"] = float(measured.gradient_norm)
            check_finite(
                {name.replace("_", " "): value for name, value in found.items()},
                batch,
                step=step,
                output=str(self.plan.output),
                checkpoint=self.checkpoints.latest or 0,
            )
            tokens = int(np.count_nonzero(batch["segment_ids"]))
            tokens_a_second, waiting = rates.step_done(tokens)
            epoch = step * size / self.train_rows
            self.metrics.write(
                {
                    "kind": "train",
                    "step": step,
                    "epoch": round(epoch, 4),
                    **found,
                    "tokens": tokens,
                    "learning_rate": measured.rates[index],
                    "tokens_per_second": round(tokens_a_second, 1),
                    "waiting": round(waiting, 4),
                }
            )
            left = (time.perf_counter() - self.began) / (step - self.start) * (self.stop - step)
            self.line.update(
                f"step {step}/{self.stop}  epoch {epoch:.2f}  loss {loss:.4f}  "
                f"{tokens_a_second:,.0f} tokens/s  waiting for data {waiting:.1%}  "
                f"{duration(left)} left"
            )

    def _evaluates(self) -> bool:
        split = self.config.validation_split
        return split in self.shards.splits and self.shards.rows(split) > 0

    def _evaluate(self) -> None:
        """Measures the whole validation split and keeps the best weights."""
        step, measures = self.progress.step, self._measures()
        if measures is None:
            return
        # Its line last: what is not in metrics.jsonl is measured again.
        if self.progress.count(step, measures, **self._best_by):
            self.checkpoints.save_best(step, measures, self.runner.weights())
        self.metrics.write({"kind": "evaluation", "step": step, **measures})
        self.line.say(f"step {step}: {self.config.validation_split} {told(measures)}")

    def _measures(self) -> Optional[Dict[str, float]]:
        """Of the validation split; None if a signal came."""
        split = self.config.validation_split
        batches = self.shards.in_order(split, batch_size=self.runner.evaluation_rows, prefetch=0)
        logits, labels = [], []
        with closing(read_ahead(map(self.runner.place, batches), AHEAD)) as all_placed:
            for placed in all_placed:
                is_real = placed.rows["row_weights"] == 1
                logits.append(self.runner.evaluate(placed).numpy()[is_real])
                labels.append(placed.rows["label"][is_real])
                if self.interruption.signal is not None:
                    return None
        return class_measures(np.concatenate(logits), np.concatenate(labels))

    def _save(self) -> None:
        state = dict(self.runner.state(), progress=asdict(self.progress))
        self.checkpoints.save(self.progress.step, state)

    def _last_word(self) -> None:
        seconds = time.perf_counter() - self.began
        is_over = self.progress.step >= self.steps or self._is_enough()
        waited = self.waited / max(seconds, 1e-9)
        say_last_word(
            self.plan,
            self.checkpoints,
            self.progress.step,
            took=f"{duration(seconds)}, {waited:.1%} of it waiting for data",
            is_over=is_over,
        )
