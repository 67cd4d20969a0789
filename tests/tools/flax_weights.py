"""Parameters of Flax models as weights of ours."""

from typing import Any

import numpy as np

from trainers.models.families import Weights
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_layout
from trainers.on_flax.layers import FLAX, name_leaves


def to_weights(params: Any, config: ModelConfig) -> Weights:
    """The inverse of `to_params`, also for gradients: copies on the host."""
    values = {name: np.array(value) for name, value in name_leaves(params).items()}
    return from_layout(values, config, FLAX)
