"""How a step's rows and the model's blocks are shared out over a device. Standard library only.

A batch of B rows is A * R micro-batches of B / (A * R) rows: A are accumulated one after another,
R replicas of the model take theirs at once. An IPU runs D such steps before it answers the host.
Blocks are the embedding (with ELECTRA's projection), then each encoder layer; the classifier lies
with the last of them.
"""

from dataclasses import dataclass
from typing import Optional, Tuple

from schemas.errors import UsageError

AUTO = "auto"
LAYER_IPUS = 3  # beside the one with the embedding: 12 layers make 1 + 4 + 4 + 4


@dataclass(frozen=True)
class Placement:
    """Rows and blocks on a device.

    Attributes:
      device: ipu, cpu or cuda.
      precision: float32; float16 on IPUs; bfloat16 elsewhere.
      blocks: blocks on each IPU in turn, (1, 4, 4, 4); () where there is no IPU.
      micro_batch: rows that go through the model at once.
      accumulation: A.
      replication: R; 1 where there is no IPU.
      device_iterations: D; 1 where there is no IPU.
    """

    device: str
    precision: str
    blocks: Tuple[int, ...]
    micro_batch: int
    accumulation: int
    replication: int
    device_iterations: int

    @property
    def batch_size(self) -> int:
        """B, rows a step."""
        return self.micro_batch * self.accumulation * self.replication

    @property
    def call_rows(self) -> int:
        """Rows that the device takes at once."""
        return self.batch_size * self.device_iterations

    @property
    def description(self) -> str:
        """One line for people."""
        if self.device != "ipu":
            return f"PyTorch on {self.device}, {self.precision}"
        blocks = " + ".join(map(str, self.blocks))
        return (
            f"{len(self.blocks) * self.replication} IPUs, {self.precision}: blocks {blocks}, "
            f"{self.replication} replicas, {self.accumulation} micro-batches of "
            f"{self.micro_batch} rows a replica and step, {self.device_iterations} steps a call"
        )


def parse_blocks(text: str, layers: int) -> Tuple[int, ...]:
    """`--blocks_per_ipu`: "1+4+4+4" -> (1, 4, 4, 4); "auto" for 12 layers gives the same.

    auto puts the embedding on the first of four IPUs and shares the layers out evenly over the
    other three; a model of fewer than three layers lies on one.

    Args:
      text: as on the command line.
      layers: encoder layers of the model.

    Raises:
      UsageError: not all blocks have a place, or the number of IPUs is no power of two.
    """
    if text == AUTO:
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


def place(
    *,
    device: str,
    precision: str,
    blocks_per_ipu: str,
    layers: int,
    batch_size: int,
    accumulation: Optional[int],
    replication: int,
    device_iterations: int,
) -> Placement:
    """Shares rows and blocks out.

    Args:
      device: ipu, cpu or cuda, never auto.
      precision: as on the command line, auto included.
      blocks_per_ipu: as on the command line.
      layers: encoder layers of the model.
      batch_size: rows a step.
      accumulation: micro-batches a step; None takes 1, or on IPUs as few as fill the pipeline.
      replication: copies of the model; counts on IPUs only.
      device_iterations: steps a call; counts on IPUs only.

    Raises:
      UsageError: they do not go together; names the values and the remedy.
    """
    on_ipu = device == "ipu"
    if not on_ipu:
        replication = device_iterations = 1
    blocks = parse_blocks(blocks_per_ipu, layers) if on_ipu else ()
    # A pipeline over n IPUs has n stages forward and n - 1 backward, each with a micro-batch.
    stages = max(1, 2 * len(blocks) - 1)
    if batch_size % replication:
        raise UsageError(
            f"--batch_size={batch_size} is no multiple of --replication={replication}: replicas "
            "take equal shares"
        )
    share = batch_size // replication
    if accumulation is None:
        fitting = [count for count in range(stages, share + 1) if share % count == 0]
        accumulation = fitting[0] if fitting else stages
    if share % accumulation:
        raise UsageError(
            f"--batch_size={batch_size} cannot be cut into --accumulation={accumulation} "
            f"micro-batches for each of {replication} replicas: give a batch size that is a "
            f"multiple of {accumulation * replication}"
        )
    if accumulation < stages:
        raise UsageError(
            f"--accumulation={accumulation} does not fill the pipeline: {len(blocks)} IPUs make "
            f"{stages} stages, forward and backward, and each needs a micro-batch; give at least "
            f"{stages}, or fewer IPUs with --blocks_per_ipu"
        )
    return Placement(
        device=device,
        precision=_precision(device, precision),
        blocks=blocks,
        micro_batch=share // accumulation,
        accumulation=accumulation,
        replication=replication,
        device_iterations=device_iterations,
    )


def _precision(device: str, precision: str) -> str:
    if precision == AUTO:
        return {"ipu": "float16", "cuda": "bfloat16", "cpu": "float32"}[device]
    if device == "ipu" and precision == "bfloat16":
        raise UsageError("--precision=bfloat16: IPUs have float16 and float32; give one of them")
    if device != "ipu" and precision == "float16":
        raise UsageError(
            f"--precision=float16 is for IPUs, and this run is on {device}: give bfloat16, which "
            "needs no loss scaling, or float32"
        )
    return precision
