"""The reports of training steps: their metrics, their speed, and the end by a loss of NaN."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Mapping

import numpy as np

from textmill.schemas.errors import DataError, flag
from textmill.trainers.data.batches import Batch
from textmill.trainers.data.stages import Stages
from textmill.trainers.models.plan_model import training_flops
from textmill.trainers.run.journal import ProgressLine, Rate, Rates, duration
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import TOKENS, Program
from textmill.trainers.run.training_task import TrainingTask


class StepReports:
    """Makes the lines of metrics.jsonl, and shows steps on the progress line.

    Attributes:
      rates: the speed of the steps since `begin`.
      began: the time of `begin`.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        task: TrainingTask,
        program: Program,
        line: ProgressLine,
        *,
        steps: range,
        train_rows: int,
        stages: Stages | None = None,
    ):
        """Takes the numbers of the steps of this run, and the rows of the training split."""
        self._program, self._line, self._steps, self._stages = program, line, steps, stages
        self._counts, self._train_rows = task.counts, train_rows
        self._batch_size = plan.flags.compute.batch_size
        length = plan.schema.max_length
        self._flops = training_flops(plan.model, length, task.head_share)  # of a token
        self.begin()

    def begin(self) -> None:
        """Starts the clock."""
        self.rates, self.began = Rates(), time.perf_counter()

    def metrics(self, step: int, values: dict[str, float], rows: Batch) -> dict[str, Any]:
        """The line of a step in metrics.jsonl, which it also shows.

        `values` are those of `Program.train`. `rows` are the step's; if several processes have some
        each, `values` has the tokens of all.
        """
        if "counted" in values:
            values[self._counts] = values.pop("counted")
        tokens = int(values.pop(TOKENS, np.count_nonzero(rows["segment_ids"])))
        rate = self.rates.count_step(tokens)
        speeds, epoch = self._speeds(rate), step * self._batch_size / self._train_rows
        self._show(step, epoch, values["loss"], rate, speeds)
        line: dict[str, Any] = {"kind": "train", "step": step, **self.stage_of(step)}
        return {**line, "epoch": round(epoch, 4), **values, "tokens": tokens, **speeds}

    def stage_of(self, step: int) -> dict[str, int]:
        """The stage of a step in metrics.jsonl, if the run has stages: {"stage": 2}."""
        return {} if self._stages is None else {"stage": self._stages.number_at(step)}

    def _show(
        self, step: int, epoch: float, loss: float, rate: Rate, speeds: Mapping[str, float]
    ) -> None:
        """The step, its speed and the time left: "12,340 tokens/s (3,085 a device, MFU 41.2%)"."""
        details = []
        if self._program.devices > 1:
            details.append(f"{speeds['tokens_per_second_per_device']:,.0f} a device")
        if "mfu" in speeds:
            details.append(f"MFU {speeds['mfu']:.1%}")
        speed = f"{speeds['tokens_per_second']:,.0f} tokens/s"
        speed += f" ({', '.join(details)})" if details else ""
        first, last = self._steps[0], self._steps[-1]
        left = (time.perf_counter() - self.began) / (step - first + 1) * (last - step)
        self._line.update(
            f"step {step}/{last}  epoch {epoch:.2f}  loss {loss:.4f}  {1 / rate.steps:.3g} s/step  "
            f"{speed}  waiting for data {rate.waiting:.1%}  {duration(left)} left"
        )

    def _speeds(self, rate: Rate) -> dict[str, float]:
        """The speed in metrics.jsonl; `mfu` is the share of the devices' peak that is used."""
        per_device = rate.tokens / self._program.devices
        speeds = {
            "seconds_per_step": round(1 / rate.steps, 6),
            "tokens_per_second": round(rate.tokens, 1),
            "tokens_per_second_per_device": round(per_device, 1),
            "flops_per_token": self._flops,
            "waiting": round(rate.waiting, 4),
        }
        if self._program.peak is not None:
            speeds["mfu"] = round(per_device * self._flops / self._program.peak, 4)
        return speeds


def losses_in(values: Mapping[str, float]) -> dict[str, float]:
    """The values that must be finite: {"loss": 10.8, "gradient norm": 1.2}."""
    names = [name for name in ("loss", "gradient_norm") if name in values]
    return {name.replace("_", " "): values[name] for name in names}


def are_finite(losses: Mapping[str, float]) -> bool:
    """Whether training can continue with these."""
    return all(map(math.isfinite, losses.values()))


def stop_at(
    step: int, losses: Mapping[str, float], batch: Batch, *, output: str, checkpoint: int
) -> DataError:
    """The error of a step (from 1) with an infinite loss; saves its batch in the run's directory.

    It names the step, the rows and the file.
    """
    path = os.path.join(output, f"stopped-at-step-{step}.npz")
    with open(path, "wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in batch.items()})  # type: ignore
    rows, most = [int(row) for row in batch["row_index"]], 64  # the file has all of them
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    what = " and ".join(f"the {name} is {value}" for name, value in losses.items())
    return DataError(
        f"step {step}: {what}, on rows {', '.join(map(str, rows[:most]))}{more} of the split. The "
        f"batch is in {path} (for numpy.load). Check it, lower {flag('learning_rate')} or raise "
        f"{flag('warmup_steps')}; checkpoints up to step {checkpoint} are kept"
    )
