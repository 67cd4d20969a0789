"""Weights between this encoder and Hugging Face's, by one table of names, and fresh ones.

A PyTorch linear layer stores [out, in], Keras [in, out]; theirs has query, key and value apart,
ours in one. All else is a change of names. Gradients translate the same way as weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainers.hf_files import check_names, check_shape, grown_rows
from trainers.on_tf.encoder import Encoder
from trainers.on_tf.encoder_config import EncoderConfig

Weights = dict[str, np.ndarray]

_TOP = {
    "tokens/embeddings": "embeddings.word_embeddings.weight",
    "positions/embeddings": "embeddings.position_embeddings.weight",
    "token_types/embeddings": "embeddings.token_type_embeddings.weight",
    "embedding_norm/gamma": "embeddings.LayerNorm.weight",
    "embedding_norm/beta": "embeddings.LayerNorm.bias",
}
_PROJECTION = {
    "projection/kernel": "embeddings_project.weight",
    "projection/bias": "embeddings_project.bias",
}
_LAYER = {
    "attention_out/kernel": "attention.output.dense.weight",
    "attention_out/bias": "attention.output.dense.bias",
    "attention_norm/gamma": "attention.output.LayerNorm.weight",
    "attention_norm/beta": "attention.output.LayerNorm.bias",
    "mlp_in/kernel": "intermediate.dense.weight",
    "mlp_in/bias": "intermediate.dense.bias",
    "mlp_out/kernel": "output.dense.weight",
    "mlp_out/bias": "output.dense.bias",
    "mlp_norm/gamma": "output.LayerNorm.weight",
    "mlp_norm/beta": "output.LayerNorm.bias",
}
# The first is part of the published encoder (BERT's pooler), the others are the classifier's.
_HEAD = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
}
_QKV = ("query", "key", "value")


def names(config: EncoderConfig) -> dict[str, tuple[str, ...]]:
    """Our weight -> theirs; the fused query-key-value has three."""
    prefix = config.architecture
    table = {ours: (f"{prefix}.{theirs}",) for ours, theirs in _TOP.items()}
    if config.is_projected:
        table.update({ours: (f"{prefix}.{theirs}",) for ours, theirs in _PROJECTION.items()})
    for index in range(config.layers):
        layer = f"{prefix}.encoder.layer.{index}"
        for ours, theirs in _LAYER.items():
            table[f"layer_{index}/{ours}"] = (f"{layer}.{theirs}",)
        for ours, theirs in (("kernel", "weight"), ("bias", "bias")):
            parts = tuple(f"{layer}.attention.self.{part}.{theirs}" for part in _QKV)
            table[f"layer_{index}/qkv/{ours}"] = parts
    for ours, module in zip(("head_dense", "head_out"), _HEAD[prefix], strict=True):
        table[f"{ours}/kernel"] = (f"{module}.weight",)
        table[f"{ours}/bias"] = (f"{module}.bias",)
    return table


def shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Their name -> the shape that this configuration asks for."""
    hidden, width, wide = config.hidden_size, config.embedding_size, config.intermediate_size
    table = {
        "word_embeddings.weight": (config.vocab_size, width),
        "position_embeddings.weight": (config.position_rows, width),
        "token_type_embeddings.weight": (config.type_rows, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
        "embeddings_project.weight": (hidden, width),
        "intermediate.dense.weight": (wide, hidden),
        "intermediate.dense.bias": (wide,),
        "attention.output.dense.weight": (hidden, hidden),
        "output.dense.weight": (hidden, wide),
        f"{_HEAD[config.architecture][1]}.weight": (len(config.classes), hidden),
        f"{_HEAD[config.architecture][1]}.bias": (len(config.classes),),
    }

    def shape(theirs: str) -> tuple[int, ...]:
        for end, found in table.items():
            if theirs.endswith(end):
                return found
        square = theirs.endswith(".weight") and "LayerNorm" not in theirs
        return (hidden, hidden) if square else (hidden,)

    return {theirs: shape(theirs) for parts in names(config).values() for theirs in parts}


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
    return from_hugging_face(
        {name: _fresh(name, shape, seed) for name, shape in shapes(config).items()}, config
    )


def _fresh(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    if "LayerNorm" in name:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    # By name, so that a weight does not depend on what others there are.
    random = np.random.default_rng([seed, *name.encode()])
    return (0.02 * random.standard_normal(shape)).astype(np.float32)


def pretrained(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, *, seed: int, place: str
) -> tuple[Weights, list[str]]:
    """Published weights for this model, whatever head they were published with.

    An encoder alone (`BertModel`) or one with another head gets a new classifier; RoBERTa and
    ELECTRA publish no pooler that is used here, BERT may lack its own (`BertForMaskedLM`). A
    vocabulary that grew gets new rows.

    Args:
      tensors: as `hf_files.read_directory` gives them.
      config: of the model to fill, for the vocabulary and classes of the shards.
      seed: of new weights.
      place: to name in errors, such as "--init_from=DIR".

    Returns:
      The weights, and a line for each part that is new.

    Raises:
      DataError: tensors are missing, left over, or of another shape; names them.
    """
    prefix = config.architecture + "."
    is_bare = not any(name.startswith(prefix) for name in tensors)
    # Theirs by our full name: a bare encoder's files have no prefix.
    found = {prefix + name if is_bare else name: name for name in tensors}
    due = shapes(config)
    notes = []
    heads = {name for name in due if name.startswith(_HEAD[config.architecture])}
    encoder = {name for name in found if name.startswith(prefix)}
    unused = {name for name in encoder - set(due) if name.startswith(f"{prefix}pooler.")}
    check_names(set(due) - heads, encoder - heads - unused, place=place)
    values = {name: tensors[found[name]] for name in set(due) - heads}
    table = f"{prefix}embeddings.word_embeddings.weight"
    if len(values[table]) < config.vocab_size:
        notes.append(
            f"the vocabulary grew from {len(values[table]):,} to {config.vocab_size:,}: new rows "
            "of the embedding begin near the mean of the old"
        )
        values[table] = grown_rows(values[table], config.vocab_size, seed=seed)
    for name in sorted(heads):
        value = tensors[found[name]] if name in found else None
        if value is None or value.shape != due[name]:
            notes.append(f"{name} is new")
            value = _fresh(name, due[name], seed)
        values[name] = value
    for name, value in values.items():
        check_shape(name, value, due[name], place=place)
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
