"""Weights between the classifier and Hugging Face's, whose names are in `trainers.models.encoder_names`.

Both store a linear layer as [out, in]; theirs has query, key and value apart, ours in one. All else
is a change of names. Gradients translate the same way as weights. Arrays are numpy, float32.
"""

from typing import Dict, List, Mapping, Tuple

import numpy as np

from trainers.models import encoder_names
from trainers.models.encoder import EncoderConfig
from trainers.models.encoder_names import Weights, encoder_modules


def names(config: EncoderConfig) -> Dict[str, Tuple[str, ...]]:
    """Our weight -> theirs; the fused query-key-value has three."""
    return {
        f"{module.ours}.{leaf}": tuple(f"{theirs}.{leaf}" for theirs in module.theirs)
        for module in encoder_modules(config)
        for leaf in module.shapes()
    }


def from_hugging_face(tensors: Mapping[str, np.ndarray], config: EncoderConfig) -> Weights:
    """Hugging Face's state dict as this model's weights.

    Args:
      tensors: name to array, all that `names` lists.
      config: of the model to fill.
    """
    return {
        ours: np.concatenate([tensors[name] for name in theirs])
        for ours, theirs in names(config).items()
    }


def to_hugging_face(weights: Mapping[str, np.ndarray], config: EncoderConfig) -> Weights:
    """This model's weights as Hugging Face's state dict, float32 and C-contiguous."""
    tensors: Weights = {}
    for ours, theirs in names(config).items():
        for name, part in zip(theirs, np.split(weights[ours], len(theirs))):
            tensors[name] = np.ascontiguousarray(part, np.float32)
    return tensors


def fresh(config: EncoderConfig, seed: int) -> Weights:
    """Weights before the first step: normal of deviation 0.02, zero biases, as BERT's."""
    return from_hugging_face(encoder_names.fresh(config, seed), config)


def pretrained(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, *, seed: int, place: str
) -> Tuple[Weights, List[str]]:
    """Published weights for this model, and what is new in them: see `encoder_names.pretrained`."""
    values, notes = encoder_names.pretrained(tensors, config, seed=seed, place=place)
    return from_hugging_face(values, config), notes
