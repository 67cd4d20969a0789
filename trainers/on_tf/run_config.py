"""Flags that the TensorFlow trainers have besides those of all.

Standard library only, so that --help and refusals cost no import of TensorFlow.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from schemas.errors import UsageError
from trainers.run.flags import RunFlags, at_least


@dataclass(frozen=True, kw_only=True)
class RunConfig(RunFlags):
    """On what a run goes, when it stops, and what it leaves."""

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
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""
    export_saved_model: str | None = None
    """At the end, write the trained model as a TensorFlow SavedModel."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """auto: a TPU if there is one, else all GPUs, else the CPU."""
    cpu_devices: int = 1
    """Logical devices to split the CPU into, to try data-parallel training without GPUs."""
    jit_compile: bool = True
    """Compile the step with XLA."""
    patience: int | None = None
    """Stop after so many evaluations in a row without a better one. None: never."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        for name in ("patience", "cpu_devices"):
            at_least(self, name, 1)
        if self.cpu_devices > 1 and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--cpu_devices={self.cpu_devices} splits the CPU, and --device={self.device} "
                "does not train on it: leave one of them out"
            )
