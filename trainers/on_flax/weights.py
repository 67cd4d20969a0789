"""Weights between this model and Hugging Face's RobertaForMaskedLM, by one table of names.

A PyTorch linear layer stores [out, in], Flax [in, out]; theirs has query, key and value apart, ours
in one. All else is a change of names. Gradients translate the same way as weights.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from trainers.on_flax.config import ModelConfig

Path = tuple[str | int, ...]

_TOP = {
    ("tokens",): "roberta.embeddings.word_embeddings",
    ("positions",): "roberta.embeddings.position_embeddings",
    ("token_types",): "roberta.embeddings.token_type_embeddings",
    ("embedding_norm",): "roberta.embeddings.LayerNorm",
    ("head_dense",): "lm_head.dense",
    ("head_norm",): "lm_head.layer_norm",
}
_LAYER = {
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp_in": "intermediate.dense",
    "mlp_out": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_QKV = ("query", "key", "value")


def _modules(layers: int) -> Iterator[tuple[Path, str]]:
    """Every module but the fused query-key-value: (our path, their name)."""
    yield from _TOP.items()
    for index in range(layers):
        for ours, theirs in _LAYER.items():
            yield ("layers", index, ours), f"roberta.encoder.layer.{index}.{theirs}"


def _leaves(module: str) -> tuple[tuple[str, str], ...]:
    """Our leaf names and theirs, by what kind of module it is."""
    if module in ("tokens", "positions", "token_types"):
        return (("embedding", "weight"),)
    if module.endswith("norm"):
        return (("scale", "weight"), ("bias", "bias"))
    return (("kernel", "weight"), ("bias", "bias"))


def from_hugging_face(weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict:
    """Hugging Face's state dict as this model's weights.

    Args:
      weights: name to f32 array, as `RobertaForMaskedLM.state_dict()` or its safetensors file.
      config: of the model to fill.

    Returns:
      Nested dicts as `init_params` makes.

    Raises:
      KeyError: a weight is missing.
      ValueError: a weight has another shape than `config` asks for.
    """
    params: dict = {}
    for path, theirs in _modules(config.layers):
        for leaf, their_leaf in _leaves(str(path[-1])):
            value = weights[f"{theirs}.{their_leaf}"]
            _put(params, (*path, leaf), value.T if leaf == "kernel" else value)
    for index in range(config.layers):
        names = [f"roberta.encoder.layer.{index}.attention.self.{part}" for part in _QKV]
        kernel = np.concatenate([weights[f"{name}.weight"].T for name in names], axis=1)
        bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        _put(params, ("layers", index, "qkv", "kernel"), kernel)
        _put(params, ("layers", index, "qkv", "bias"), bias)
    params["head_bias"] = weights["lm_head.bias"]
    _check_shapes(params, config)
    return params


def to_hugging_face(params: Mapping, config: ModelConfig) -> dict[str, np.ndarray]:
    """This model's weights as Hugging Face's state dict; the tied output layer is not repeated.

    Args:
      params: nested dicts of arrays, as `init_params` makes.
      config: of that model.

    Returns:
      Name to f32 array, C-contiguous.
    """
    weights = {}
    for path, theirs in _modules(config.layers):
        for leaf, their_leaf in _leaves(str(path[-1])):
            value = np.asarray(_get(params, (*path, leaf)))
            weights[f"{theirs}.{their_leaf}"] = value.T if leaf == "kernel" else value
    for index in range(config.layers):
        kernel = np.asarray(_get(params, ("layers", index, "qkv", "kernel")))
        bias = np.asarray(_get(params, ("layers", index, "qkv", "bias")))
        parts = zip(_QKV, np.split(kernel, 3, axis=1), np.split(bias, 3), strict=True)
        for part, part_kernel, part_bias in parts:
            name = f"roberta.encoder.layer.{index}.attention.self.{part}"
            weights[f"{name}.weight"], weights[f"{name}.bias"] = part_kernel.T, part_bias
    weights["lm_head.bias"] = np.asarray(params["head_bias"])
    return {name: np.ascontiguousarray(value) for name, value in weights.items()}


def _put(tree: dict, path: Path, value: np.ndarray) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = np.ascontiguousarray(value)


def _get(tree: Mapping, path: Path) -> np.ndarray:
    node = tree
    for key in path:
        node = node[key]
    return node  # type: ignore[return-value]


def _check_shapes(params: Mapping, config: ModelConfig) -> None:
    hidden, width = config.hidden_size, config.intermediate_size
    expected: dict[Path, tuple[int, ...]] = {
        ("tokens", "embedding"): (config.vocab_size, hidden),
        ("positions", "embedding"): (config.position_rows, hidden),
        ("token_types", "embedding"): (1, hidden),
        ("head_bias",): (config.vocab_size,),
    }
    for index in range(config.layers):
        expected["layers", index, "qkv", "kernel"] = (hidden, 3 * hidden)
        expected["layers", index, "mlp_in", "kernel"] = (hidden, width)
    for path, shape in expected.items():
        found = _get(params, path).shape
        if found != shape:
            raise ValueError(
                f"{'.'.join(map(str, path))}: the weights have shape {found}, the model {shape}"
            )
