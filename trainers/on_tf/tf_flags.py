"""Flags that only the TensorFlow trainers have; no framework, so that --help imports none."""

from dataclasses import dataclass
from typing import Literal

from schemas.errors import UsageError
from trainers.data.flag_values import at_least, on_disk
from trainers.models.hf_files import refuse_existing
from trainers.run.flags import RunFlags


@dataclass(frozen=True)
class TfFlags(RunFlags):
    """On which devices a run goes, and what it leaves for TensorFlow."""

    export_saved_model: str | None = None
    """Write the weights as a TensorFlow SavedModel: at the end of a run, or without --shards those
    of the run in --output. --checkpoint says which."""
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """auto: a TPU if there is one, else all GPUs, else the CPU."""
    cpu_devices: int = 1
    """Logical devices to split the CPU into, to try data-parallel training without GPUs."""
    jit_compile: bool = True
    """Compile the step with XLA."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, "cpu_devices", 1)
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
        """Whether the program writes files of its framework's own."""
        return self.export_saved_model is not None

    @property
    def uses_run(self) -> bool:
        """Whether something is asked of a run that can be done without a set."""
        return super().uses_run or self.exports_program
