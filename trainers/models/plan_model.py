"""The model of a run, from its flags, the dataset and --init_from; the operations that it needs.

Errors are a UsageError if there is no such model, or it cannot read the dataset's rows, and a
DataError if published weights are broken or do not match their config.json.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import (
    Any,
    Iterator,
    Mapping,
    NamedTuple,
    get_args,
    get_type_hints,
)

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.hub import find_on_hub
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import quote
from textmill.trainers.flags.run_flags import ModelFlags, RunFlags
from textmill.trainers.models.families import ELECTRA_EMBEDDING, FAMILIES, Weights
from textmill.trainers.models.hf_files import Tensors, read_directory
from textmill.trainers.models.model_config import ModelConfig, with_dropout
from textmill.trainers.models.rope import Rope
from textmill.trainers.models.weights import (
    check_published,
    from_published,
    init_weights,
    keep_own_layer,
)

# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is BERT's and
# GPT-2's own, medium GPT-2's, and electra_small ELECTRA's (arXiv:2003.10555).
SIZES: dict[str, dict[str, Any]] = {
    "tiny": dict(layers=2, hidden_size=128, heads=2, intermediate_size=512),
    "small": dict(layers=4, hidden_size=512, heads=8, intermediate_size=2048),
    "base": dict(layers=12, hidden_size=768, heads=12, intermediate_size=3072),
    "medium": dict(layers=24, hidden_size=1024, heads=16, intermediate_size=4096),
    "gpt2": dict(layers=12, hidden_size=768, heads=12, intermediate_size=3072),
    "electra_small": dict(layers=12, hidden_size=256, heads=4, intermediate_size=1024),
    "modernbert_base": dict(
        family="modernbert", layers=22, hidden_size=768, heads=12, intermediate_size=1152
    ),
    "modernbert_large": dict(
        family="modernbert", layers=28, hidden_size=1024, heads=16, intermediate_size=2624
    ),
}
_COLUMNS = ("family", "layers", "hidden_size", "heads", "kv_heads", "head_size") + (
    "intermediate_size",
    "layer_norm_epsilon",
    "rope_theta",
    "tied",
    "window",
)
# Published models, with the numbers of their config.json, but for positions and their scaling.
for _name, *_values in (
    # family, layers, H, N, K, D, I, epsilon, theta, tied, window where it is not the family's
    ("smollm_135m", "llama", 30, 576, 9, 3, 64, 1536, 1e-5, 1e5, True),
    ("smollm_360m", "llama", 32, 960, 15, 5, 64, 2560, 1e-5, 1e5, True),
    ("smollm_1.7b", "llama", 24, 2048, 32, 32, 64, 8192, 1e-5, 1.3e5, True),
    ("llama_1b", "llama", 16, 2048, 32, 8, 64, 8192, 1e-5, 5e5, True),
    ("llama_3b", "llama", 28, 3072, 24, 8, 128, 8192, 1e-5, 5e5, True),
    ("llama_8b", "llama", 32, 4096, 32, 8, 128, 14336, 1e-5, 5e5, False),
    ("mistral_7b", "mistral", 32, 4096, 32, 8, 128, 14336, 1e-5, 1e4, False),
    ("qwen2_0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 1e-6, 1e6, True),
    ("qwen3_0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 1e-6, 1e6, True),
    ("qwen3_1.7b", "qwen3", 28, 2048, 16, 8, 128, 6144, 1e-6, 1e6, True),
    ("gemma3_270m", "gemma3_text", 18, 640, 4, 1, 256, 2048, 1e-6, 1e6, True, 512),
    ("gemma3_1b", "gemma3_text", 26, 1152, 4, 1, 256, 6912, 1e-6, 1e6, True, 512),
    ("gemma2_2b", "gemma2", 26, 2304, 8, 4, 256, 9216, 1e-6, 1e4, True),
    ("olmo2_1b", "olmo2", 16, 2048, 16, 16, 128, 8192, 1e-6, 5e5, False),
):
    SIZES[_name] = dict(zip(_COLUMNS, _values))
DROPOUT = 0.1  # default rate of new models
# Peak operations a second in bfloat16 without sparsity, by the name of a device in JAX; those of
# the makers' data sheets.
_PEAKS = {
    "A100": 312e12,
    "H100": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H200": 989e12,
    "H200 NVL": 835e12,
    "L4": 121e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


class PlannedModel(NamedTuple):
    """A model, with the tensors of --init_from and notes on its output layer and classes."""

    config: ModelConfig
    tensors: Tensors | None
    init_from: str | None
    notes: tuple[str, ...] = ()

    def first_weights(self, seed: int) -> tuple[Weights, list[str]]:
        """Weights before the first step, and notes on them."""
        if self.tensors is None:
            return init_weights(self.config, seed), []
        where = flag("init_from", self.init_from)
        weights, notes = from_published(self.tensors, self.config, seed=seed, where=where)
        return weights, [*self.notes, *notes]


def families_of(flags: ModelFlags) -> tuple[str, ...]:
    """The model families that a trainer accepts; the first is that of new models."""
    return get_args(get_args(get_type_hints(type(flags))["family"])[0])  # in an Optional


def plan_model(flags: RunFlags, schema: Schema) -> PlannedModel:
    """The model of flags, schema and --init_from; with classes in the schema, a classifier."""
    dimensions, init_from = flags.architecture, flags.files.init_from
    rate = flags.optimization.dropout
    classes, shards = tuple(schema.parameters.get("classes", ())), flags.data.shards
    if init_from is None:
        config = ModelConfig.new(**_new_dimensions(dimensions, schema), classes=classes)
        config = with_dropout(config, DROPOUT if rate is None else rate)
        config.check_fits(schema, where=flag("max_positions", config.max_positions), shards=shards)
        return PlannedModel(config, None, None)
    where = flag("init_from", init_from)
    directory = find_on_hub(init_from, field="init_from").path
    content, tensors = read_directory(directory, model_types=families_of(dimensions))
    config = ModelConfig.from_json(content, classes=classes, where=where)
    config, notes = keep_own_layer(tensors, config, where=where)
    norm = "pre" if config.norm_first else "post"
    _must_agree("norm", getattr(dimensions, "norm", None), norm, where)
    theta = config.rope and config.rope.rope_theta
    _must_agree("rope_theta", getattr(dimensions, "rope_theta", None), theta, where)
    for name, value in _dimension_flags(dimensions).items():
        _must_agree(name, value, getattr(config, name), where)
    if rate is None and FAMILIES[config.family].dropout_keys:  # config.json's rate is not read
        rate = DROPOUT
    config = config if rate is None else with_dropout(config, rate)
    check_published(tensors, config, where=where)
    # Rows beyond the dataset's vocabulary stay: tables are often padded to a round number.
    config = replace(config, vocab_size=max(config.vocab_size, schema.vocab_size))
    config.check_fits(schema, where=where, shards=shards)
    notes += _renamed_classes(content, classes)
    return PlannedModel(config, tensors, init_from, tuple(notes))


def _renamed_classes(content: Mapping[str, Any], classes: tuple[str, ...]) -> Iterator[str]:
    """A note if a published classifier has as many classes under other names."""
    labels = content.get("id2label")
    names = list(labels.values()) if isinstance(labels, dict) else []
    is_named = "SequenceClassification" in str(content.get("architectures"))
    if is_named and "LABEL_0" not in names and len(names) == len(classes) and names != [*classes]:
        yield (
            f"the classes of these weights are {quote(names)}; the head stays, and its outputs now "
            f"are {quote(list(classes))}, in this order"
        )


def _new_dimensions(flags: ModelFlags, schema: Schema) -> dict[str, Any]:
    size = {"family": flags.family or families_of(flags)[0], **SIZES[flags.model]}
    if flags.family not in (size["family"], None):
        raise UsageError(
            f"{flag('family', flags.family)}, but {flag('model', flags.model)} is a "
            f"{size['family']}: leave {flag('family')} out"
        )
    values = {"vocab_size": schema.vocab_size, "max_positions": schema.max_length, **size}
    row = FAMILIES[values["family"]]
    if row.always.get("is_gated") and "family" not in SIZES[flags.model]:
        # Two thirds of the width, rounded up: three matrices have as many weights as two.
        values["intermediate_size"] = -(-values["intermediate_size"] * 2 // (3 * 128)) * 128
    values.update(_dimension_flags(flags))
    theta, given = values.pop("rope_theta", None), getattr(flags, "rope_theta", None)
    theta = theta if given is None else given
    if theta is not None:
        values["rope"] = Rope(theta)
    if values["family"] == "roberta":
        values["position_offset"] = schema.special_ids.get("pad", -1) + 1
    if values["family"] == "electra" and values["hidden_size"] > 2 * ELECTRA_EMBEDDING:
        values.setdefault("embedding_size", values["hidden_size"])
    if getattr(flags, "norm", None) == "post":
        values.update(norm_first=False, final_norm=False)
    return values


def _dimension_flags(flags: ModelFlags) -> dict[str, Any]:
    """The fields of ModelConfig that have a flag of the same name, if it is set."""
    names = {field.name for field in fields(ModelConfig)}
    values = {name: getattr(flags, name, None) for name in sorted(names)}
    if values["tied"]:  # by default, config.json decides for published weights
        del values["tied"]
    return {name: value for name, value in values.items() if value is not None}


def _must_agree(name: str, given: object, value: object, where: str) -> None:
    if given not in (None, value):
        shown = flag(name, given if given is False else str(given))
        raise UsageError(f"{shown}, but the weights of {where} have {value}: leave the flag out")


def training_flops(config: ModelConfig, length: int, head_share: float = 1.0) -> float:
    """Operations for each token of a step, forward and backward.

    Six for each parameter of a matrix product, and 12 * T for each head dimension of each layer's
    attention (Chowdhery et al., "PaLM", 2022, arXiv:2204.02311, appendix B). T is the row's length
    or the window of the layer, whatever the segments are. Embeddings count where they are the
    output layer. Operations that are repeated to save memory do not count.

    `head_share` is the share of positions that the head computes.
    """
    body = head = 0
    for module in config.modules:
        if module.kind in ("linear", "matrix") or module.ours == "head.table":
            is_head = module.ours.split(".")[0] == "head"
            head += is_head * sum(module.rows) * module.width
            body += (not is_head) * sum(module.rows) * module.width
    if config.tied and not config.classes:
        head += config.vocab_size * config.embedding_size
    windows = [config.window_of(layer) or length for layer in range(config.layers)]
    attended = config.heads * config.head_size * sum(min(window, length) for window in windows)
    return 6 * (body + head_share * head) + 12 * attended


def peak_flops(device_kind: str) -> float | None:
    """The peak of a device in bfloat16: "NVIDIA H100 80GB HBM3" -> 989e12; None if not known."""
    kinds = [kind for kind in _PEAKS if re.search(rf"\b{kind}\b", device_kind)]
    if not kinds or "MIG" in device_kind:  # a part of a GPU
        return None
    return _PEAKS[max(kinds, key=len)]
