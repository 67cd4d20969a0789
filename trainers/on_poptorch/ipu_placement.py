"""Which rows and blocks of a model are on which IPU.

A batch of B rows is A * R microbatches of B / (A * R) rows: each of R replicas accumulates over A.
IPUs run D such steps in one call.
"""

from __future__ import annotations

from dataclasses import dataclass

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.framework_flags import IpuComputeFlags

LAYER_IPUS = 3  # besides the one with the embedding: 12 layers are 1 + 4 + 4 + 4


@dataclass(frozen=True)
class Placement:
    """Rows and blocks on IPUs."""

    precision: str  # float32 or float16
    blocks: tuple[int, ...]  # number on each IPU: (1, 4, 4, 4)
    microbatch: int  # rows
    accumulation: int  # A
    replication: int  # R
    device_iterations: int  # D

    @property
    def batch_size(self) -> int:
        """B, rows of a step."""
        return self.microbatch * self.accumulation * self.replication

    @property
    def call_rows(self) -> int:
        """Rows of a call."""
        return self.batch_size * self.device_iterations

    @property
    def description(self) -> str:
        """One line for the log."""
        blocks = " + ".join(map(str, self.blocks))
        return (
            f"{len(self.blocks) * self.replication} IPUs, {self.precision}: blocks {blocks}, "
            f"{self.replication} replicas, {self.accumulation} microbatches of "
            f"{self.microbatch} rows a replica and step, {self.device_iterations} steps a call"
        )


def parse_blocks(text: str, layers: int) -> tuple[int, ...]:
    """`--blocks_per_ipu`: "1+4+4+4" -> (1, 4, 4, 4); "auto" for 12 layers gives the same.

    auto puts the embedding on the first of four IPUs and distributes the layers evenly over the
    others; a model of fewer than three layers is on one IPU.

    Raises:
      UsageError: the numbers do not sum to all blocks, or the IPUs are not a power of two.
    """
    if text == "auto":
        if layers < LAYER_IPUS:
            return (1 + layers,)
        shares = [(layers + LAYER_IPUS - 1 - ipu) // LAYER_IPUS for ipu in range(LAYER_IPUS)]
        return (1, *shares)
    try:
        blocks = tuple(int(part) for part in text.split("+"))
    except ValueError:
        raise UsageError(
            f"{flag('blocks_per_ipu', text)}: give numbers of blocks joined by +, such as 1+4+4+4"
        ) from None
    if min(blocks) < 1 or sum(blocks) != 1 + layers:
        raise UsageError(
            f"{flag('blocks_per_ipu', text)} places {sum(blocks)} blocks, but the model has "
            f"{1 + layers}, the embedding and {layers} layers: give numbers above 0 that sum to "
            f"{1 + layers}"
        )
    if len(blocks) & (len(blocks) - 1):
        raise UsageError(
            f"{flag('blocks_per_ipu', text)} needs {len(blocks)} IPUs, but PopTorch reserves a "
            "power of two: give 1, 2, 4, 8 ... numbers"
        )
    return blocks


def place_on_ipus(flags: IpuComputeFlags, *, layers: int) -> Placement:
    """The placement of rows and blocks by the flags.

    Raises:
      UsageError: the flags do not fit together; names the values and the remedy.
    """
    if flags.precision == "bfloat16":
        raise UsageError(
            f"{flag('precision', 'bfloat16')}: IPUs support float16 and float32; give one of them"
        )
    blocks = parse_blocks(flags.blocks_per_ipu, layers)
    if flags.batch_size % flags.replication:
        raise UsageError(
            f"{flag('batch_size', flags.batch_size)} is not a multiple of "
            f"{flag('replication', flags.replication)}: replicas take equal shares"
        )
    share = flags.batch_size // flags.replication
    accumulation = _accumulation(flags, share, ipus=len(blocks))
    return Placement(
        precision="float16" if flags.precision == "auto" else flags.precision,
        blocks=blocks,
        microbatch=share // accumulation,
        accumulation=accumulation,
        replication=flags.replication,
        device_iterations=flags.device_iterations,
    )


def _accumulation(flags: IpuComputeFlags, share: int, *, ipus: int) -> int:
    """Microbatches of a replica's share: the flag's value, or as few as possible."""
    # A pipeline over n IPUs has n forward and n - 1 backward stages, each with a microbatch.
    stages, accumulation = 2 * ipus - 1, flags.gradient_accumulation_steps
    if accumulation is None:
        fitting = [count for count in range(stages, share + 1) if share % count == 0]
        accumulation = fitting[0] if fitting else stages
    if share % accumulation:
        raise UsageError(
            f"{flag('batch_size', flags.batch_size)} cannot be cut into "
            f"{flag('gradient_accumulation_steps', accumulation)} microbatches for each "
            f"of {flags.replication} replicas: give a batch size that is a multiple of "
            f"{accumulation * flags.replication}"
        )
    if accumulation < stages:
        raise UsageError(
            f"{flag('gradient_accumulation_steps', accumulation)} does not fill the pipeline: "
            f"{ipus} IPUs have {stages} forward and backward stages, and each needs a microbatch: "
            f"give at least {stages}, or fewer IPUs with {flag('blocks_per_ipu')}"
        )
    return accumulation
