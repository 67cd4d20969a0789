"""Weights of a model: new, from and to Hugging Face's format, from and to a framework's layout.

    weights = init_weights(config, seed=0)            # "layers.0.qkv.weight": float32 [3H, H]
    weights, notes = from_published(tensors, config, seed=0, where="--init_from=DIR")
    tensors = to_published(weights, config)           # a state dict of transformers
    kernels = to_layout(weights, config, FLAX)        # "layers.0.qkv.kernel": [H, 3H]

All functions follow the table `ModelConfig.modules`. Gradients convert like weights. Errors begin
with `where`, such as "--init_from=DIR".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

import numpy as np

from textmill.schemas.errors import DataError
from textmill.trainers.models.families import LEAVES, NORMAL, Module, Weights
from textmill.trainers.models.hf_files import FLOATS
from textmill.trainers.models.model_config import ModelConfig

_VOCABULARY = ("embeddings.tokens", "head", "head.table")  # a row for each token
_SHOWN = 5  # names in an error, before "and so many more"


class Layout(NamedTuple):
    """How a framework names and stores weights."""

    # Kind of module -> our leaf -> its own: {"linear": {"weight": "kernel", ...}, ...}.
    leaves: Mapping[str, Mapping[str, str]]
    is_turned: bool  # whether its linear layers are [in, out]


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight: {"layers.0.qkv.weight": (3H, H), ...}."""
    return {f"{m.ours}.{leaf}": shape for m in config.modules for leaf, shape in m.leaves.items()}


def init_weights(config: ModelConfig, seed: int) -> Weights:
    """Initial weights: normal random numbers, zero biases, norms that are the identity."""
    return {
        f"{module.ours}.{leaf}": _init_weight(module, leaf, shape, seed)
        for module in config.modules
        for leaf, shape in module.leaves.items()
    }


def _init_weight(module: Module, leaf: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    constant = LEAVES[module.kind][leaf]
    if constant is not NORMAL:
        return np.full(shape, constant, np.float32)
    draws = []
    for theirs, rows in zip(module.theirs, module.rows):
        # Seeded by name, so that a weight does not depend on the others.
        random = np.random.default_rng([seed, *f"{theirs}.{leaf}".encode()])
        draws.append(module.deviation * random.standard_normal((rows, *shape[1:])))
    return np.concatenate(draws).astype(np.float32)


def from_published(
    tensors: Mapping[str, np.ndarray], config: ModelConfig, *, seed: int, where: str
) -> tuple[Weights, list[str]]:
    """Published weights for this model, whatever their head.

    A model without the head, without BERT's pooler, or with a classifier for other classes gets a
    new one. A vocabulary that grew gets new rows. Notes report this and ignored tensors. Tensors
    are read one by one.

    Raises:
      DataError: tensors are missing, unexpected, of a different shape, or not finite; names them.
    """
    names, ignored, new = check_published(tensors, config, where=where, may_grow=True)
    notes = list(new.values())
    if ignored:
        notes.append(f"ignored tensors of other heads: {_list_names(ignored)}")
    weights: Weights = {}
    for module in config.modules:
        for leaf, shape in module.leaves.items():
            if module.part in new:
                weights[f"{module.ours}.{leaf}"] = _init_weight(module, leaf, shape, seed)
                continue
            stored = [names[f"{theirs}.{leaf}"] for theirs in module.theirs]
            parts = [_read_finite(tensors, name, where) for name in stored]
            value = np.concatenate([part.T if module.is_turned else part for part in parts])
            if len(value) < shape[0]:
                if module.ours == "embeddings.tokens":
                    notes.append(
                        f"the vocabulary grows from {len(value):,} tokens to the dataset's "
                        f"{shape[0]:,}: new embeddings start near the mean of the old ones"
                    )
                value = resize_embeddings(value, shape[0], seed=seed)
            weights[f"{module.ours}.{leaf}"] = np.ascontiguousarray(value, np.float32)
    return weights, notes


def _read_finite(tensors: Mapping[str, np.ndarray], name: str, where: str) -> np.ndarray:
    value = tensors[name]
    odd = value.size - np.count_nonzero(np.isfinite(value))
    if odd:
        dtype = getattr(tensors, "dtypes", {}).get(name)
        remedy = "copy the directory again, or give other weights"
        if dtype == "F16":
            remedy = (
                "float16 holds no number above 65,504, so convert the original weights to "
                "bfloat16 or float32"
            )
        raise DataError(
            f"{where}: {odd:,} of the {value.size:,} numbers of {name} are NaN or infinite in "
            f"float32: {remedy}"
        )
    return value


def keep_own_layer(
    tensors: Mapping[str, np.ndarray], config: ModelConfig, *, where: str
) -> tuple[ModelConfig, list[str]]:
    """The model with the output layer that a file has, tied by config.json or not, and notes.

    Like transformers, it keeps an output layer whose values are not those of the embedding, and
    adds the bias of the output layer, not the head's. An equal copy stays tied.

    Raises:
      DataError: config.json has more layers than there are tensors.
    """
    _check_layers(tensors, config, where)
    if not config.tied:
        return config, []
    names, notes = _names_in_model(tensors, config), []
    for name, other in config.doubles.items():
        if name not in names or other not in names:
            continue
        stored, its = names[name], names[other]
        if np.array_equal(tensors[stored], tensors[its]):
            continue
        if name.endswith(".weight"):
            config = replace(config, tied=False)
            notes.append(
                f"{stored} differs from {its}, though config.json ties them: the model keeps both"
            )
        else:
            notes.append(f"{stored} differs from {its}: the output layer adds {stored}")
    return config, notes


def _check_layers(tensors: Mapping[str, Any], config: ModelConfig, where: str) -> None:
    if config.layers > len(tensors):  # before the modules of all layers are listed
        raise DataError(
            f"{where}: config.json has {config.layers:,} layers, but there are only {len(tensors)} "
            "tensors: give the directory of a whole model"
        )


def check_published(
    tensors: Mapping[str, np.ndarray], config: ModelConfig, *, where: str, may_grow: bool = False
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Refuses weights that do not fit a model; reads no tensor.

    `may_grow`: the vocabulary of the model may be larger.

    Returns:
      Names in the model -> names in the file; names in the file of heads that the model ignores;
      parts that the file lacks and that start new -> a note.

    Raises:
      DataError: tensors are missing, unexpected, of a different shape, or not floats; names them.
    """
    _check_layers(tensors, config, where)
    modules = config.modules
    expected = {name: shape for module in modules for name, shape in module.tensors.items()}
    names, ignored = _match_names(tensors, expected, config)
    all_shapes = getattr(tensors, "shapes", None) or {n: np.shape(tensors[n]) for n in tensors}
    present = {name: all_shapes[theirs] for name, theirs in names.items()}
    new = _new_parts(present, modules)
    for module in modules:
        for name in module.tensors:
            if module.part in new:
                del expected[name]
                present.pop(name, None)
            elif may_grow and module.ours in _VOCABULARY and name in present:
                expected[name] = (*min(present[name][:1], expected[name][:1]), *expected[name][1:])
    problems, dtypes = [], getattr(tensors, "dtypes", {})
    if set(expected) - set(present):
        problems.append(f"it lacks {_list_names(set(expected) - set(present))}")
    if set(present) - set(expected):
        problems.append(f"it has the unknown {_list_names(set(present) - set(expected))}")
    for name in sorted(set(expected) & set(present)):
        if present[name] != expected[name]:
            problems.append(f"{names[name]} has shape {present[name]} instead of {expected[name]}")
        elif dtypes.get(names[name], FLOATS[0]) not in FLOATS:
            problems.append(f"{names[name]} holds {dtypes[names[name]]}, not {', '.join(FLOATS)}")
    if problems:
        raise DataError(
            f"{where}: the weights do not fit their config.json: {'; '.join(problems[:_SHOWN])}. "
            "Give the directory of a whole model of this kind"
        )
    return names, ignored, new


def _list_names(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _match_names(
    tensors: Mapping[str, Any], expected: Mapping[str, Any], config: ModelConfig
) -> tuple[dict[str, str], list[str]]:
    """Names in the model -> names in the file; and names in the file of other heads.

    Copies of other tensors and tensors that no model reads are skipped.
    """
    names, doubles = _names_in_model(tensors, config), config.doubles
    others = [n for n in names if n.startswith(config.other_heads) and n not in expected]
    ignored = [names.pop(name) for name in others if name not in doubles]
    for double, name in doubles.items():
        stored = names.pop(double, None)
        adds = config.tied and double.endswith(".bias")  # the output layer's own
        if stored is not None and (adds or name not in names):
            names[name] = stored
    return names, ignored


def _names_in_model(tensors: Mapping[str, Any], config: ModelConfig) -> dict[str, str]:
    """Names in the model, of doubles and other heads too -> names in the file.

    A model that was saved without its head has no prefix: `embeddings.LayerNorm.weight`.
    """
    whole = {name for module in config.modules for name in module.tensors} | {*config.doubles}
    is_bare = not any(name.startswith(config.base) for name in tensors)

    def in_model(name: str) -> str:
        is_whole = name in whole or name.startswith(config.other_heads)
        return config.base + name if is_bare and not is_whole else name

    return {in_model(name): name for name in sorted(tensors)}


def _new_parts(present: Mapping[str, tuple[int, ...]], modules: list[Module]) -> dict[str, str]:
    """Parts that the file lacks, or has for other classes, with notes; half a part is an error."""
    parts = {module.part for module in modules if any(name in present for name in module.tensors)}
    new = {m.part: f"{m.part} is new" for m in modules if m.part and m.part not in parts}
    for module in modules:
        rows = [present[name][:1] for name in module.tensors if name in present]
        if module.ours == "head.out" and len(rows) == 2 and set(rows) != {module.rows}:
            other = f"is for other classes than the dataset's {module.rows[0]}"
            new[module.part] = f"{module.part} {other}: it starts new"
    return new


def resize_embeddings(table: np.ndarray, rows: int, *, seed: int) -> np.ndarray:
    """Embeddings for a vocabulary that grew: f32 [old rows, ...] -> [rows, ...].

    New rows follow the old ones. They are normal random numbers with the mean and a tenth of the
    standard deviation of each old column (Hewitt, "Initializing New Word Embeddings for Pretrained
    Language Models", 2021).
    """
    more = (rows - len(table), *table.shape[1:])
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    new = mean + 0.1 * deviation * np.random.RandomState(seed).standard_normal(more)
    return np.concatenate([table, new.astype(table.dtype)])


def to_published(weights: Mapping[str, Any], config: ModelConfig) -> Weights:
    """A model's weights as Hugging Face's state dict, float32 and C-contiguous.

    A tied output layer is not repeated. The unused bias of an untied one is written, since
    transformers expects it.
    """
    tensors: Weights = {}
    for module in config.modules:
        ends = np.cumsum(module.rows)[:-1]
        for leaf in module.leaves:
            parts = np.split(np.asarray(weights[f"{module.ours}.{leaf}"]), ends)
            for theirs, part in zip(module.theirs, parts):
                part = part.T if module.is_turned else part
                tensors[f"{theirs}.{leaf}"] = np.ascontiguousarray(part, np.float32)
    for unused, name in {} if config.tied else config.doubles.items():
        tensors[unused] = tensors[name].copy()
    return tensors


def to_layout(weights: Mapping[str, Any], config: ModelConfig, layout: Layout) -> Weights:
    """Weights with a framework's names and shapes, as views."""
    names = layout_names(config, layout)
    return {
        theirs: weights[ours].T if is_turned else weights[ours] for ours, theirs, is_turned in names
    }


def from_layout(values: Mapping[str, Any], config: ModelConfig, layout: Layout) -> Weights:
    """A framework's weights with our names and shapes, C-contiguous."""
    names = layout_names(config, layout)
    return {ours: _lay_out(values[theirs], is_turned) for ours, theirs, is_turned in names}


def _lay_out(value: Any, is_turned: bool) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(value).T if is_turned else value)


def layout_names(config: ModelConfig, layout: Layout) -> Iterator[tuple[str, str, bool]]:
    """For each weight our name, the framework's, and whether one is the transpose of the other."""
    for module in config.modules:
        for leaf in module.leaves:
            is_matrix = module.kind in ("linear", "matrix") and leaf == "weight"
            theirs = f"{module.ours}.{layout.leaves[module.kind][leaf]}"
            yield f"{module.ours}.{leaf}", theirs, layout.is_turned and is_matrix
