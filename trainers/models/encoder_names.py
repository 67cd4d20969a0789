"""An encoder's weights by Hugging Face's names: what there is, of which shape, new or published.

Ours -> theirs is one table of modules; their linear layers hold [out, in]. Query, key and value are
apart there and one module here. Values are numpy, float32, under their names; each framework's
folder turns them into its own. Python 3.8 syntax.
"""

from typing import Dict, List, Mapping, NamedTuple, Set, Tuple

import numpy as np

from trainers.models.encoder import EncoderConfig
from trainers.models.hf_files import check_names, check_shape, grown_rows

Weights = Dict[str, np.ndarray]

# The first is part of the published encoder (BERT's pooler), the others are the classifier's.
_HEAD = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
}
_QKV = ("query", "key", "value")
# What else a model may be published with, for other work than classification; it is left out.
_OTHER_HEADS = (
    "cls.",
    "discriminator_predictions.",
    "generator_lm_head.",
    "generator_predictions.",
    "lm_head.",
    "qa_outputs.",
    "roberta.pooler.",
)


class Module(NamedTuple):
    """A module of the encoder with weights.

    Attributes:
      ours: "layers.0.mlp_in".
      theirs: ("bert.encoder.layer.0.intermediate.dense",); of "layers.0.qkv" there are three.
      kind: table (a weight), norm or linear (a weight and a bias).
      shape: of the weight of one of theirs: [rows, width], [width] or [out, in].
    """

    ours: str
    theirs: Tuple[str, ...]
    kind: str
    shape: Tuple[int, ...]

    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Leaf -> shape: {"weight": (out, in), "bias": (out,)}."""
        if self.kind == "table":
            return {"weight": self.shape}
        return {"weight": self.shape, "bias": self.shape[:1]}


def encoder_modules(config: EncoderConfig) -> List[Module]:
    """All modules that have weights, from the embedding to the head."""
    hidden, width, wide = config.hidden_size, config.embedding_size, config.intermediate_size
    prefix = config.architecture
    tables = {
        "tokens": ("word_embeddings", config.vocab_size),
        "positions": ("position_embeddings", config.position_rows),
        "token_types": ("token_type_embeddings", config.type_rows),
    }
    layer = {
        "attention_out": ("attention.output.dense", "linear", (hidden, hidden)),
        "attention_norm": ("attention.output.LayerNorm", "norm", (hidden,)),
        "mlp_in": ("intermediate.dense", "linear", (wide, hidden)),
        "mlp_out": ("output.dense", "linear", (hidden, wide)),
        "mlp_norm": ("output.LayerNorm", "norm", (hidden,)),
    }
    modules = [
        Module(f"embeddings.{ours}", (f"{prefix}.embeddings.{theirs}",), "table", (rows, width))
        for ours, (theirs, rows) in tables.items()
    ]
    modules.append(Module("embeddings.norm", (f"{prefix}.embeddings.LayerNorm",), "norm", (width,)))
    if config.is_projected:
        theirs = (f"{prefix}.embeddings_project",)
        modules.append(Module("embeddings.projection", theirs, "linear", (hidden, width)))
    for index in range(config.layers):
        ours, theirs = f"layers.{index}", f"{prefix}.encoder.layer.{index}"
        parts = tuple(f"{theirs}.attention.self.{part}" for part in _QKV)
        modules.append(Module(f"{ours}.qkv", parts, "linear", (hidden, hidden)))
        modules += [
            Module(f"{ours}.{name}", (f"{theirs}.{their_name}",), kind, shape)
            for name, (their_name, kind, shape) in layer.items()
        ]
    dense, out = _HEAD[prefix]
    modules.append(Module("head.dense", (dense,), "linear", (hidden, hidden)))
    modules.append(Module("head.out", (out,), "linear", (len(config.classes), hidden)))
    return modules


def shapes(config: EncoderConfig) -> Dict[str, Tuple[int, ...]]:
    """Their name of every tensor -> the shape that this configuration asks for."""
    return {
        f"{theirs}.{leaf}": shape
        for module in encoder_modules(config)
        for theirs in module.theirs
        for leaf, shape in module.shapes().items()
    }


def fresh(config: EncoderConfig, seed: int) -> Weights:
    """Weights before the first step, by their names: normal of deviation 0.02, zero biases."""
    return {name: _fresh(name, shape, seed) for name, shape in shapes(config).items()}


def _fresh(name: str, shape: Tuple[int, ...], seed: int) -> np.ndarray:
    if "LayerNorm" in name:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, np.float32)
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    # By name, so that a weight does not depend on what others there are.
    random = np.random.default_rng([seed, *name.encode()])
    return (0.02 * random.standard_normal(shape)).astype(np.float32)


def pretrained(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, *, seed: int, place: str
) -> Tuple[Weights, List[str]]:
    """Published weights for this model, whatever head they were published with.

    An encoder alone or one with another head gets a new classifier, BERT without a pooler a new
    one; a classifier for other classes is made anew. A vocabulary that grew gets new rows.

    Args:
      tensors: as `hf_files.read_directory` gives them.
      config: of the model to fill, for the vocabulary and classes of the shards.
      seed: of new weights.
      place: to name in errors, such as "--init_from=DIR".

    Returns:
      The weights by their names, and a line for each part that is new.

    Raises:
      DataError: tensors are missing, left over, or of another shape; names them.
    """
    prefix, due = config.architecture, shapes(config)
    is_bare = not any(name.startswith(f"{prefix}.") for name in tensors)
    # A bare encoder's files have no prefix: their full name -> the file's.
    found = {f"{prefix}.{name}" if is_bare else name: name for name in tensors}
    left_out = {name for name in found if name.startswith(_OTHER_HEADS)}
    check_names(set(due) - _absent_head(config, found), set(found) - left_out, place=place)
    values = {name: tensors[found[name]] for name in due if name in found}
    notes = []
    table = f"{prefix}.embeddings.word_embeddings.weight"
    if len(values[table]) < config.vocab_size:
        notes.append(
            f"the vocabulary grew from {len(values[table]):,} to {config.vocab_size:,}: new rows "
            "of the embedding begin near the mean of the old"
        )
        values[table] = grown_rows(values[table], config.vocab_size, seed=seed)
    out = _HEAD[prefix][1]
    if len(values.get(f"{out}.bias", config.classes)) != len(config.classes):
        notes.append(f"{out} tells other classes apart than the shards' {len(config.classes)}")
        del values[f"{out}.weight"], values[f"{out}.bias"]
    for name in sorted(set(due) - set(values)):
        notes.append(f"{name} is new")
        values[name] = _fresh(name, due[name], seed)
    for name, value in values.items():
        check_shape(name, value, due[name], place=place)
    return values, notes


def _absent_head(config: EncoderConfig, found: Mapping[str, str]) -> Set[str]:
    """Tensors of those layers of the head of which nothing is there; half a layer is an error."""
    modules = {name.rsplit(".", 1)[0] for name in found}
    absent = [module for module in _HEAD[config.architecture] if module not in modules]
    return {f"{module}.{leaf}" for module in absent for leaf in ("weight", "bias")}
