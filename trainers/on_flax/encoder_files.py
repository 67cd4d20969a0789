"""config.json of Hugging Face's BERT, RoBERTa and ELECTRA, to and from our `ModelConfig`.

Standard library only.
"""

from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError
from trainers.on_flax.encoder_config import ACTIVATIONS, ModelConfig

ARCHITECTURES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "electra": "ElectraForMaskedLM",
}
# Settings of theirs that would make another model than ours, and the value ours has.
_FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
_ABSENT: dict[str, Any] = {  # transformers' own, where config.json leaves one out
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
_ABSENT_OF = {
    "bert": {},
    "roberta": {"vocab_size": 50265, "pad_token_id": 1},
    "electra": {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "embedding_size": 128,
    },
}


def encoder_config(found: Mapping[str, Any], *, dropout: float, place: str) -> ModelConfig:
    """The model that a config.json describes.

    Args:
      found: its content, with a model_type of ARCHITECTURES.
      dropout: for training; theirs is not taken over.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it has a switch that our encoder has not.
    """
    family = found["model_type"]
    for name, ours in _FIXED.items():
        if found.get(name, ours) != ours:
            raise UsageError(f"{place}: its {name} is {found[name]!r}, this encoder's is {ours!r}")
    theirs = {**_ABSENT, **_ABSENT_OF[family], **found}
    if theirs["hidden_act"] not in ACTIVATIONS:
        raise UsageError(
            f"{place}: its hidden_act is {theirs['hidden_act']!r}, this encoder has "
            f"{', '.join(sorted(ACTIVATIONS))}"
        )
    offset = theirs["pad_token_id"] + 1 if family == "roberta" else 0
    return ModelConfig(
        family=family,
        vocab_size=theirs["vocab_size"],
        max_positions=theirs["max_position_embeddings"] - offset,
        position_offset=offset,
        layers=theirs["num_hidden_layers"],
        hidden_size=theirs["hidden_size"],
        heads=theirs["num_attention_heads"],
        intermediate_size=theirs["intermediate_size"],
        embedding_size=theirs["embedding_size"] if family == "electra" else theirs["hidden_size"],
        token_types=theirs["type_vocab_size"],
        activation=theirs["hidden_act"],
        tied=theirs["tie_word_embeddings"],
        dropout=dropout,
        layer_norm_epsilon=theirs["layer_norm_eps"],
    )


def config_json(config: ModelConfig, special_ids: Mapping[str, int]) -> dict[str, Any]:
    """The config.json that transformers opens as this model.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
    """
    found: dict[str, Any] = {
        "architectures": [ARCHITECTURES[config.family]],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.position_rows,
        "type_vocab_size": config.token_types,
        "hidden_act": config.activation,
        "layer_norm_eps": config.layer_norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "tie_word_embeddings": config.tied,
        "bos_token_id": special_ids.get("bos"),
        "eos_token_id": special_ids.get("eos"),
        "pad_token_id": special_ids.get("pad"),
        "dtype": "float32",
    }
    if config.family == "roberta":
        # transformers derives the positions of RoBERTa from this id.
        found["pad_token_id"] = config.position_offset - 1
    if config.family == "electra":
        found["embedding_size"] = config.embedding_size
    return found
