"""Flags that every trainer has, whatever its framework, and the checks that go with them.

Standard library only, so that --help and refusals cost no import of a framework.
"""

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Optional

from schemas.errors import DataError, UsageError
from schemas.set_cache import CACHE_GIGABYTES, Cache, default_directory
from schemas.sidecar import Schema
from schemas.store import is_url
from trainers.data.shards_flag import shards_name
from trainers.run.metric_sinks import parse_log_to


@dataclass(frozen=True)
class RunFlags:
    """Where data comes from and results go, and how weights are changed in between."""

    entry: ClassVar[str]
    """Name of the trainer: flax_mlm."""
    task: ClassVar[str]
    """Task of the rows that it takes: mlm."""

    shards: str
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""
    output: Optional[str] = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    verify: bool = True
    """Check the sha256 of every file of the set before it is read."""
    follow_links: bool = False
    """Open files of the set that are links out of its directory, too."""
    cache_dir: Optional[str] = None
    """Where files of sets on gs:// or s3:// are kept. None: textmill in ~/.cache."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """That all sets in it may take; the least recently used files go first."""
    init_from: Optional[str] = None
    """Begin with published weights: a directory of config.json and model.safetensors."""
    export: Optional[str] = None
    """At the end, write the weights as a directory that transformers opens."""
    log_to: str = ""
    """Besides metrics.jsonl: tensorboard, wandb, or both as tensorboard,wandb."""

    steps: Optional[int] = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given; of a mixture, over all its rows."""
    stop_after: Optional[int] = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    batch_size: int = 32
    """Rows a step, over all devices and microbatches."""
    optimizer: Literal["adamw", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """The framework's own. lion wants a learning rate some 5 times lower, sgd_momentum a higher."""
    learning_rate: float = 5e-5
    """Highest learning rate."""
    warmup_steps: Optional[int] = None
    """Linear warm-up, then linear decay to 0. None: a tenth of the steps."""
    weight_decay: float = 0.01
    """Times the learning rate, on matrices only."""
    beta1: float = 0.9
    """Of adamw and lion; the momentum of sgd_momentum."""
    beta2: float = 0.999
    """Of adamw and lion."""
    epsilon: float = 1e-8
    """Of adamw."""
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 does not clip."""
    seed: int = 0
    """Of new weights, row order, dropout and masks made while training."""

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
        counts = ("batch_size", "evaluate_every", "checkpoint_every", "keep_checkpoints")
        for name in (*counts, "steps", "stop_after"):
            at_least(self, name, 1)
        for name in ("epochs", "learning_rate", "epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name}={getattr(self, name)}: must be above 0")
        for name in ("warmup_steps", "weight_decay", "clip_norm", "seed"):
            at_least(self, name, 0)
        if self.seed >= 1 << 31:
            raise UsageError(f"--seed={self.seed}: must be below 2**31")
        for name in ("beta1", "beta2"):
            share(self, name)
        parse_log_to(self.log_to)
        for name in ("output", "init_from", "export", "cache_dir"):
            on_disk(self, name)
        _ = self.cache  # refuses a size that cannot be

    @property
    def cache(self) -> Cache:
        """For files of sets on stores."""
        return Cache(self.cache_dir or default_directory(), self.cache_gigabytes)

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
        return " ".join(shlex.quote(word) for word in words)

    def planned_steps(self, train_rows: int) -> int:
        """Optimizer steps of the whole schedule.

        Raises:
          DataError: there is nothing to train on.
        """
        if not train_rows:
            raise DataError(
                f"{self.shards}: split {self.train_split!r} has no rows; build the set from more "
                "text or with other --splits"
            )
        return self.steps or math.ceil(self.epochs * train_rows / self.batch_size)

    def output_directory(self, model: str) -> Path:
        """Where a run goes: `--output`, or a name made of the set's and the model's."""
        if self.init_from is not None:
            model = os.path.basename(os.path.realpath(self.init_from))
        return Path(self.output or Path("runs") / f"{shards_name(self.shards)}-{model}")


def at_least(config: object, name: str, least: int) -> None:
    """Refuses a flag below `least`; None passes."""
    value = getattr(config, name)
    if value is not None and value < least:
        raise UsageError(f"--{name}={value}: must be at least {least}")


def on_disk(config: object, name: str) -> None:
    """Refuses a URL where a directory is meant; None passes."""
    value = getattr(config, name)
    if value is not None and is_url(value):
        raise UsageError(
            f"--{name}={value}: give a directory on this machine; only --shards may be on a store"
        )


def share(config: object, name: str) -> None:
    """Refuses a flag that is no share from 0 to below 1; None passes."""
    value = getattr(config, name)
    if value is not None and not 0 <= value < 1:
        raise UsageError(f"--{name}={value}: a share from 0 to below 1")


def check_task(task: str, schema: Schema, place: str) -> None:
    """Refuses a set of another task than the trainer's.

    Raises:
      UsageError: names the set and both tasks.
    """
    if schema.task != task:
        raise UsageError(
            f"{place} holds rows for task {schema.task!r}; this trainer takes {task!r}. Build a "
            f"set with build_shards --task={task}, or use that task's trainer"
        )
