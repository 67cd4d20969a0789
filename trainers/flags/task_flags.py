"""The flags of each task. Python 3.8 syntax: tyro reads their hints.

The metric of --best_metric, how rows are masked, answers are scored and texts are continued.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Optional, Tuple

from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.trainers.flags.run_flags import TaskFlags, at_least


@dataclass(frozen=True)
class MlmFlags(TaskFlags):
    """How tokens are masked, and the metric that chooses the best weights."""

    rows: ClassVar[str] = "mlm"

    masking: Literal["auto", "static", "dynamic"] = "auto"
    """Source of the masks: static takes those in the rows, dynamic draws others on the device in
    every epoch. auto is static if the rows have masks."""
    mask_rate: Optional[float] = None
    """Share of tokens that dynamic masking masks in training. Default: the dataset's."""

    def __post_init__(self) -> None:
        """Refuses a rate outside (0, 1)."""
        super().__post_init__()
        if self.mask_rate is not None and not 0 < self.mask_rate < 1:
            raise FieldError("mask_rate", self.mask_rate, "must be between 0 and 1")


@dataclass(frozen=True)
class ClmFlags(TaskFlags):
    """The metric that chooses the best weights."""

    rows: ClassVar[str] = "clm"


@dataclass(frozen=True)
class GenerationFlags:
    """How a model continues a text."""

    max_new_tokens: int = 64
    """Maximum number of tokens to generate. An end-of-text token ends a sample earlier."""
    temperature: float = 0.0
    """Temperature of the softmax that tokens are drawn from. 0 takes the likeliest token."""
    top_k: int = 0
    """Draw from the K likeliest tokens. 0 draws from all."""
    top_p: float = 1.0
    """Draw from the likeliest tokens whose probabilities sum to P."""
    samples: int = 1
    """Number of texts to draw, in one batch, with --seed."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        at_least(self, 1, "samples", "max_new_tokens")
        if not (self.temperature == 0 or self.temperature >= 1e-30):  # float32 logits are divided
            raise UsageError(
                f"{flag('temperature', self.temperature)}: must be 0 (greedy), or at least 1e-30"
            )
        at_least(self, 0, "top_k")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"{flag('top_p', self.top_p)}: must be above 0 and at most 1")
        if self.samples > 1 and not self.temperature:
            raise UsageError(
                f"{flag('samples', self.samples)} would be the same text each: give "
                f"{flag('temperature')}, too"
            )


@dataclass(frozen=True)
class ClassificationFlags(TaskFlags):
    """The weights of classes, and the metric that chooses the best weights."""

    rows: ClassVar[str] = "classification"
    same_settings: ClassVar[Tuple[str, ...]] = ("class_weights",)

    best_metric: Literal["accuracy", "auc", "f1", "loss", "none"] = "accuracy"
    class_weights: str = "none"
    """Weight of each class in the loss: none, balanced, or a number for each class as in 1,2.5.
    balanced weighs a class by the inverse of its frequency."""


@dataclass(frozen=True)
class QaFlags(TaskFlags):
    """How answers are scored."""

    rows: ClassVar[str] = "qa"
    same_settings: ClassVar[Tuple[str, ...]] = ("score",)

    best_metric: Literal["f1", "exact", "loss", "none"] = "f1"
    """Metric of the validation split that chooses the best weights, kept besides the newest. It is
    loss with --no_score."""
    score: bool = True
    """Generate and score answers in every evaluation. --no_score computes the loss only, which is
    faster."""
    squad_version: Literal["auto", "1.1", "2.0"] = "auto"
    """Version of SQuAD's scores. auto is 2.0 if any question has no answer."""
