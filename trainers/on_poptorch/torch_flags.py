"""Flags of devices that PyTorch trains on, beside RunFlags. No framework; Python 3.8 syntax."""

from dataclasses import dataclass
from typing import Literal, Optional


@dataclass(frozen=True)
class TorchFlags:
    """Where PyTorch trains."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if PyTorch finds one, else the CPU."""


@dataclass(frozen=True)
class IpuFlags(TorchFlags):
    """How IPUs share the work."""

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
