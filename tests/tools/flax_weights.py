"""Parameters of Flax models as weights of ours."""

from typing import Any

import numpy as np

from textmill.trainers.models.families import Weights
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import from_layout
from textmill.trainers.on_flax.layers import FLAX, name_leaves


def to_weights(params: Any, config: ModelConfig) -> Weights:
    """The inverse of `to_params`, also for gradients: copies on the host."""
    values = {name: np.array(value) for name, value in name_leaves(params).items()}
    return from_layout(values, config, FLAX)
