"""Weights of a model: fresh, as Hugging Face publishes them, and as a framework stores them.

    weights = fresh(config, seed=0)                   # "layers.0.qkv.weight": float32 [3H, H]
    weights, notes = from_published(tensors, config, seed=0, place="--init_from=DIR")
    tensors = to_published(weights, config)           # a state dict of transformers
    kernels = to_layout(weights, config, FLAX)        # "layers.0.qkv.kernel": [H, 3H]

`config` is an EncoderConfig or a DecoderConfig, whose `modules` are the one table behind all this.
Gradients translate as weights do. No framework; Python 3.8 syntax.
"""

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple

import numpy as np

from trainers.models.hf_files import check_names, check_shape, grown_rows, listed
from trainers.models.modules import Module, Weights

_MATRICES = ("linear", "matrix")


class Layout(NamedTuple):
    """How a framework names and stores weights.

    Attributes:
      leaves: kind of module -> our leaf -> its own: {"linear": {"weight": "kernel", ...}, ...}.
      is_turned: whether its linear layers are [in, out].
    """

    leaves: Mapping[str, Mapping[str, str]]
    is_turned: bool


class Found(NamedTuple):
    """What published weights hold of a model.

    Attributes:
      names: of the whole model's tensors -> names in the file.
      new: what is not there and begins anew, part -> why.
      left_out: names, in the file, of heads that the model has no use for.
    """

    names: Dict[str, str]
    new: Dict[str, str]
    left_out: Tuple[str, ...]


def shapes(config: Any) -> Dict[str, Tuple[int, ...]]:
    """The shape of every weight: {"layers.0.qkv.weight": (3H, H), ...}."""
    return {
        f"{module.ours}.{leaf}": shape
        for module in config.modules
        for leaf, shape in module.leaves().items()
    }


def fresh(config: Any, seed: int) -> Weights:
    """Weights before the first step: normal, zero biases, norms that change nothing."""
    return {
        name: value
        for module in config.modules
        for name, value in _fresh_module(module, seed).items()
    }


def _fresh_module(module: Module, seed: int) -> Weights:
    weights = {}
    for leaf, shape in module.leaves().items():
        if leaf == "bias" or module.kind in ("norm", "scale"):
            value = np.full(shape, 1.0 if leaf == "weight" else 0.0, np.float32)
        else:
            parts = [
                _normal(f"{theirs}.{leaf}", (rows, *shape[1:]), module.deviation, seed)
                for theirs, rows in zip(module.theirs, module.rows)
            ]
            value = np.concatenate(parts)
        weights[f"{module.ours}.{leaf}"] = value
    return weights


def _normal(name: str, shape: Tuple[int, ...], deviation: float, seed: int) -> np.ndarray:
    # By name, so that a weight does not depend on what others there are.
    random = np.random.default_rng([seed, *name.encode()])
    return (deviation * random.standard_normal(shape)).astype(np.float32)


def from_published(
    tensors: Mapping[str, np.ndarray], config: Any, *, seed: int, place: str
) -> Tuple[Weights, List[str]]:
    """Published weights for this model, whatever head they were published with.

    An encoder alone or one with another head gets a new head, BERT without a pooler a new one; a
    classifier for other classes is made anew. A vocabulary that grew gets new rows.

    Args:
      tensors: name to array, such as `hf_files.read_directory` gives; read one by one.
      config: of the model to fill.
      seed: of what is new.
      place: to name in errors, such as "--init_from=DIR".

    Returns:
      The weights, and a line for people on each thing that is new or left out.

    Raises:
      DataError: tensors are missing, left over, or of another shape; names them.
    """
    found = check_published(tensors, config, place=place, may_grow=True)
    weights: Weights = {}
    notes = list(found.new.values())
    if found.left_out:
        notes.append(f"left out, of other heads: {listed(found.left_out)}")
    for module in config.modules:
        if module.part in found.new:
            weights.update(_fresh_module(module, seed))
            continue
        for leaf, shape in module.leaves().items():
            value = _joined(tensors, found.names, module, leaf)
            if len(value) < shape[0]:
                if module.ours == "embeddings.tokens":
                    notes.append(
                        f"the vocabulary grows from {len(value):,} tokens to the set's "
                        f"{shape[0]:,}: new ones begin near the mean of the old"
                    )
                value = grown_rows(value, shape[0], seed=seed)
            weights[f"{module.ours}.{leaf}"] = value
    return weights, notes


def _joined(
    tensors: Mapping[str, np.ndarray], names: Mapping[str, str], module: Module, leaf: str
) -> np.ndarray:
    """One of our weights, of theirs; float32 and C-contiguous."""
    parts = [np.asarray(tensors[names[f"{theirs}.{leaf}"]]) for theirs in module.theirs]
    parts = [part.T if module.is_turned else part for part in parts]
    value = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return np.ascontiguousarray(value, np.float32)


def check_published(
    tensors: Mapping[str, np.ndarray], config: Any, *, place: str, may_grow: bool = False
) -> Found:
    """Refuses weights that are not those of a model; reads none of them.

    Args:
      tensors: name to array.
      config: of the model.
      place: to name in errors, such as "--init_from=DIR".
      may_grow: whether the vocabulary may be smaller than the model's.

    Raises:
      DataError: tensors are missing, left over, or of another shape; names them.
    """
    due = dict(_their_shapes(config))
    names, left_out = _names_found(tensors, due, config)
    new = _new_parts(tensors, names, config)
    lacking = {name for name, (module, _) in due.items() if module.part in new}
    check_names(set(due) - lacking, set(names) - lacking, place=place)
    for name in sorted(set(due) - lacking):
        module, shape = due[name]
        there = _shape(tensors, names[name])
        if may_grow and module.grows and there[:1] < shape[:1]:
            shape = (*there[:1], *shape[1:])
        check_shape(names[name], there, shape, place=place)
    return Found(names, new, left_out)


def _their_shapes(config: Any) -> Iterator[Tuple[str, Tuple[Module, Tuple[int, ...]]]]:
    """Every tensor of theirs: its module, and its shape in their files."""
    for module in config.modules:
        for leaf, shape in module.leaves().items():
            for theirs, rows in zip(module.theirs, module.rows):
                own = (rows, *shape[1:])
                yield f"{theirs}.{leaf}", (module, own[::-1] if module.is_turned else own)


def _names_found(
    tensors: Mapping[str, Any], due: Mapping[str, Any], config: Any
) -> Tuple[Dict[str, str], Tuple[str, ...]]:
    """Names of the whole model -> names in the file; and those of other heads.

    A model that was saved without its head has no prefix: `embeddings.LayerNorm.weight`. What
    repeats another tensor, or what nothing reads, is dropped where it was saved all the same.
    """
    is_bare = not any(name.startswith(config.base) for name in tensors)
    names, left_out = {}, []
    for name in tensors:
        is_whole = name in due or name in config.doubles or name.startswith(config.other_heads)
        whole = config.base + name if is_bare and not is_whole else name
        if whole.startswith(config.other_heads) and whole not in due:
            left_out.append(name)
        elif whole not in config.doubles:
            names[whole] = name
    return names, tuple(sorted(left_out))


def _new_parts(
    tensors: Mapping[str, np.ndarray], names: Mapping[str, str], config: Any
) -> Dict[str, str]:
    """Parts that are not there at all, or are for other classes -> a line for people."""
    new = {}
    for part in dict.fromkeys(module.part for module in config.modules if module.part):
        modules = [module for module in config.modules if module.part == part]
        held = [f"{t}.{leaf}" for m in modules for t in m.theirs for leaf in m.leaves()]
        held = [names[name] for name in held if name in names]
        if not held:
            new[part] = f"{part} is new"
        elif modules[0].is_classes and len(held) == 2:
            classes = modules[0].shape[0]
            if any(_shape(tensors, name)[:1] != (classes,) for name in held):
                new[part] = (
                    f"{part} tells other classes apart than the set's {classes}: it begins anew"
                )
    return new


def _shape(tensors: Mapping[str, np.ndarray], name: str) -> Tuple[int, ...]:
    known: Mapping[str, Tuple[int, ...]] = getattr(tensors, "shapes", {})
    return known[name] if name in known else tuple(np.shape(tensors[name]))


def to_published(weights: Mapping[str, Any], config: Any) -> Weights:
    """A model's weights as Hugging Face's state dict, float32 and C-contiguous.

    A tied output layer is not repeated. The dead bias of one that is not tied is written, since
    transformers misses it.
    """
    tensors: Weights = {}
    for module in config.modules:
        ends = np.cumsum(module.rows)[:-1]
        for leaf in module.leaves():
            value = np.asarray(weights[f"{module.ours}.{leaf}"])
            for theirs, part in zip(module.theirs, np.split(value, ends)):
                part = part.T if module.is_turned else part
                tensors[f"{theirs}.{leaf}"] = np.ascontiguousarray(part, np.float32)
    if not config.tied:
        for theirs, ours in config.doubles.items():
            tensors[theirs] = np.array(weights[ours], np.float32)
    return tensors


def to_layout(weights: Mapping[str, Any], config: Any, layout: Layout) -> Weights:
    """Weights under a framework's names and in its shapes, C-contiguous."""
    return {
        theirs: np.ascontiguousarray(np.asarray(weights[ours]).T if is_turned else weights[ours])
        for ours, theirs, is_turned in _places(config, layout)
    }


def from_layout(values: Mapping[str, Any], config: Any, layout: Layout) -> Weights:
    """Weights of a framework as ours; gradients too."""
    return {
        ours: np.ascontiguousarray(np.asarray(values[theirs]).T if is_turned else values[theirs])
        for ours, theirs, is_turned in _places(config, layout)
    }


def _places(config: Any, layout: Layout) -> Iterator[Tuple[str, str, bool]]:
    """Our name, the framework's, and whether one is the other's transpose."""
    for module in config.modules:
        for leaf in module.leaves():
            is_turned = layout.is_turned and module.kind in _MATRICES and leaf == "weight"
            theirs = f"{module.ours}.{layout.leaves[module.kind][leaf]}"
            yield f"{module.ours}.{leaf}", theirs, is_turned
