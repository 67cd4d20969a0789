"""Weights between our encoder and Hugging Face's BERT, RoBERTa and ELECTRA for masked LM.

One table of names a family. A PyTorch linear layer stores [out, in], Flax [in, out]; theirs has
query, key and value apart, ours in one. All else is a change of names. Gradients translate the same
way as weights. numpy only.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trainers.models.hf_files import check_names, check_shape, grown_rows
from trainers.on_flax.encoder_config import ModelConfig

Path = tuple[str | int, ...]

# Ours -> theirs; in this order of columns: bert, roberta, electra.
_FAMILIES = ("bert", "roberta", "electra")
_HEAD = {
    "head_dense": (
        "cls.predictions.transform.dense",
        "lm_head.dense",
        "generator_predictions.dense",
    ),
    "head_norm": (
        "cls.predictions.transform.LayerNorm",
        "lm_head.layer_norm",
        "generator_predictions.LayerNorm",
    ),
    "head_bias": ("cls.predictions.bias", "lm_head.bias", "generator_lm_head.bias"),
}
# An output layer that is not tied has a bias of its own, and `head_bias` above is then dead.
_UNTIED = {
    "head_bias": ("cls.predictions.decoder.bias", "lm_head.decoder.bias", "generator_lm_head.bias"),
    "head_table": (
        "cls.predictions.decoder.weight",
        "lm_head.decoder.weight",
        "generator_lm_head.weight",
    ),
}
# Under bert., roberta. or electra. in all of them.
_EMBEDDINGS = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "project_in": "embeddings_project",
}
_LAYER = {
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp_in": "intermediate.dense",
    "mlp_out": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_QKV = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))
# Of other heads on the same encoder, which masked language modeling has no use for.
_OTHER_HEADS = re.compile(
    r"(bert|roberta)\.pooler\.|cls\.seq_relationship\.|discriminator_predictions\."
)


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

    @property
    def is_head(self) -> bool:
        """Whether it belongs to the head, which an encoder alone is published without."""
        return str(self.path[0]).startswith("head_")


class Found(NamedTuple):
    """What published weights hold.

    Attributes:
      names: name in the table -> name in the file.
      headless: no tensor of an output head is there.
      other_heads: names, in the file, of heads that masked language modeling has no use for.
    """

    names: dict[str, str]
    headless: bool
    other_heads: tuple[str, ...]


def leaves(config: ModelConfig) -> Iterator[Leaf]:
    """Every array of a model, with its names there."""
    family, column = config.family, _FAMILIES.index(config.family)
    for ours, theirs in _EMBEDDINGS.items():
        if ours != "project_in" or config.is_projected:
            yield from _module((ours,), (f"{family}.{theirs}",))
    for index in range(config.layers):
        where = f"{family}.encoder.layer.{index}"
        for ours, theirs in _LAYER.items():
            yield from _module(("layers", index, ours), (f"{where}.{theirs}",))
        yield from _module(("layers", index, "qkv"), tuple(f"{where}.{part}" for part in _QKV))
    for ours in ("head_dense", "head_norm"):
        yield from _module((ours,), (_HEAD[ours][column],))
    yield Leaf(("head_bias",), ((_HEAD if config.tied else _UNTIED)["head_bias"][column],))
    if not config.tied:
        yield Leaf(("head_table", "embedding"), (_UNTIED["head_table"][column],))


def _module(path: Path, names: tuple[str, ...]) -> Iterator[Leaf]:
    weights, biases = (tuple(f"{name}.{leaf}" for name in names) for leaf in ("weight", "bias"))
    if path[-1] in ("tokens", "positions", "token_types"):
        yield Leaf((*path, "embedding"), weights)
    elif str(path[-1]).endswith("norm"):
        yield Leaf((*path, "scale"), weights)
        yield Leaf((*path, "bias"), biases)
    else:
        yield Leaf((*path, "kernel"), weights, turned=True)
        yield Leaf((*path, "bias"), biases)


def names_found(found: Iterable[str], config: ModelConfig) -> Found:
    """Names of published weights as the table has them.

    An encoder saved alone has no prefix: `embeddings.LayerNorm.weight`. What is tied and what is
    dead is dropped, where it was saved all the same.
    """
    found, prefix, column = list(found), config.family + ".", _FAMILIES.index(config.family)
    bare = not any(name.startswith(prefix) for name in found)
    names = {prefix + name if bare else name: name for name in found}
    used = {name for leaf in leaves(config) for name in leaf.names}
    doubles = {row[column] for row in (_UNTIED if config.tied else _HEAD).values()} - used
    others = {ours for ours in names if _OTHER_HEADS.match(ours)}
    kept = {ours: name for ours, name in names.items() if ours not in doubles | others}
    head = {name for leaf in leaves(config) if leaf.is_head for name in leaf.names}
    return Found(kept, not head & set(kept), tuple(sorted(names[ours] for ours in others)))


def check_weights(found: Iterable[str], config: ModelConfig, *, place: str) -> None:
    """Refuses weights that are not those of the model; other heads and a missing head pass.

    Raises:
      DataError: a tensor is missing or left over; names it.
    """
    there = names_found(found, config)
    wanted = [leaf for leaf in leaves(config) if not (there.headless and leaf.is_head)]
    check_names((name for leaf in wanted for name in leaf.names), there.names, place=place)


def from_hugging_face(
    weights: Mapping[str, np.ndarray],
    config: ModelConfig,
    shapes: Mapping,
    *,
    place: str,
    fresh: Callable[[], Mapping] | None = None,
    seed: int = 0,
) -> dict:
    """Published weights as this model's.

    Args:
      weights: name to f32 array, as a state dict or the file of it; read one by one.
      config: of the model to fill; a larger vocabulary than theirs gets new rows.
      shapes: nested dicts of what has a shape, as `init_params` makes.
      place: to name in errors, such as "--init_from=DIR".
      fresh: makes weights to take the head from, where theirs is an encoder alone.
      seed: of new rows.

    Returns:
      Nested dicts of f32 arrays, as `init_params` makes.

    Raises:
      DataError: a tensor is missing, left over, or of another shape; names it.
    """
    check_weights(weights, config, place=place)
    there, params = names_found(weights, config), {}
    new = fresh() if there.headless and fresh is not None else {}
    for leaf in leaves(config):
        if there.headless and leaf.is_head:
            _put(params, leaf.path, np.asarray(_get(new, leaf.path)))
            continue
        parts = [weights[there.names[name]] for name in leaf.names]
        value = np.concatenate([part.T if leaf.turned else part for part in parts], axis=-1)
        shape = _get(shapes, leaf.path).shape
        if leaf.path[0] in ("tokens", "head_table", "head_bias") and len(value) < shape[0]:
            value = grown_rows(value, shape[0], seed=seed)
        check_shape(leaf.names[0], value, shape, place=place)
        _put(params, leaf.path, value)
    return params


def to_hugging_face(params: Mapping, config: ModelConfig) -> dict[str, np.ndarray]:
    """This model's weights as Hugging Face's state dict; a tied output layer is not repeated.

    Args:
      params: nested dicts of arrays, as `init_params` makes.
      config: of that model.

    Returns:
      Name to f32 array, C-contiguous.
    """
    weights = {}
    for leaf in leaves(config):
        value = np.asarray(_get(params, leaf.path))
        parts = np.split(value, len(leaf.names), axis=-1)
        for name, part in zip(leaf.names, parts, strict=True):
            weights[name] = np.ascontiguousarray(part.T if leaf.turned else part)
    if not config.tied:
        column = _FAMILIES.index(config.family)
        # The dead bias, which transformers misses where it is not there.
        weights.setdefault(_HEAD["head_bias"][column], weights[_UNTIED["head_bias"][column]].copy())
    return weights


def _put(tree: dict, path: Path, value: np.ndarray) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = np.ascontiguousarray(value)


def _get(tree: Mapping, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree
