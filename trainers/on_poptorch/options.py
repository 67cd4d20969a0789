"""PopTorch's options for training and for evaluation, and the model's blocks on their IPUs.

Names and arguments are those of PopTorch 3.4; `poptorch` is passed in, since few hosts have it.
"""

from types import ModuleType
from typing import Any

import torch

from trainers.on_poptorch.config import TrainConfig
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.placement import Placement


def training_options(poptorch: ModuleType, config: TrainConfig, placement: Placement) -> Any:
    """`poptorch.Options` of the model that trains.

    Every micro-batch gives its loss back (one float32 each), so that a step with a loss that is no
    number is found even where a call runs several.
    """
    options = _shared(poptorch, config, placement)
    options.deviceIterations(placement.device_iterations)
    options.Training.gradientAccumulation(placement.accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    options.randomSeed(config.seed)
    # The schedule keeps its first rate in the optimizer's groups, which PopTorch would warn of.
    options.relaxOptimizerAttributesChecks(True)
    # What float16 cannot hold is rounded up or down by chance, so that small updates add up.
    options.Precision.enableStochasticRounding(placement.precision == "float16")
    return options


def evaluation_options(poptorch: ModuleType, config: TrainConfig, placement: Placement) -> Any:
    """`poptorch.Options` of the model that evaluates: as many rows a call as in training.

    Accumulation is for training only; here its micro-batches are device iterations, which fill the
    pipeline just as well. Output mode All: the logits of every row come back.
    """
    options = _shared(poptorch, config, placement)
    options.deviceIterations(placement.device_iterations * placement.accumulation)
    options.Precision.enableStochasticRounding(False)
    return options


def _shared(poptorch: ModuleType, config: TrainConfig, placement: Placement) -> Any:
    options = poptorch.Options()
    options.replicationFactor(placement.replication)
    options.outputMode(poptorch.OutputMode.All)
    # A stage of the pipeline is what lies on one IPU.
    stages = poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu)
    options.setExecutionStrategy(stages)
    # Sums inside matrix products are float32, whatever the products are of.
    options.Precision.setPartialsType(torch.float32)
    if config.executable_cache is not None:
        options.enableExecutableCaching(config.executable_cache)
    return options


def place_blocks(poptorch: ModuleType, model: Classifier, placement: Placement) -> None:
    """Puts the embedding, the encoder layers and the classifier on their IPUs.

    (1, 4, 4, 4) with 12 layers: embeddings on IPU 0, layers 0 to 3 on IPU 1, 4 to 7 on IPU 2, 8 to
    11 and the head on IPU 3. A block goes on until the next begins.
    """
    blocks = [("embeddings", model.embeddings)]
    blocks += [(f"layer {index}", layer) for index, layer in enumerate(model.layers)]
    first = 0
    for ipu, count in enumerate(placement.blocks):
        for name, block in blocks[first : first + count]:
            poptorch.BeginBlock(block, user_id=name, ipu_id=ipu)
        first += count
    poptorch.BeginBlock(model.head, user_id="classifier", ipu_id=len(placement.blocks) - 1)
