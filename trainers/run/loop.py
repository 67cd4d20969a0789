"""The training loop of all trainers: batches in, checkpoints and metrics out.

The loop never waits for the step that it has just started: while the device works, it reads the
metrics of the step before. A background thread reads rows and puts them on the devices.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, Callable, Generator, Iterator, NamedTuple, Sequence

from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.models.plan_model import PlannedModel
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.compilation import compile_program
from textmill.trainers.run.evaluation import evaluate
from textmill.trainers.run.interruption import Interruption
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.run.metric_sinks import open_metrics
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.program import STOP, PlacedBatch, Program, put_ahead
from textmill.trainers.run.resume import find_start
from textmill.trainers.run.saving import Saving
from textmill.trainers.run.step_reports import StepReports, are_finite, losses_in, stop_at
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import TrainingTask


class _Running(NamedTuple):
    step: int  # steps before it
    rows: Batch
    read: Callable[[], list[dict[str, float]]]  # waits for it


class _Interrupted(Exception):
    """Ends an evaluation before the end of the split."""


class Loop:
    """One run, or the rest of a resumed one.

    Attributes:
      progress: steps done, and the best evaluation.
      reports: of the steps of this run.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        task: TrainingTask,
        program: Program,
        shards: BatchReader,
        checkpoints: Checkpoints,
        line: ProgressLine,
        processes: Processes = ALONE,
    ):
        self.plan, self.flags, self.task = plan, plan.flags, task
        self.train_split = plan.flags.data.train_split
        self.validation_split = plan.flags.data.validation_split
        self.batch_size = plan.flags.compute.batch_size
        self.program, self.shards = program, shards
        self._evaluates = plan.evaluates(shards)
        self.checkpoints, self.line, self.processes = checkpoints, line, processes
        stop = plan.flags.length.stop_after or program.steps
        calls = -(-stop // program.steps_per_call)  # whole ones
        self.stop = min(program.steps, calls * program.steps_per_call)
        self.interruption, self._agreed = Interruption(), 0
        program.asked_to_stop = lambda: self.interruption.signal or 0

    def run(self, model: PlannedModel, notes: Sequence[str]) -> None:
        """Trains from the first weights, or the newest checkpoint, to the last checkpoint.

        After Ctrl-C or SIGTERM it ends with a checkpoint; `signal` is the signal's number then.

        Args:
          model: makes the first weights.
          notes: are printed with them.

        Raises:
          DataError: the loss is not finite, or a file cannot be read or written.
        """
        begun = time.perf_counter()
        stored = find_start(
            *(self.plan, self.task, self.program, self.checkpoints, self.processes, self.line.say),
            first_weights=lambda: self._first_weights(model, notes),
        )
        self.progress = stored.progress
        self.start = start = self.progress.step
        rows = self.shards.rows(self.train_split)
        self.reports = StepReports(
            *(self.plan, self.task, self.program, self.line),
            steps=range(start + 1, self.stop + 1),
            train_rows=rows,
            stages=self.shards.stages,
        )
        self.saving = Saving(self.checkpoints, self.program, self.progress, self.processes)
        is_owed = self._is_evaluated_now() and self.progress.evaluated != start
        if self.is_enough or (start >= self.stop and not is_owed):
            self.line.say(f"nothing to do: step {start} of {self.program.steps} is done")
            return
        self.program.load(stored.weights, stored.state)
        del stored  # memory of the host
        self.line.say(self.plan.describe(rows, self.program.steps))
        self.line.say(self.program.description)
        compiling = compile_program(self.program, evaluates=self._evaluates, say=self.line.say)
        self.processes.meet()
        self.line.say(f"ready in {time.perf_counter() - begun:.1f} s{compiling}")
        for text in self.plan.describe_data(self.shards, self.program.steps):
            self.line.say(text)
        self.metrics = open_metrics(self.plan, start, self.processes)
        self.reports.begin()
        try:
            with closing(self.metrics), self.interruption:
                if is_owed:  # a signal interrupted it
                    before = time.perf_counter()
                    self._evaluate()
                    self.reports.rates.skip(time.perf_counter() - before)
                if not self.is_enough:
                    self._train()
                self._save()
                self.saving.finish()
        except OSError:
            if self.processes.count == 1:  # a full disk: the error of the checkpoint says more
                self.saving.finish()
            raise
        finally:
            self.saving.close()

    def _first_weights(self, model: PlannedModel, notes: Sequence[str]) -> Arrays:
        weights, of_weights = model.first_weights(self.flags.compute.seed)
        for note in [*of_weights, *notes]:
            self.line.say(f"note: {note}")
        return weights

    @property
    def signal(self) -> int:
        """The signal that ends the run, 0 for none; all processes know it after the same step."""
        return (self.processes.count == 1 and self.interruption.signal) or self._agreed

    @property
    def is_enough(self) -> bool:
        """Whether the last --patience evaluations brought no improvement."""
        patience = self.flags.task.patience
        return patience is not None and self.progress.without_better >= patience

    def _train_calls(self) -> Generator[PlacedBatch, None, None]:
        # The rows of D steps are one call: steps s * D to s * D + D - 1 in the same order.
        steps_per_call = self.program.steps_per_call
        batches = self.shards.batches(
            self.train_split,
            batch_size=self.batch_size * steps_per_call,
            seed=self.flags.compute.seed,
            start_step=self.start // steps_per_call,
            stop_step=self.stop // steps_per_call,
            process_index=self.processes.index,
            process_count=self.processes.count,
            prefetch=0,
        )
        return put_ahead(self.program, batches)

    def _train(self) -> None:
        """Trains to the last step, a signal, or the end of --patience."""
        progress, rates = self.progress, self.reports.rates
        running: _Running | None = None
        with closing(self._train_calls()) as calls:
            while progress.step < self.stop and not self.signal:
                before = time.perf_counter()
                rows, on_devices = next(calls)
                rates.count_wait(time.perf_counter() - before)
                read = self.program.train(on_devices, progress.step)
                if running is not None:
                    self._report(running)
                running = _Running(progress.step, rows, read)
                self.saving.advance()
                progress.step += self.program.steps_per_call
                every, is_last = self.flags.length.checkpoint_every, progress.step >= self.stop
                is_saved = progress.step % every == 0 and not is_last
                if not (is_saved or self._is_evaluated_now()):
                    continue
                self._report(running)
                running, before = None, time.perf_counter()
                if self._is_evaluated_now():
                    self._evaluate()
                if is_saved:
                    self._save()
                rates.skip(time.perf_counter() - before)
                if self.is_enough and not is_last:
                    self.line.say(
                        f"no better {self.task.best_metric} in {self.flags.task.patience} "
                        f"evaluations: stopping after step {progress.step}; the best was after "
                        f"step {progress.best_step}"
                    )
                    return
        if running is not None:
            self._report(running)

    def _report(self, running: _Running) -> None:
        """Waits for a call's metrics, writes and shows them.

        Raises:
          DataError: a loss is infinite or NaN; see `stop_at`.
        """
        size = self.batch_size
        for index, values in enumerate(running.read()):
            step = running.step + index + 1
            rows = {n: part[index * size : (index + 1) * size] for n, part in running.rows.items()}
            self._agreed = int(values.pop(STOP, 0)) or self._agreed
            losses = losses_in(values)
            if not are_finite(losses):
                if self.processes.count > 1:
                    rows = self._whole_batch(step)
                    self.saving.finish()
                    self.processes.leave()
                    if not self.processes.is_first:
                        raise SystemExit(1)
                where: Any = {
                    "output": str(self.plan.output),
                    "checkpoint": self.checkpoints.latest,
                }
                raise stop_at(step, losses, rows, **where)
            self.metrics.write(self.reports.metrics(step, values, rows))

    def _whole_batch(self, step: int) -> Batch:
        """The rows of a step, those of other processes too."""
        where: Any = {"start_step": step - 1, "stop_step": step, "prefetch": 0}
        size: Any = {"batch_size": self.batch_size, "seed": self.flags.compute.seed}
        return next(self.shards.batches(self.train_split, **size, **where))

    def _is_evaluated_now(self) -> bool:
        """After every --evaluate_every steps, and after the last of a stage and of the schedule."""
        step, every = self.progress.step, self.flags.length.evaluate_every
        ends = [*(self.shards.stages.starts if self.shards.stages else ()), self.program.steps]
        is_due = step > 0 and (step % every == 0 or step in ends)
        return self._evaluates and is_due

    def _evaluate(self) -> None:
        """Evaluates the validation split, and keeps the weights if they are the best so far."""
        step, split = self.progress.step, self.validation_split
        try:
            metrics = self.task.measure(self._until_signal())
        except _Interrupted:  # before results of a part of the split replace those of all of it
            return
        if metrics is None:
            self.progress.evaluated = step
            self.line.say(f"step {step}: all loss weights of {split} are 0: no evaluation")
            return
        if self.processes.is_first:
            self.task.write_files(self.plan.output)
        # The line comes last: a step without one is evaluated again.
        if self.progress.count(step, metrics, self.task.best_metric):
            self.saving.save_best()
        of_stage = self.reports.stage_of(step)
        self.metrics.write({"kind": "evaluation", "step": step, **of_stage, **metrics})
        self.line.say(f"step {step}: {split} {self.task.describe(metrics)}")

    def _until_signal(self) -> Iterator[tuple[Batch, Arrays]]:
        def show(text: str) -> None:
            self.line.update(f"step {self.progress.step}: {text}")

        data, processes = self.flags.data, self.processes
        with closing(evaluate(self.program, self.shards, data, show, processes)) as pairs:
            for rows, outputs in pairs:
                yield rows, outputs
                self._agreed = int(outputs.get(STOP, 0)) or self._agreed
                if self.signal:
                    raise _Interrupted

    def _save(self) -> None:
        self.saving.save(self.flags.length.checkpoint_every)
