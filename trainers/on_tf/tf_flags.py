"""Flags of the TensorFlow trainers; imports no framework, so that --help is fast."""

from dataclasses import dataclass
from typing import Literal

from schemas.errors import UsageError
from trainers.flags.run_flags import ComputeFlags, at_least, on_disk, refuse_existing


@dataclass(frozen=True)
class TfComputeFlags(ComputeFlags):
    """How the devices compute a step."""

    export_saved_model: str | None = None
    """At the end, write the weights as a TensorFlow SavedModel. These are the best weights with
    --best_by, else the last. trainers.use_model exports others later."""
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """Kind of device. auto takes a TPU if there is one, else all GPUs, else the CPU."""
    cpu_devices: int = 1
    """Number of logical devices of the CPU, to try data-parallel training without GPUs."""
    jit_compile: bool = True
    """Compile the step with XLA."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        super().__post_init__()
        at_least(self, 1, "cpu_devices")
        if self.cpu_devices > 1 and self.device not in ("auto", "cpu"):
            raise UsageError(
                f"--cpu_devices={self.cpu_devices} splits the CPU, but --device={self.device} "
                "does not train on it: remove one of the two flags"
            )
        on_disk(self, "export_saved_model")
        if self.export_saved_model is not None:
            refuse_existing(self.export_saved_model, flag="--export_saved_model")

    @property
    def exports_program(self) -> bool:
        """Whether the run writes a SavedModel."""
        return self.export_saved_model is not None
