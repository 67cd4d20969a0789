"""PopTorch's options for training and for evaluation, and a module's blocks on their IPUs.

Names and arguments are those of PopTorch 3.4; `poptorch` is passed in, since few hosts have it.
"""

from types import ModuleType
from typing import Any, List, Tuple

import torch
from torch import nn

from trainers.on_poptorch.placement import Placement


def training_options(poptorch: ModuleType, flags: Any, placement: Placement) -> Any:
    """`poptorch.Options` of the program that trains.

    Every microbatch gives its loss back (one float32 each), so that a step with a loss that is no
    number is found even where a call runs several.
    """
    options = _shared_options(poptorch, flags, placement)
    options.deviceIterations(placement.device_iterations)
    options.Training.gradientAccumulation(placement.accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    options.randomSeed(flags.seed)
    # What float16 cannot hold is rounded up or down by chance, so that small updates add up.
    options.Precision.enableStochasticRounding(placement.precision == "float16")
    return options


def evaluation_options(poptorch: ModuleType, flags: Any, placement: Placement) -> Any:
    """`poptorch.Options` of the program that evaluates: as many rows a call as in training.

    Accumulation is for training only; here its microbatches are device iterations, which fill the
    pipeline just as well. Output mode All: the logits of every row come back.
    """
    options = _shared_options(poptorch, flags, placement)
    options.deviceIterations(placement.device_iterations * placement.accumulation)
    options.Precision.enableStochasticRounding(False)
    return options


def _shared_options(poptorch: ModuleType, flags: Any, placement: Placement) -> Any:
    options = poptorch.Options()
    options.replicationFactor(placement.replication)
    options.outputMode(poptorch.OutputMode.All)
    # A stage of the pipeline is what lies on one IPU.
    stages = poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu)
    options.setExecutionStrategy(stages)
    # Sums inside matrix products are float32, whatever the products are of.
    options.Precision.setPartialsType(torch.float32)
    if flags.executable_cache is not None:
        options.enableExecutableCaching(flags.executable_cache)
    return options


def place_blocks(
    poptorch: ModuleType, blocks: List[Tuple[str, nn.Module]], placement: Placement
) -> None:
    """Puts blocks on their IPUs; those after the last number lie on the last IPU.

    (1, 4, 4, 4) with 12 layers: embeddings on IPU 0, layers 0 to 3 on IPU 1, 4 to 7 on IPU 2, 8 to
    11 and the classifier on IPU 3. A block goes on until the next begins.
    """
    ipus = [ipu for ipu, count in enumerate(placement.blocks) for _ in range(count)]
    ipus += [len(placement.blocks) - 1] * (len(blocks) - len(ipus))
    for ipu, (name, block) in zip(ipus, blocks):
        poptorch.BeginBlock(block, user_id=name, ipu_id=ipu)
