"""The flags of each framework: how its devices compute a step, and which processes train together.

Imports no framework, so that --help is fast. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import Literal, Optional

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.run_flags import (
    ComputeFlags,
    RunFlags,
    above_0,
    at_least,
    on_disk,
    refuse_existing,
)


@dataclass(frozen=True)
class FlaxComputeFlags(ComputeFlags):
    """How the devices compute a step."""

    fsdp: bool = False
    """Cut weights and the optimizer's state over all devices, instead of a copy on each. A step
    needs less memory and more communication."""
    profile: Optional[int] = None
    """Trace this many steps, after the first 3, into OUTPUT/profile. Default: none."""
    attention: Literal["auto", "dense", "blockwise", "cudnn", "splash"] = "auto"
    """Kernel of attention. dense holds the scores of all tokens, the memory of the others grows
    linearly with the length of the rows. auto is splash on TPUs, cudnn on NVIDIA GPUs, and
    elsewhere blockwise for rows of more than 256 tokens; with dropout, always dense."""
    remat: bool = False
    """Compute each layer again in the backward pass, instead of keeping its activations."""
    loss_chunks: Optional[int] = None
    """Number of pieces of a row whose logits are computed one after another. Default: as few as
    keep them below 2**26 numbers on a CPU and 2**28 on a GPU or TPU."""

    def __post_init__(self) -> None:
        """Refuses counts below 1."""
        super().__post_init__()
        at_least(self, 1, "profile", "loss_chunks")


@dataclass(frozen=True)
class ProcessFlags:
    """The processes that train together, on one or several hosts."""

    coordinator_address: Optional[str] = None
    """HOST:PORT of the first process, on which all processes meet."""
    num_processes: Optional[str] = None
    """Number of processes, each started with the same flags on devices of its own. auto asks Slurm,
    Open MPI or the TPU pod for these three flags. Default: one process."""
    process_id: Optional[int] = None
    """Number of this process, from 0."""

    def __post_init__(self) -> None:
        """Refuses flags that do not go together."""
        number, others = self.num_processes, (self.coordinator_address, self.process_id)
        if number in (None, "auto"):
            if others != (None, None):
                given = "process_id" if others[0] is None else "coordinator_address"
                raise UsageError(
                    f"{flag(given)} needs {flag('num_processes', 'N')}, the number of all processes"
                )
            return
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"{flag('num_processes', number)}: give a number from 1 on, or auto")
        if self.coordinator_address is None or self.process_id is None:
            raise UsageError(
                f"{flag('num_processes', number)} needs {flag('coordinator_address', 'HOST:PORT')} "
                f"and {flag('process_id')}; {flag('num_processes', 'auto')} finds them under "
                "Slurm, Open MPI and on TPU pods"
            )
        if not 0 <= self.process_id < int(number):
            raise UsageError(
                f"{flag('process_id', self.process_id)}: must be from 0 to {int(number) - 1}, "
                f"below {flag('num_processes', number)}"
            )
        host, _, port = self.coordinator_address.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise UsageError(
                f"{flag('coordinator_address', self.coordinator_address)}: give HOST:PORT, such as "
                "10.0.0.1:1234"
            )

    @property
    def count(self) -> Optional[int]:
        """The number of processes; None for auto."""
        return None if self.num_processes in (None, "auto") else int(self.num_processes)


@dataclass(frozen=True)
class FlaxRunFlags(RunFlags):
    """Trains on a dataset, in Flax NNX."""

    compute: FlaxComputeFlags = FlaxComputeFlags()
    processes: ProcessFlags = ProcessFlags()


@dataclass(frozen=True)
class TfComputeFlags(ComputeFlags):
    """How the devices compute a step."""

    export_saved_model: Optional[str] = None
    """At the end, write the weights as a TensorFlow SavedModel. These are the best weights with
    --best_metric, else the last. trainers.export_model exports others later."""
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
                f"{flag('cpu_devices', self.cpu_devices)} splits the CPU, but "
                f"{flag('device', self.device)} does not train on it: remove one of the two flags"
            )
        on_disk(self, "export_saved_model")
        if self.export_saved_model is not None:
            refuse_existing(self.export_saved_model, field="export_saved_model")

    @property
    def exports_program(self) -> bool:
        """Whether the run writes a SavedModel."""
        return self.export_saved_model is not None


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
    torch_compile: bool = False
    """Compile the model with torch.compile, on a CPU or GPU. A run starts some 20 s later, and its
    steps are faster."""

    def __post_init__(self) -> None:
        """Refuses values that make no sense."""
        super().__post_init__()
        at_least(self, 1, "replication", "device_iterations")
        above_0(self, "loss_scaling")
