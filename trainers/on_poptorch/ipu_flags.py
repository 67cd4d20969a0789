"""Flags of the classifier on IPUs; no framework, so that --help imports none."""

from dataclasses import dataclass
from typing import Literal, Optional

from trainers.flags.run_flags import ComputeFlags, above_0, at_least


@dataclass(frozen=True)
class IpuComputeFlags(ComputeFlags):
    """How a step is computed."""

    device: Literal["auto", "ipu", "cpu", "cuda"] = "auto"
    """auto: IPUs if PopTorch finds them, else a GPU, else the CPU."""
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Of the computation. auto: float16 on IPUs, bfloat16 on a GPU, float32 on the CPU."""
    blocks_per_ipu: str = "auto"
    """Blocks on each IPU: the embedding, then each layer. auto: 1+4+4+4 for 12 layers."""
    replication: int = 1
    """Copies of the model, each on its own IPUs."""
    device_iterations: int = 1
    """Steps that IPUs run at a time; the learning rate is that of the first of them."""
    loss_scaling: float = 128.0
    """Of gradients in float16, on IPUs."""
    executable_cache: Optional[str] = None
    """Directory of compiled IPU programs, to compile each only once."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, 1, "replication", "device_iterations")
        above_0(self, "loss_scaling")
