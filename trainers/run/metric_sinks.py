"""Where the metrics of a run go: metrics.jsonl, TensorBoard, Weights & Biases.

tensorboardX and wandb are imported only for --log_to.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any, Callable, Mapping

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.command_line import flag_values
from textmill.trainers.flags.run_flags import parse_log_to
from textmill.trainers.run.journal import METRICS, MetricsFile, MetricSink
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import Processes


def open_metrics(plan: TrainingPlan, start_step: int, processes: Processes) -> MetricsFile:
    """Opens the metrics of a run that continues after `start_step`; the first process writes."""
    if not processes.is_first:
        return MetricsFile(os.devnull)
    sinks = open_sinks(
        plan.flags.files.log_to,
        str(plan.output),
        start_step=start_step,
        settings={**flag_values(plan.flags), "model": asdict(plan.model)},
    )
    return MetricsFile(str(plan.output / METRICS), also=sinks)


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Tags to numbers of a line: {"kind": "train", "loss": 2.0} -> {"train/loss": 2.0}."""
    return {
        f"{metrics['kind']}/{name}": float(value)
        for name, value in metrics.items()
        if name not in ("kind", "step") and isinstance(value, Real) and not isinstance(value, bool)
    }


def _open_tensorboard(output: str, start_step: int) -> MetricSink:
    """Event files in OUTPUT/tensorboard; `tensorboard --logdir=OUTPUT` shows them.

    A new one voids metrics after `start_step`.
    """
    # An extra, needed only for --log_to.
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(
        os.path.join(output, "tensorboard"),
        purge_step=start_step + 1 if start_step else None,
        filename_suffix=f".{start_step}",  # else two files of one second share a name
    )

    def write(metrics: Mapping[str, Any]) -> None:
        for tag, value in scalars(metrics).items():
            writer.add_scalar(tag, value, metrics["step"])

    return MetricSink(write, writer.close)


def _open_wandb(output: str, settings: Mapping[str, Any]) -> MetricSink:
    """A run of Weights & Biases; each output directory has one, also after it was resumed.

    WANDB_MODE=offline needs no account.

    Raises:
      UsageError: the service cannot be reached, or the user is not logged in.
    """
    # An extra, needed only for --log_to.
    import wandb

    id_file = Path(output, "wandb_id")
    if not id_file.exists():
        id_file.write_text(uuid.uuid4().hex[:8] + "\n", encoding="utf-8")
    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "textmill"),
            name=os.path.basename(output),
            dir=output,
            id=id_file.read_text(encoding="utf-8").strip(),
            resume="allow",
            config=dict(settings),
        )
    except wandb.Error as error:
        raise UsageError(
            f"{flag('log_to', 'wandb')}: {error}. Log in with `wandb login`, or keep the run here "
            "with WANDB_MODE=offline and send it later with `wandb sync`"
        ) from error
    # Our own step: wandb's cannot go back, but that of a resumed run does.
    run.define_metric("*", step_metric="step")
    return MetricSink(lambda line: run.log(dict(scalars(line), step=line["step"])), run.finish)


def open_sinks(
    log_to: str, output: str, *, start_step: int, settings: Mapping[str, Any]
) -> list[MetricSink]:
    """Opens the sinks of `--log_to` for a run in `output` that continues after `start_step`.

    Weights & Biases shows the settings.
    """
    openers: dict[str, Callable[[], MetricSink]] = {
        "tensorboard": lambda: _open_tensorboard(output, start_step),
        "wandb": lambda: _open_wandb(output, settings),
    }
    return [openers[sink]() for sink in parse_log_to(log_to)]
