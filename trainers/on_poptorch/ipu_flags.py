"""Flags of the classifier on IPUs; imports no framework, so that --help is fast."""

from dataclasses import dataclass
from typing import Literal, Optional

from trainers.flags.run_flags import ComputeFlags, above_0, at_least


@dataclass(frozen=True)
class IpuComputeFlags(ComputeFlags):
    """How the devices compute a step."""

    device: Literal["auto", "ipu", "cpu", "cuda"] = "auto"
    """Kind of device. auto takes IPUs if PopTorch finds them, else a GPU, else the CPU."""
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Precision of the computation; checkpoints stay float32. auto is float16 on IPUs, bfloat16 on
    GPUs and float32 on CPUs."""
    blocks_per_ipu: str = "auto"
    """Number of blocks on each IPU, where the first block is the embedding and each layer is one
    more. auto is 1+4+4+4 for 12 layers."""
    replication: int = 1
    """Number of copies of the model, each on its own IPUs."""
    device_iterations: int = 1
    """Steps that the IPUs run in one call. All of them use the learning rate of the first."""
    loss_scaling: float = 128.0
    """Loss scale for float16 on IPUs."""
    executable_cache: Optional[str] = None
    """Directory of compiled IPU programs. The next run reuses them instead of compiling."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        super().__post_init__()
        at_least(self, 1, "replication", "device_iterations")
        above_0(self, "loss_scaling")
