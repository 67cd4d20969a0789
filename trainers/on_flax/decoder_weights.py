"""Weights between our decoder and Hugging Face's GPT2LMHeadModel and OPTForCausalLM.

One table of names a family. PyTorch's linear layers store [out, in], Flax's and GPT-2's Conv1D
[in, out]; OPT has query, key and value apart, GPT-2 and we in one. Gradients translate the same
way as weights.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trainers.models.hf_files import check_names, check_shape, grown_rows
from trainers.on_flax.decoder_config import DecoderConfig

Path = tuple[str | int, ...]


class Leaf(NamedTuple):
    """One of our arrays, and theirs.

    Attributes:
      path: in our nested dicts.
      names: theirs; several stand side by side on our last axis.
      turned: theirs is our transpose.
    """

    path: Path
    names: tuple[str, ...]
    turned: bool = False


_OPT_LAYER = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention_out": ("self_attn.out_proj",),
    "attention_norm": ("self_attn_layer_norm",),
    "mlp_in": ("fc1",),
    "mlp_out": ("fc2",),
    "mlp_norm": ("final_layer_norm",),
}
_GPT2_LAYER = {
    "qkv": ("attn.c_attn",),
    "attention_out": ("attn.c_proj",),
    "attention_norm": ("ln_1",),
    "mlp_in": ("mlp.c_fc",),
    "mlp_out": ("mlp.c_proj",),
    "mlp_norm": ("ln_2",),
}
_TOP = {
    "gpt2": {
        "tokens": "transformer.wte",
        "positions": "transformer.wpe",
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    },
    "opt": {
        "tokens": "model.decoder.embed_tokens",
        "positions": "model.decoder.embed_positions",
        "project_in": "model.decoder.project_in",
        "project_out": "model.decoder.project_out",
        "final_norm": "model.decoder.final_layer_norm",
        "head": "lm_head",
    },
}
_LAYERS = {
    "gpt2": ("transformer.h", _GPT2_LAYER),
    "opt": ("model.decoder.layers", _OPT_LAYER),
}
_HEAD = "lm_head.weight"
_BASE = {"gpt2": "transformer.", "opt": "model."}  # left out where only the base model was saved


def leaves(config: DecoderConfig) -> list[Leaf]:
    """Every array of a model, with its names there."""
    top = dict(_TOP[config.family])
    if not config.is_projected:
        top.pop("project_in", None)
        top.pop("project_out", None)
    if not config.final_norm:
        del top["final_norm"]
    if config.tied:
        del top["head"]
    found = []
    for ours, theirs in top.items():
        found += _module((ours,), (theirs,), conv=False)
    where, table = _LAYERS[config.family]
    for index in range(config.layers):
        for ours, parts in table.items():
            names = tuple(f"{where}.{index}.{part}" for part in parts)
            found += _module(("layers", index, ours), names, conv=config.family == "gpt2")
    return found


def _module(path: Path, names: tuple[str, ...], *, conv: bool) -> list[Leaf]:
    module = path[-1]
    weights, biases = (tuple(f"{name}.{leaf}" for name in names) for leaf in ("weight", "bias"))
    if module in ("tokens", "positions"):
        return [Leaf((*path, "embedding"), weights)]
    if str(module).endswith("norm"):
        return [Leaf((*path, "scale"), weights), Leaf((*path, "bias"), biases)]
    kernel = Leaf((*path, "kernel"), weights, turned=not conv)
    if module in ("project_in", "project_out", "head"):
        return [kernel]
    return [kernel, Leaf((*path, "bias"), biases)]


def from_hugging_face(
    weights: Mapping[str, np.ndarray],
    config: DecoderConfig,
    shapes: Mapping,
    *,
    place: str,
    seed: int = 0,
) -> dict:
    """Their weights as ours.

    Args:
      weights: name to f32 array; a base model's, without its prefix, will do.
      config: of the model to fill; a larger vocabulary than theirs gets new rows.
      shapes: nested dicts of what has a shape, as `init_params` makes.
      place: to name in errors, such as "--init_from=DIR".
      seed: of new rows.

    Returns:
      Nested dicts of f32 arrays, as `init_params` makes.

    Raises:
      DataError: a tensor is missing, left over, or of another shape; names it.
    """
    weights = _whole_names(weights, config)
    wanted = leaves(config)
    check_names((name for leaf in wanted for name in leaf.names), weights, place=place)
    params: dict = {}
    for leaf in wanted:
        parts = [weights[name].T if leaf.turned else weights[name] for name in leaf.names]
        value = np.concatenate(parts, axis=-1)
        shape = _get(shapes, leaf.path).shape
        axis = _vocabulary_axis(leaf)
        if axis is not None and value.shape[axis] < shape[axis]:
            value = np.moveaxis(value, axis, 0)
            value = np.moveaxis(grown_rows(value, shape[axis], seed=seed), 0, axis)
        check_shape(leaf.names[0], value, shape, place=place)
        _put(params, leaf.path, np.ascontiguousarray(value))
    return params


def _vocabulary_axis(leaf: Leaf) -> int | None:
    return {"tokens": 0, "head": 1}.get(str(leaf.path[0]))


def _whole_names(weights: Mapping[str, np.ndarray], config: DecoderConfig) -> "_Renamed":
    base = _BASE[config.family]
    bare = not any(name.startswith(base) for name in weights)
    theirs = {base + name if bare and name != _HEAD else name: name for name in weights}
    if config.tied:
        theirs.pop(_HEAD, None)  # some files repeat the embedding
    return _Renamed(weights, theirs)


class _Renamed(Mapping):
    """A mapping under other names, which reads a value only when asked for it."""

    def __init__(self, values: Mapping[str, np.ndarray], names: Mapping[str, str]):
        self._values, self._names = values, names

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[self._names[name]]

    def __iter__(self):
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def to_hugging_face(params: Mapping, config: DecoderConfig) -> dict[str, np.ndarray]:
    """Our weights as their state dict, C-contiguous; a tied output layer is not repeated."""
    weights = {}
    for leaf in leaves(config):
        value = np.asarray(_get(params, leaf.path))
        parts = np.split(value, len(leaf.names), axis=-1)
        for name, part in zip(leaf.names, parts, strict=True):
            weights[name] = np.ascontiguousarray(part.T if leaf.turned else part)
    return weights


def _put(tree: dict, path: Path, value: np.ndarray) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def _get(tree: Mapping, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree
