"""Flags that the Flax trainers have besides those of all, and what a run is once they are met.

Standard library only, so that --help and refusals cost no import of JAX.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.run.flags import RunFlags, at_least, share


@dataclass(frozen=True)
class RunConfig(RunFlags):
    """How weights are changed, and in what arithmetic."""

    learning_rate: float = 5e-4
    """Highest learning rate."""
    beta2: float = 0.98
    """Of adamw and lion."""
    epsilon: float = 1e-6
    """Of adamw."""
    accumulation: int = 1
    """Microbatches a step; gradients are added up in f32."""
    dropout: float = 0.0
    """On embeddings, attention probabilities and residual branches."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, "accumulation", 1)
        share(self, "dropout")
        if self.batch_size % self.accumulation:
            raise UsageError(
                f"--batch_size={self.batch_size} is no multiple of "
                f"--accumulation={self.accumulation}: microbatches are of one size"
            )


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
