"""Weights between this encoder and Hugging Face's, whose names are in `trainers.models.encoder_names`.

A PyTorch linear layer stores [out, in], Keras [in, out]; theirs has query, key and value apart,
ours in one. All else is a change of names. Gradients translate the same way as weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainers.models import encoder_names
from trainers.models.encoder import EncoderConfig
from trainers.models.encoder_names import Weights, encoder_modules
from trainers.on_tf.encoder import Encoder

_LEAVES = {  # kind of module -> Keras' names of its weight and its bias
    "table": {"weight": "embeddings"},
    "norm": {"weight": "gamma", "bias": "beta"},
    "linear": {"weight": "kernel", "bias": "bias"},
}


def names(config: EncoderConfig) -> dict[str, tuple[str, ...]]:
    """Keras' path of a weight -> theirs; the fused query-key-value has three."""
    return {
        f"{_path(module.ours)}/{leaf}": tuple(f"{part}.{theirs}" for part in module.theirs)
        for module in encoder_modules(config)
        for theirs, leaf in _LEAVES[module.kind].items()
    }


def _path(module: str) -> str:
    """embeddings.tokens -> tokens, layers.0.qkv -> layer_0/qkv, head.out -> head_out."""
    first, rest = module.split(".", 1)
    if first == "layers":
        return "layer_" + rest.replace(".", "/")
    if first == "embeddings":
        return "embedding_norm" if rest == "norm" else rest
    return f"{first}_{rest}"


def from_hugging_face(tensors: Mapping[str, np.ndarray], config: EncoderConfig) -> Weights:
    """Hugging Face's state dict as this model's weights.

    Args:
      tensors: name to f32 array, all that `names` lists.
      config: of the model to fill.
    """
    weights = {}
    for ours, theirs in names(config).items():
        parts = [tensors[name] for name in theirs]
        if ours.endswith("kernel"):
            parts = [part.T for part in parts]
        weights[ours] = np.concatenate(parts, axis=-1)
    return weights


def to_hugging_face(weights: Mapping[str, np.ndarray], config: EncoderConfig) -> Weights:
    """This model's weights as Hugging Face's state dict, C-contiguous."""
    tensors = {}
    for ours, theirs in names(config).items():
        parts = np.split(weights[ours], len(theirs), axis=-1)
        for name, part in zip(theirs, parts, strict=True):
            tensors[name] = np.ascontiguousarray(part.T if ours.endswith("kernel") else part)
    return tensors


def fresh(config: EncoderConfig, seed: int) -> Weights:
    """Weights before the first step: normal of deviation 0.02, zero biases, as BERT's."""
    return from_hugging_face(encoder_names.fresh(config, seed), config)


def pretrained(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, *, seed: int, place: str
) -> tuple[Weights, list[str]]:
    """Published weights for this model, and what is new in them: see `encoder_names.pretrained`."""
    values, notes = encoder_names.pretrained(tensors, config, seed=seed, place=place)
    return from_hugging_face(values, config), notes


def fill(model: Encoder, weights: Mapping[str, np.ndarray]) -> None:
    """Puts weights into a model."""
    for name, variable in variables(model).items():
        variable.assign(weights[name])


def read(model: Encoder) -> Weights:
    """A model's weights."""
    return {name: variable.numpy() for name, variable in variables(model).items()}


def variables(model: Encoder) -> dict[str, Any]:
    """Keras' variables by our names: "layer_0/qkv/kernel"."""
    return {variable.path[len(model.name) + 1 :]: variable for variable in model.variables}
