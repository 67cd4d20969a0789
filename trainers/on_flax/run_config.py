"""Flags that every Flax trainer has, and what a run is once they have met the contract.

Standard library only, so that --help and refusals cost no import of JAX.
"""

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from trainers.metric_sinks import parse_log_to
from trainers.shards_flag import shards_name


@dataclass(frozen=True)
class RunConfig:
    """Where data comes from and results go, and how weights are changed in between."""

    entry: ClassVar[str]
    """Name of the trainer: flax_mlm."""
    task: ClassVar[str]
    """Task of the rows that it takes: mlm."""

    shards: str
    """Directory that build_shards wrote; or several with weights, as DIR:0.7,DIR:0.3."""
    output: str | None = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    verify: bool = True
    """Check the sha256 of every file of the set before the first step."""
    init_from: str | None = None
    """Begin with published weights: a directory of config.json and model.safetensors."""
    export: str | None = None
    """At the end, write the weights as a directory that transformers opens."""
    log_to: str = ""
    """Besides metrics.jsonl: tensorboard, wandb, or both as tensorboard,wandb."""

    steps: int | None = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given; of a mixture, over all its rows."""
    stop_after: int | None = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    batch_size: int = 32
    """Rows a step, over all devices and microbatches."""
    accumulation: int = 1
    """Microbatches a step; gradients are added up in f32."""
    optimizer: Literal["adamw", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """By optax. lion wants a learning rate some 5 times lower, sgd_momentum a higher one."""
    learning_rate: float = 5e-4
    """Highest learning rate."""
    warmup_steps: int | None = None
    """Linear warm-up, then linear decay to 0. None: a tenth of the steps."""
    weight_decay: float = 0.01
    """Times the learning rate, on matrices only."""
    beta1: float = 0.9
    """AdamW's and lion's; the momentum of sgd_momentum."""
    beta2: float = 0.98
    """AdamW's and lion's."""
    epsilon: float = 1e-6
    """AdamW's."""
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 does not clip."""
    dropout: float = 0.0
    """On embeddings, attention probabilities and residual branches."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""
    seed: int = 0
    """Of weights, row order, dynamic masks and dropout."""

    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on, if the set has it."""
    evaluate_every: int = 500
    """Steps between evaluations; there is one at the end in any case."""
    checkpoint_every: int = 500
    """Steps between checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        positive = ("batch_size", "accumulation", "evaluate_every", "checkpoint_every")
        for name in (*positive, "keep_checkpoints", "steps", "stop_after"):
            at_least(self, name, 1)
        for name in ("epochs", "learning_rate", "epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name}={getattr(self, name)}: must be above 0")
        for name in ("warmup_steps", "weight_decay", "clip_norm", "seed"):
            at_least(self, name, 0)
        if self.seed >= 1 << 32:
            raise UsageError(f"--seed={self.seed}: must be below 2**32")
        for name in ("beta1", "beta2", "dropout"):
            share(self, name)
        if self.batch_size % self.accumulation:
            raise UsageError(
                f"--batch_size={self.batch_size} is no multiple of "
                f"--accumulation={self.accumulation}: microbatches are of one size"
            )
        parse_log_to(self.log_to)

    def command(self, **changes: object) -> str:
        """The command line that gives these settings, with some of them changed."""
        words = ["python", "-m", f"trainers.{self.entry}"]
        for field in dataclasses.fields(self):
            value = changes.get(field.name, getattr(self, field.name))
            if value == field.default or value is None:
                continue
            if isinstance(value, bool):
                words.append(f"--{field.name}" if value else f"--no_{field.name}")
            else:
                words.append(f"--{field.name}={value}")
        return shlex.join(words)


@dataclass(frozen=True)
class Plan:
    """A run, once the settings have met the contract.

    Attributes:
      config: the settings.
      schema: the contract.
      model: the model's dimensions, a dataclass.
      steps: optimizer steps of the whole schedule.
      output: the run's directory.
    """

    config: RunConfig
    schema: Schema
    model: Any
    steps: int
    output: Path


def at_least(config: object, name: str, least: int) -> None:
    """Refuses a flag below `least`; None passes."""
    value = getattr(config, name)
    if value is not None and value < least:
        raise UsageError(f"--{name}={value}: must be at least {least}")


def share(config: object, name: str) -> None:
    """Refuses a flag that is no share from 0 to below 1."""
    value = getattr(config, name)
    if not 0 <= value < 1:
        raise UsageError(f"--{name}={value}: a share from 0 to below 1")


def check_task(config: Any, schema: Schema) -> None:
    """Refuses a set of another task than that of a configuration with `task` and `shards`.

    Raises:
      UsageError: names both tasks.
    """
    if schema.task != config.task:
        raise UsageError(
            f"{config.shards} holds rows for task {schema.task!r}; this trainer takes "
            f"{config.task!r}. Build a set with build_shards --task={config.task}, or use that "
            "task's trainer"
        )


def planned_steps(config: RunConfig, train_rows: int) -> int:
    """Steps of the whole schedule.

    Raises:
      DataError: there is nothing to train on.
    """
    if not train_rows:
        raise DataError(
            f"{config.shards}: split {config.train_split!r} has no rows; build the set from more "
            "text or with other --splits"
        )
    return config.steps or math.ceil(config.epochs * train_rows / config.batch_size)


def output_directory(config: RunConfig, model: str) -> Path:
    """Where a run goes: `--output`, or a name made of the set's and the model's."""
    if config.init_from is not None:
        model = os.path.basename(os.path.realpath(config.init_from))
    return Path(config.output or Path("runs") / f"{shards_name(config.shards)}-{model}")
