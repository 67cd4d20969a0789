"""Weights between this GPT-2 and Hugging Face's GPT2LMHeadModel, by one table of names.

GPT-2's layers (Conv1D) store [in, out], as Keras does, with query, key and value in one: most is a
change of names. Only an output layer of its own, a PyTorch linear layer, is turned. Gradients
translate the same way as weights.
"""

from collections.abc import Mapping

import numpy as np

from trainers.models.hf_files import check_names, check_shape, grown_rows
from trainers.on_tf.gpt2 import Gpt2
from trainers.on_tf.gpt2_config import Gpt2Config

Weights = dict[str, np.ndarray]

_TOP = {
    "tokens/embeddings": "transformer.wte.weight",
    "positions/embeddings": "transformer.wpe.weight",
    "final_norm/gamma": "transformer.ln_f.weight",
    "final_norm/beta": "transformer.ln_f.bias",
}
_LAYER = {
    "attention_norm/gamma": "ln_1.weight",
    "attention_norm/beta": "ln_1.bias",
    "qkv/kernel": "attn.c_attn.weight",
    "qkv/bias": "attn.c_attn.bias",
    "attention_out/kernel": "attn.c_proj.weight",
    "attention_out/bias": "attn.c_proj.bias",
    "mlp_norm/gamma": "ln_2.weight",
    "mlp_norm/beta": "ln_2.bias",
    "mlp_in/kernel": "mlp.c_fc.weight",
    "mlp_in/bias": "mlp.c_fc.bias",
    "mlp_out/kernel": "mlp.c_proj.weight",
    "mlp_out/bias": "mlp.c_proj.bias",
}
_HEAD, _THEIR_HEAD = "head/kernel", "lm_head.weight"
_BASE = "transformer."  # left out of names where only the base model was saved
_RESIDUAL = ("attention_out/kernel", "mlp_out/kernel")


def names(config: Gpt2Config) -> dict[str, str]:
    """Our weight -> theirs."""
    table = dict(_TOP)
    for index in range(config.layers):
        for ours, theirs in _LAYER.items():
            table[f"layer_{index}/{ours}"] = f"transformer.h.{index}.{theirs}"
    if not config.tied:
        table[_HEAD] = _THEIR_HEAD
    return table


def shapes(config: Gpt2Config) -> dict[str, tuple[int, ...]]:
    """Our weight -> its shape."""
    hidden, wide = config.hidden_size, config.intermediate_size
    kernels = {
        "tokens/embeddings": (config.vocab_size, hidden),
        "positions/embeddings": (config.max_positions, hidden),
        "qkv/kernel": (hidden, 3 * hidden),
        "qkv/bias": (3 * hidden,),
        "attention_out/kernel": (hidden, hidden),
        "mlp_in/kernel": (hidden, wide),
        "mlp_in/bias": (wide,),
        "mlp_out/kernel": (wide, hidden),
        _HEAD: (hidden, config.vocab_size),
    }
    return {name: kernels.get("/".join(name.split("/")[-2:]), (hidden,)) for name in names(config)}


def fresh(config: Gpt2Config, seed: int) -> Weights:
    """Weights before the first step, as GPT-2's: normal of deviation 0.02, zero biases.

    What is added to the residual stream, 2 * layers times, begins smaller by the root of that.
    """
    return {name: _fresh(name, shape, config, seed) for name, shape in shapes(config).items()}


def _fresh(name: str, shape: tuple[int, ...], config: Gpt2Config, seed: int) -> np.ndarray:
    if name.endswith("gamma"):
        return np.ones(shape, np.float32)
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    deviation = 0.02 * (2 * config.layers) ** -0.5 if name.endswith(_RESIDUAL) else 0.02
    # By name, so that a weight does not depend on what others there are.
    random = np.random.default_rng([seed, *name.encode()])
    return (deviation * random.standard_normal(shape)).astype(np.float32)


def from_hugging_face(
    tensors: Mapping[str, np.ndarray], config: Gpt2Config, *, place: str, seed: int = 0
) -> Weights:
    """Their weights as this model's.

    Args:
      tensors: name to f32 array; a base model's, without its prefix, will do.
      config: of the model to fill; a larger vocabulary than theirs gets new rows.
      place: to name in errors, such as "--init_from=DIR".
      seed: of new rows.

    Raises:
      DataError: a tensor is missing, left over, or of another shape; names it.
    """
    is_bare = not any(name.startswith(_BASE) for name in tensors)
    found = {_BASE + name if is_bare and name != _THEIR_HEAD else name: name for name in tensors}
    if config.tied:
        found.pop(_THEIR_HEAD, None)  # some files repeat the embedding
    table, due = names(config), shapes(config)
    check_names(table.values(), found, place=place)
    weights = {}
    for ours, theirs in table.items():
        value = tensors[found[theirs]]
        if theirs in (_TOP["tokens/embeddings"], _THEIR_HEAD) and len(value) < config.vocab_size:
            value = grown_rows(value, config.vocab_size, seed=seed)
        value = value.T if ours == _HEAD else value
        check_shape(theirs, value, due[ours], place=place)
        weights[ours] = value
    return weights


def to_hugging_face(weights: Mapping[str, np.ndarray], config: Gpt2Config) -> Weights:
    """This model's weights as their state dict, C-contiguous; a tied head is not repeated."""
    return {
        theirs: np.ascontiguousarray(weights[ours].T if ours == _HEAD else weights[ours])
        for ours, theirs in names(config).items()
    }


def fill(model: Gpt2, weights: Mapping[str, np.ndarray]) -> None:
    """Puts weights into a model."""
    for variable in model.variables:
        variable.assign(weights[name_of(variable.path)])


def read(model: Gpt2) -> Weights:
    """A model's weights."""
    return {name_of(variable.path): variable.numpy() for variable in model.variables}


def name_of(path: str) -> str:
    """A variable's name in these tables: "gpt2/layer_0/qkv/bias" -> "layer_0/qkv/bias"."""
    return path.removeprefix("gpt2/")
