"""Flags that only the TensorFlow trainers have; no framework, so that --help imports none."""

from dataclasses import dataclass
from typing import Literal

from schemas.errors import UsageError
from trainers.flags.run_flags import ComputeFlags, at_least, on_disk, refuse_existing


@dataclass(frozen=True)
class TfComputeFlags(ComputeFlags):
    """How a step is computed, and what a run leaves for TensorFlow."""

    export_saved_model: str | None = None
    """At the end, write the weights as a TensorFlow SavedModel: the best where --best_by keeps
    them, else the last. trainers.use_model exports others, and later."""
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """auto: a TPU if there is one, else all GPUs, else the CPU."""
    cpu_devices: int = 1
    """Logical devices to split the CPU into, to try data-parallel training without GPUs."""
    jit_compile: bool = True
    """Compile the step with XLA."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, 1, "cpu_devices")
        if self.cpu_devices > 1 and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--cpu_devices={self.cpu_devices} splits the CPU, and --device={self.device} "
                "does not train on it: leave one of them out"
            )
        on_disk(self, "export_saved_model")
        if self.export_saved_model is not None:
            refuse_existing(self.export_saved_model, flag="--export_saved_model")

    @property
    def exports_program(self) -> bool:
        """Whether a SavedModel is to be written."""
        return self.export_saved_model is not None
