"""Dimensions and switches of an encoder with a classification head, and Hugging Face's names.

Standard library only, Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Tuple

from schemas.errors import UsageError

ARCHITECTURES = ("bert", "roberta", "electra")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is BERT's own, and
# electra_small ELECTRA's (arXiv:2003.10555), whose embedding is narrower than its hidden states.
PRESETS = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512},
    "small": {"layers": 4, "hidden_size": 512, "heads": 8, "intermediate_size": 2048},
    "base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 3072},
    "electra_small": {"layers": 12, "hidden_size": 256, "heads": 4, "intermediate_size": 1024},
}
ELECTRA_EMBEDDING = 128  # of ELECTRA's small model; wider ones have it as wide as hidden states


@dataclass(frozen=True)
class EncoderConfig:
    """An encoder of BERT's family, and its head.

    Attributes:
      architecture: bert, roberta or electra; decides the head and the names in files.
      vocab_size: V, rows of the embedding.
      embedding_size: of the embedding; ELECTRA projects it where it is not `hidden_size`.
      hidden_size: H, a multiple of `heads`.
      layers: encoder layers.
      heads: N.
      intermediate_size: width of the feed-forward block.
      position_rows: rows of the position table.
      position_offset: rows of it before that of position 0; RoBERTa's starts after its padding id.
      type_rows: rows of the token type table.
      activation: of the feed-forward block, by Hugging Face's name.
      layer_norm_epsilon: BERT's 1e-12.
      dropout: on embeddings and both residual branches.
      attention_dropout: on attention probabilities.
      classifier_dropout: before the head.
      classes: their names, in the order of their numbers.
    """

    architecture: str
    vocab_size: int
    embedding_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    position_rows: int
    position_offset: int
    type_rows: int
    activation: str
    layer_norm_epsilon: float
    dropout: float
    attention_dropout: float
    classifier_dropout: float
    classes: Tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        if self.architecture not in ARCHITECTURES:
            raise UsageError(
                f"architecture {self.architecture!r}: one of {', '.join(ARCHITECTURES)}"
            )
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.is_projected and self.architecture != "electra":
            raise UsageError(
                f"an embedding of {self.embedding_size} beside hidden states of "
                f"{self.hidden_size} is ELECTRA's; {self.architecture}'s is as wide as they are"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"the activation {self.activation!r} is not known: {', '.join(ACTIVATIONS)} are"
            )

    @property
    def max_positions(self) -> int:
        """The longest row it can place."""
        return self.position_rows - self.position_offset

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size


def from_config_json(
    found: Mapping[str, Any], *, classes: Tuple[str, ...], place: str
) -> EncoderConfig:
    """The encoder that a config.json describes.

    Args:
      found: config.json.
      classes: of the head.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it asks for something that is not built here, or lacks a dimension.
    """
    kind = found.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise UsageError(f"{place}: config.json asks for {kind} positions; absolute ones are built")
    if found.get("is_decoder") or found.get("add_cross_attention"):
        raise UsageError(f"{place}: config.json describes a decoder; an encoder is needed here")
    architecture = str(found.get("model_type"))
    dropout = float(found.get("hidden_dropout_prob", 0.1))
    classifier_dropout = found.get("classifier_dropout")
    try:
        return EncoderConfig(
            architecture=architecture,
            vocab_size=int(found["vocab_size"]),
            embedding_size=int(
                found.get("embedding_size", ELECTRA_EMBEDDING)
                if architecture == "electra"
                else found["hidden_size"]
            ),
            hidden_size=int(found["hidden_size"]),
            layers=int(found["num_hidden_layers"]),
            heads=int(found["num_attention_heads"]),
            intermediate_size=int(found["intermediate_size"]),
            position_rows=int(found["max_position_embeddings"]),
            position_offset=1 + int(found["pad_token_id"]) if architecture == "roberta" else 0,
            type_rows=int(found["type_vocab_size"]),
            activation=str(found.get("hidden_act", "gelu")),
            layer_norm_epsilon=float(found.get("layer_norm_eps", 1e-12)),
            dropout=dropout,
            attention_dropout=float(found.get("attention_probs_dropout_prob", 0.1)),
            classifier_dropout=dropout if classifier_dropout is None else float(classifier_dropout),
            classes=classes,
        )
    except KeyError as error:
        raise UsageError(f"{place}: config.json does not say {error.args[0]}") from None


_CLASS_NAMES = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}


def to_config_json(config: EncoderConfig, special_ids: Mapping[str, int]) -> Dict[str, Any]:
    """The config.json of this model, for `AutoModelForSequenceClassification`.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
    """
    found: Dict[str, Any] = {
        "model_type": config.architecture,
        "architectures": [f"{_CLASS_NAMES[config.architecture]}ForSequenceClassification"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.position_rows,
        "type_vocab_size": config.type_rows,
        "hidden_act": config.activation,
        "layer_norm_eps": config.layer_norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.classifier_dropout,
        "initializer_range": 0.02,
        "problem_type": "single_label_classification",
        "id2label": {str(number): name for number, name in enumerate(config.classes)},
        "label2id": {name: number for number, name in enumerate(config.classes)},
    }
    if config.architecture == "electra":
        found.update(
            embedding_size=config.embedding_size,
            summary_type="first",
            summary_use_proj=True,
            summary_activation="gelu",
            summary_last_dropout=config.classifier_dropout,
        )
    if config.architecture == "roberta":
        found["pad_token_id"] = config.position_offset - 1
    elif "pad" in special_ids:
        found["pad_token_id"] = special_ids["pad"]
    for role in ("bos", "eos"):
        if config.architecture == "roberta" and role in special_ids:
            found[f"{role}_token_id"] = special_ids[role]
    return found
