"""The training loop of all trainers: batches in, checkpoints and metrics out.

The loop never waits for the step that it has just started: while the device works, it reads the
metrics of the step before. A background thread reads rows and puts them on the devices.
"""

import math
import os
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from textmill.schemas.errors import DataError, flag
from textmill.trainers.data.batches import Batch, BatchReader, read_ahead
from textmill.trainers.flags.command_line import command_to_resume, flag_values
from textmill.trainers.flags.run_flags import DataFlags
from textmill.trainers.models.families import Weights
from textmill.trainers.models.plan_model import training_flops
from textmill.trainers.models.weights import shapes
from textmill.trainers.run.agreement import check_agreement, digest_of
from textmill.trainers.run.checkpoints import Checkpoints, Progress, Writer
from textmill.trainers.run.journal import (
    METRICS,
    MetricsFile,
    ProgressLine,
    Rate,
    Rates,
    duration,
    each_metrics,
    open_sinks,
)
from textmill.trainers.run.processes import ALONE, Processes
from textmill.trainers.run.program import (
    STOP,
    TOKENS,
    Arrays,
    Interruption,
    Program,
    TrainingPlan,
    TrainingTask,
)

_WRITING_STEPS = 50  # that several processes spread the tensors of a checkpoint over
_QUIET_SECONDS = 3  # of compiling before the run prints a line
AHEAD = 2  # calls whose rows are on the devices in advance
_Placed = Tuple[Batch, Any]  # the rows of a call: from the reader, and on the devices


class _Running(NamedTuple):
    step: int  # steps before it
    rows: Batch
    read: Callable[[], List[Dict[str, float]]]  # waits for it


class _Interrupted(Exception):
    """Ends an evaluation before the end of the split."""


def evaluate(
    program: Program,
    shards: BatchReader,
    data: DataFlags,
    show: Callable[[str], None],
    processes: Processes = ALONE,
) -> Generator[Tuple[Batch, Arrays], None, None]:
    """The batches of the validation split with the program's outputs, one ahead of the consumer.

    `show` gets the progress after each: "evaluating validation: batch 3 of 40, 12 s left".
    """
    split = data.validation_split
    size: Any = {"batch_size": program.evaluation_rows, "most": data.evaluation_rows}
    count = shards.count_in_order(split, **size)
    share: Any = {"process_index": processes.index, "process_count": processes.count}
    batches = shards.in_order(split, **size, **share, prefetch=0)
    placed = ((rows, program.put(rows)) for rows in batches)
    before: Optional[Tuple[Batch, Callable[[], Arrays]]] = None
    began = time.monotonic()
    with closing(read_ahead(placed, AHEAD)) as calls:
        for number, (rows, on_devices) in enumerate(calls):
            started = rows, program.evaluate(on_devices)
            if before is not None:
                outputs = before[1]()
                left = duration((time.monotonic() - began) / number * (count - number))
                show(f"evaluating {split}: batch {number} of {count}, {left} left")
                yield before[0], outputs
            before = started
        if before is not None:
            yield before[0], before[1]()


class Loop:
    """One run, or the rest of a resumed one."""

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
        self.checkpoints, self.line = checkpoints, line
        stop = plan.flags.length.stop_after or program.steps
        calls = -(-stop // program.steps_a_call)  # whole ones
        self.stop = min(program.steps, calls * program.steps_a_call)
        self.metrics_path = str(plan.output / METRICS)
        self.processes = processes
        self.progress, self.start = Progress(), processes.share(lambda: checkpoints.latest)
        self.saved = self.start  # the step of the newest checkpoint
        self._writer: Optional[Writer] = None  # of a checkpoint, while the next steps run
        self._written_best: Optional[int] = None  # its best step
        self.interruption, self._agreed = Interruption(), 0
        program.asked_to_stop = lambda: self.interruption.signal or 0
        self.began = time.perf_counter()
        self.rates = Rates()
        length = plan.schema.max_length
        self.flops = training_flops(plan.model, length, task.head_share)  # of a token

    def run(self, first_weights: Callable[[], Weights]) -> None:
        """Trains from the first weights, or the newest checkpoint, to the last checkpoint.

        Raises:
          DataError: the loss is not finite, or a file cannot be read or written.
          SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
        """
        state = self._resume()
        if self.processes.is_first:  # newer steps are evaluated again
            self.checkpoints.known_best = self.progress.best_step
            self.checkpoints.keep_best(self.progress)
        is_owed = self._is_evaluated_now() and self.progress.evaluated != self.start
        if self.is_enough or (self.start >= self.stop and not is_owed):
            self.line.say(f"nothing to do: step {self.start} of {self.program.steps} is done")
            return
        first = state or (first_weights(), None)
        if self.processes.count > 1:
            name = f"weights after step {self.start}" if self.start else "first weights"
            check_agreement(self.processes, {name: digest_of(first[0])})
        self.program.load(*first)
        del state, first  # memory of the host
        self.line.say(self._facts())
        self.line.say(self.program.description)
        compiling = self._compile()
        self.processes.meet()
        self.line.say(f"ready in {time.perf_counter() - self.began:.1f} s{compiling}")
        self._describe_data()
        self.metrics = self._open_metrics()
        self.began = time.perf_counter()
        try:
            with closing(self.metrics), self.interruption:
                if is_owed:  # a signal interrupted it
                    self._evaluate()
                if not self.is_enough:
                    self._train()
                self._save()
                self._finish_writing()
        except OSError:
            if self.processes.count == 1:  # a full disk: the error of the checkpoint says more
                self._finish_writing()
            raise
        finally:
            self._close_writer()
        if self.signal:
            self.line.say(
                f"interrupted: the checkpoint after step {self.progress.step} is in "
                f"{self.checkpoints.directory}. Resume with:\n  {command_to_resume(self.flags)}"
            )
            self.processes.leave()
            sys.exit(128 + self.signal)

    def _compile(self) -> str:
        """Compiles, prints a line after a while, and returns its share of the time if long."""
        what = "the training step" + (" and the evaluation" if self._evaluates else "")
        began = time.perf_counter()
        timer = threading.Timer(_QUIET_SECONDS, self.line.say, [f"compiling {what} ..."])
        timer.daemon = True
        timer.start()
        try:
            self.program.compile(trains=True, evaluates=self._evaluates)
        finally:
            timer.cancel()
        seconds = time.perf_counter() - began
        return f", {seconds:.1f} s of it to compile {what}" if seconds >= 1 else ""

    @property
    def signal(self) -> int:
        """The signal that ends the run, 0 for none; all processes know it after the same step."""
        return (self.processes.count == 1 and self.interruption.signal) or self._agreed

    @property
    def is_enough(self) -> bool:
        """Whether the last --patience evaluations brought no improvement."""
        patience = self.flags.task.patience
        return patience is not None and self.progress.without_better >= patience

    def _resume(self) -> Optional[Tuple[Weights, Optional[Arrays]]]:
        if not self.start:
            if self.flags.files.resume:
                self.line.say("there is no checkpoint yet: starting with step 1")
            return None
        if self.start % self.program.steps_a_call:
            raise DataError(
                f"the newest checkpoint is after step {self.start}, not a multiple of "
                f"{flag('device_iterations', self.program.steps_a_call)}: give a divisor of "
                f"{self.start}"
            )
        self.line.say(f"resuming after step {self.start} of {self.program.steps}")
        directory = self.checkpoints.directory / str(self.start)
        if not directory.is_dir():
            raise DataError(
                f"process {self.processes.index} has no {directory}: put {flag('output')} on a "
                "file system that all processes share, to resume"
            )
        stored = self.checkpoints.read(self.start, self.plan.model)

        def update() -> Dict[str, Any]:
            stored.progress.update(each_metrics(self.metrics_path), self.task)
            if lost := self.checkpoints.forget_lost_best(stored.progress):
                self.line.say(f"note: {lost}")
            return asdict(stored.progress)

        self.progress = Progress(**self.processes.share(update))
        return stored.weights, stored.state

    def _facts(self) -> str:
        model = self.plan.model
        parameters = sum(math.prod(shape) for shape in shapes(model).values())
        rows, length = self.shards.rows(self.train_split), self.plan.schema.max_length
        return (
            f"{model.family}, {model.layers} layers of {model.hidden_size}, {parameters:,} "
            f"parameters; {rows:,} rows of {length} tokens, {self.program.steps:,} steps of "
            f"{self.batch_size:,} rows"
        )

    def _describe_data(self) -> None:
        if not self._evaluates:
            self.line.say(
                f"split {self.validation_split!r} has no rows: no evaluations; "
                f"{flag('validation_split')} names another split"
            )
        run = self.train_split, self.program.steps, self.batch_size
        for text in self.shards.describe_passes(*run):
            self.line.say(text)

    def _open_metrics(self) -> MetricsFile:
        if not self.processes.is_first:
            return MetricsFile(os.devnull)
        sinks = open_sinks(
            self.flags.files.log_to,
            str(self.plan.output),
            start_step=self.start,
            settings={**flag_values(self.flags), "model": asdict(self.plan.model)},
        )
        return MetricsFile(self.metrics_path, also=sinks)

    def _train_calls(self) -> Generator[_Placed, None, None]:
        # The rows of D steps are one call: steps s * D to s * D + D - 1 in the same order.
        a_call = self.program.steps_a_call
        batches = self.shards.batches(
            self.train_split,
            batch_size=self.batch_size * a_call,
            seed=self.flags.compute.seed,
            start_step=self.start // a_call,
            stop_step=self.stop // a_call,
            process_index=self.processes.index,
            process_count=self.processes.count,
            prefetch=0,
        )
        return read_ahead(((rows, self.program.put(rows)) for rows in batches), AHEAD)

    def _train(self) -> None:
        """Trains to the last step, a signal, or the end of --patience."""
        progress, self.rates = self.progress, Rates()
        running: Optional[_Running] = None
        with closing(self._train_calls()) as calls:
            while progress.step < self.stop and not self.signal:
                before = time.perf_counter()
                rows, on_devices = next(calls)
                self.rates.count_wait(time.perf_counter() - before)
                read = self.program.train(on_devices, progress.step)
                if running is not None:
                    self._report(running)
                running = _Running(progress.step, rows, read)
                if self._writer is not None and self._writer.advance():
                    self._finish_writing()
                progress.step += self.program.steps_a_call
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
                self.rates.skip(time.perf_counter() - before)
                if self.is_enough and not is_last:
                    self.line.say(
                        f"no better {self.task.best_by} in {self.flags.task.patience} evaluations: "
                        f"stopping after step {progress.step}; the best was after step "
                        f"{progress.best_step}"
                    )
                    return
        if running is not None:
            self._report(running)

    def _report(self, running: _Running) -> None:
        """Waits for a call's metrics, writes and shows them; raises as `check_finite`."""
        size = self.batch_size
        train_rows = self.shards.rows(self.train_split)
        for index, values in enumerate(running.read()):
            step = running.step + index + 1
            rows = {n: part[index * size : (index + 1) * size] for n, part in running.rows.items()}
            self._agreed = int(values.pop(STOP, 0)) or self._agreed
            names = [name for name in ("loss", "gradient_norm") if name in values]
            checked = {name.replace("_", " "): values[name] for name in names}
            if self.processes.count > 1 and not all(map(math.isfinite, checked.values())):
                rows = self._whole_batch(step)
                self._finish_writing()
                self.processes.leave()
                if not self.processes.is_first:
                    sys.exit(1)
            check_finite(
                checked,
                rows,
                step=step,
                output=str(self.plan.output),
                checkpoint=self.checkpoints.latest,
            )
            if "counted" in values:
                values[self.task.counts] = values.pop("counted")
            tokens = int(values.pop(TOKENS, np.count_nonzero(rows["segment_ids"])))
            rate = self.rates.count_step(tokens)
            epoch = step * size / train_rows
            speeds, line = self._speeds(rate), {"kind": "train", "step": step}
            line.update(epoch=round(epoch, 4), **values, tokens=tokens, **speeds)
            self.metrics.write(line)
            left = (time.perf_counter() - self.began) / (step - self.start) * (self.stop - step)
            self.line.update(
                f"step {step}/{self.stop}  epoch {epoch:.2f}  loss {values['loss']:.4f}  "
                f"{1 / rate.steps:.3g} s/step  {self._describe_speed(speeds)}  "
                f"waiting for data {rate.waiting:.1%}  {duration(left)} left"
            )

    def _speeds(self, rate: Rate) -> Dict[str, float]:
        """The speed in metrics.jsonl; `mfu` is the share of the devices' peak that is used."""
        a_device = rate.tokens / self.program.devices
        speeds = {
            "seconds_per_step": round(1 / rate.steps, 6),
            "tokens_per_second": round(rate.tokens, 1),
            "tokens_per_second_per_device": round(a_device, 1),
            "flops_per_token": self.flops,
            "waiting": round(rate.waiting, 4),
        }
        if self.program.peak is not None:
            speeds["mfu"] = round(a_device * self.flops / self.program.peak, 4)
        return speeds

    def _describe_speed(self, speeds: Dict[str, float]) -> str:
        """The speed on the line: "12,340 tokens/s (3,085 a device, MFU 41.2%)"."""
        details = []
        if self.program.devices > 1:
            details.append(f"{speeds['tokens_per_second_per_device']:,.0f} a device")
        if "mfu" in speeds:
            details.append(f"MFU {speeds['mfu']:.1%}")
        text = f"{speeds['tokens_per_second']:,.0f} tokens/s"
        return f"{text} ({', '.join(details)})" if details else text

    def _whole_batch(self, step: int) -> Batch:
        """The rows of a step, those of other processes too."""
        where: Any = {"start_step": step - 1, "stop_step": step, "prefetch": 0}
        compute = self.flags.compute
        size: Any = {"batch_size": compute.batch_size, "seed": compute.seed}
        return next(self.shards.batches(self.train_split, **size, **where))

    @property
    def _evaluates(self) -> bool:
        split = self.validation_split
        return split in self.shards.splits and self.shards.rows(split) > 0

    def _is_evaluated_now(self) -> bool:
        """After every --evaluate_every steps, and after the last of the schedule."""
        step, every = self.progress.step, self.flags.length.evaluate_every
        is_due = step > 0 and (step % every == 0 or step == self.program.steps)
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
        if self.progress.count(step, metrics, self.task):
            self._finish_writing()
            tensors = self.program.snapshot(weights_only=True)
            writer = self.checkpoints.begin(self.progress, *tensors, self.processes, is_best=True)
            writer.finish()
            if self.processes.is_first:
                self.checkpoints.keep_best(self.progress)
        self.metrics.write({"kind": "evaluation", "step": step, **metrics})
        self.line.say(f"step {step}: {split} {self.task.describe(metrics)}")

    def _until_signal(self) -> Iterator[Tuple[Batch, Arrays]]:
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
        self._finish_writing()
        if self.progress.step == self.saved:  # evaluated since, see metrics.jsonl
            if self.processes.is_first:
                self.checkpoints.keep_newest(self.progress, self.progress.best_step)
            return
        self.saved, self._written_best = self.progress.step, self.progress.best_step
        steps = min(_WRITING_STEPS, self.flags.length.checkpoint_every)
        tensors = self.program.snapshot()
        self._writer = self.checkpoints.begin(self.progress, *tensors, self.processes, steps=steps)

    def _close_writer(self) -> None:
        """Finishes the checkpoint of a run that fails, if this needs no other process."""
        if self._writer is not None and self.processes.count > 1:
            self._writer.abandon()
        elif self._writer is not None:
            with suppress(DataError):
                self._finish_writing()

    def _finish_writing(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.finish()
            if self.processes.is_first:
                self.checkpoints.keep_newest(self.progress, self._written_best)


def check_finite(
    values: Dict[str, float],
    batch: Batch,
    *,
    step: int,
    output: str,
    checkpoint: int,
) -> None:
    """Saves the batch in `output`, the run's directory, unless all values are finite.

    Raises:
      DataError: a value is infinite or NaN; names the step (from 1), the rows and the file.
    """
    if all(math.isfinite(value) for value in values.values()):
        return
    path = os.path.join(output, f"stopped-at-step-{step}.npz")
    with open(path, "wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in batch.items()})  # type: ignore
    rows, most = [int(row) for row in batch["row_index"]], 64  # the file has all of them
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    what = " and ".join(f"the {name} is {value}" for name, value in values.items())
    raise DataError(
        f"step {step}: {what}, on rows {', '.join(map(str, rows[:most]))}{more} of the split. The "
        f"batch is in {path} (for numpy.load). Check it, lower {flag('learning_rate')} or raise "
        f"{flag('warmup_steps')}; checkpoints up to step {checkpoint} are kept"
    )
