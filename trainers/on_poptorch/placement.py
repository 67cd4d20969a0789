"""How a step's rows and the model's blocks are shared out over IPUs. No framework.

A batch of B rows is A * R microbatches of B / (A * R) rows: A are accumulated one after another, R
replicas of the model take theirs at once. An IPU runs D such steps before it answers the host.
Blocks are the embedding (with ELECTRA's projection), then each encoder layer; the classifier lies
with the last of them.
"""

from dataclasses import dataclass
from typing import Any, Tuple

from schemas.errors import UsageError

LAYER_IPUS = 3  # beside the one with the embedding: 12 layers make 1 + 4 + 4 + 4


@dataclass(frozen=True)
class Placement:
    """Rows and blocks on IPUs."""

    precision: str  # float32 or float16
    blocks: Tuple[int, ...]  # how many on each IPU in turn: (1, 4, 4, 4)
    microbatch: int  # rows that go through the model at once
    accumulation: int  # A
    replication: int  # R
    device_iterations: int  # D

    @property
    def batch_size(self) -> int:
        """B, rows a step."""
        return self.microbatch * self.accumulation * self.replication

    @property
    def call_rows(self) -> int:
        """Rows that the IPUs take at once."""
        return self.batch_size * self.device_iterations

    @property
    def description(self) -> str:
        """One line for people."""
        blocks = " + ".join(map(str, self.blocks))
        return (
            f"{len(self.blocks) * self.replication} IPUs, {self.precision}: blocks {blocks}, "
            f"{self.replication} replicas, {self.accumulation} microbatches of "
            f"{self.microbatch} rows a replica and step, {self.device_iterations} steps a call"
        )


def parse_blocks(text: str, layers: int) -> Tuple[int, ...]:
    """`--blocks_per_ipu`: "1+4+4+4" -> (1, 4, 4, 4); "auto" for 12 layers gives the same.

    auto puts the embedding on the first of four IPUs and shares the layers out evenly over the
    others; a model of fewer than three layers lies on one.

    Raises:
      UsageError: not all blocks have a place, or the number of IPUs is no power of two.
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
            f"--blocks_per_ipu={text}: numbers of blocks with + between them, such as 1+4+4+4"
        ) from None
    if min(blocks) < 1 or sum(blocks) != 1 + layers:
        raise UsageError(
            f"--blocks_per_ipu={text} places {sum(blocks)} blocks, and the model has {1 + layers}: "
            f"the embedding and {layers} encoder layers (the classifier lies with the last); each "
            "IPU takes at least one"
        )
    if len(blocks) & (len(blocks) - 1):
        raise UsageError(
            f"--blocks_per_ipu={text} takes {len(blocks)} IPUs, and PopTorch books a power of two: "
            "give 1, 2, 4, 8 ... numbers"
        )
    return blocks


def place_on_ipus(flags: Any, *, layers: int) -> Placement:
    """Shares rows and blocks out, as PoptorchClassifierFlags say.

    Raises:
      UsageError: they do not go together; names the values and the remedy.
    """
    if flags.precision == "bfloat16":
        raise UsageError("--precision=bfloat16: IPUs have float16 and float32; give one of them")
    blocks = parse_blocks(flags.blocks_per_ipu, layers)
    if flags.batch_size % flags.replication:
        raise UsageError(
            f"--batch_size={flags.batch_size} is no multiple of --replication={flags.replication}: "
            "replicas take equal shares"
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


def _accumulation(flags: Any, share: int, *, ipus: int) -> int:
    """Microbatches a replica's share is cut into: what was asked for, or as few as can be."""
    # A pipeline over n IPUs has n stages forward and n - 1 backward, each with a microbatch.
    stages, accumulation = 2 * ipus - 1, flags.accumulation
    if accumulation is None:
        fitting = [count for count in range(stages, share + 1) if share % count == 0]
        accumulation = fitting[0] if fitting else stages
    if share % accumulation:
        raise UsageError(
            f"--batch_size={flags.batch_size} cannot be cut into --accumulation={accumulation} "
            f"microbatches for each of {flags.replication} replicas: give a batch size that is a "
            f"multiple of {accumulation * flags.replication}"
        )
    if accumulation < stages:
        raise UsageError(
            f"--accumulation={accumulation} does not fill the pipeline: {ipus} IPUs make {stages} "
            "stages, forward and backward, and each needs a microbatch; give at least "
            f"{stages}, or fewer IPUs with --blocks_per_ipu"
        )
    return accumulation
