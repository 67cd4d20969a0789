"""Settings that every TensorFlow trainer has; each adds its own by inheriting from `RunConfig`.

Standard library only, so that --help and refusals cost no import of TensorFlow.
"""

import dataclasses
import math
import shlex
from dataclasses import dataclass
from typing import ClassVar, Literal

from schemas.errors import DataError, UsageError
from trainers.metric_sinks import parse_log_to


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run reads and writes, and how it is optimized."""

    command_name: ClassVar[str] = ""
    """The module in `trainers` that takes these settings."""
    same_settings: ClassVar[tuple[str, ...]] = (
        "batch_size",
        "seed",
        "train_split",
        "clip_norm",
        "optimizer",
        "init_from",
    )
    """What a resumed run must have in common with its first part."""

    shards: str = ""
    """Directory that build_shards wrote; or several with weights, as DIR:0.7,DIR:0.3."""
    output: str | None = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    verify: bool = True
    """Check the sha256 of every file of the set before the first step."""
    init_from: str | None = None
    """A Hugging Face directory (config.json, model.safetensors) to take the weights from."""
    export: str | None = None
    """Write the trained weights as such a directory, with the tokenizer."""
    export_saved_model: str | None = None
    """Write the trained model as a TensorFlow SavedModel."""

    steps: int | None = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given."""
    stop_after: int | None = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    batch_size: int = 32
    """Rows a step, over all devices."""
    optimizer: Literal["adamw", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """Keras' own."""
    learning_rate: float = 5e-5
    """Highest learning rate."""
    warmup_steps: int | None = None
    """Linear warm-up, then linear decay to 0. None: a tenth of the steps."""
    weight_decay: float = 0.01
    """On matrices only; of adamw, adafactor and lion."""
    beta1: float = 0.9
    """Of adamw and lion; the momentum of sgd_momentum."""
    beta2: float = 0.999
    """Of adamw and lion."""
    epsilon: float = 1e-8
    """Of adamw."""
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 does not clip."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """auto: a TPU if there is one, else all GPUs, else the CPU."""
    cpu_devices: int = 1
    """Logical devices to split the CPU into, to try data-parallel training without GPUs."""
    jit_compile: bool = True
    """Compile the step with XLA."""
    seed: int = 0
    """Of new weights, row order and dropout."""

    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on, if the set has it."""
    evaluate_every: int = 500
    """Steps between evaluations; there is one at the end in any case."""
    checkpoint_every: int = 500
    """Steps between checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep; the best on validation is kept besides."""
    patience: int | None = None
    """Stop after so many evaluations in a row without a better one. None: never."""
    log_to: str = ""
    """Where measurements go besides metrics.jsonl: tensorboard, wandb, or both with a comma."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        positive = ("batch_size", "evaluate_every", "checkpoint_every", "keep_checkpoints")
        for name in (*positive, "steps", "stop_after", "patience", "cpu_devices"):
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
        if self.cpu_devices > 1 and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--cpu_devices={self.cpu_devices} splits the CPU, and --device={self.device} "
                "does not train on it: leave one of them out"
            )
        parse_log_to(self.log_to)

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

    def command(self, **changes: object) -> str:
        """The command line that gives these settings, with some of them changed."""
        words = ["python", "-m", f"trainers.{self.command_name}"]
        for field in dataclasses.fields(self):
            value = changes.get(field.name, getattr(self, field.name))
            if value == field.default or value is None:
                continue
            if isinstance(value, bool):
                words.append(f"--{field.name}" if value else f"--no_{field.name}")
            else:
                words.append(f"--{field.name}={value}")
        return shlex.join(words)


def at_least(config: object, name: str, least: int) -> None:
    """Refuses a smaller value of a setting; None passes."""
    value = getattr(config, name)
    if value is not None and value < least:
        raise UsageError(f"--{name}={value}: must be at least {least}")


def share(config: object, name: str) -> None:
    """Refuses what is no share from 0 to below 1; None passes."""
    value = getattr(config, name)
    if value is not None and not 0 <= value < 1:
        raise UsageError(f"--{name}={value}: a share from 0 to below 1")
