"""config.json of Hugging Face's GPT-2 and OPT, to and from our `DecoderConfig`. No framework."""

from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError
from trainers.on_flax.decoder_config import DecoderConfig
from trainers.on_flax.encoder_config import ACTIVATIONS

FAMILIES = ("gpt2", "opt")
# Settings of theirs that would make another model than ours, and the value ours has.
_FIXED = {
    "gpt2": {"add_cross_attention": False},
    "opt": {"enable_bias": True, "layer_norm_elementwise_affine": True},
}
_ABSENT: dict[str, dict[str, Any]] = {  # transformers' own, where config.json leaves one out
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    },
    "opt": {
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "ffn_dim": 3072,
        "word_embed_proj_dim": None,
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
}


def with_defaults(found: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with what it leaves to transformers filled in."""
    return {**_ABSENT[found["model_type"]], **found}


def decoder_config(found: Mapping[str, Any], *, dropout: float, place: str) -> DecoderConfig:
    """The model that a config.json describes.

    Args:
      found: its content, with a model_type of FAMILIES.
      dropout: for training; theirs is not taken over.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it has a switch that our decoder has not.
    """
    family = found["model_type"]
    for name, ours in _FIXED[family].items():
        if found.get(name, ours) != ours:
            raise UsageError(f"{place}: its {name} is {found[name]!r}, this decoder's is {ours!r}")
    theirs = with_defaults(found)
    activation = theirs["activation_function"]
    if activation not in ACTIVATIONS:
        raise UsageError(
            f"{place}: its activation_function is {activation!r}, this decoder has "
            f"{', '.join(sorted(ACTIVATIONS))}"
        )
    common = dict(
        family=family,
        vocab_size=theirs["vocab_size"],
        activation=activation,
        tied=theirs["tie_word_embeddings"],
        dropout=dropout,
    )
    if family == "gpt2":
        return DecoderConfig(
            max_positions=theirs["n_positions"],
            layers=theirs["n_layer"],
            hidden_size=theirs["n_embd"],
            embedding_size=theirs["n_embd"],
            heads=theirs["n_head"],
            intermediate_size=theirs["n_inner"] or 4 * theirs["n_embd"],
            layer_norm_epsilon=theirs["layer_norm_epsilon"],
            scale_attention=theirs["scale_attn_weights"],
            scale_by_layer=theirs["scale_attn_by_inverse_layer_idx"],
            **common,
        )
    before = theirs["do_layer_norm_before"]
    return DecoderConfig(
        max_positions=theirs["max_position_embeddings"],
        layers=theirs["num_hidden_layers"],
        hidden_size=theirs["hidden_size"],
        embedding_size=theirs["word_embed_proj_dim"] or theirs["hidden_size"],
        heads=theirs["num_attention_heads"],
        intermediate_size=theirs["ffn_dim"],
        norm_first=before,
        final_norm=before and not theirs["_remove_final_layer_norm"],
        **common,
    )


def config_json(
    config: DecoderConfig, special_ids: Mapping[str, int], prefix_ids: list[int]
) -> dict[str, Any]:
    """The config.json that transformers opens as this model.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
      prefix_ids: what every document of the training set began with; kept as a key of our own.
    """
    common: dict[str, Any] = {
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "activation_function": config.activation,
        "tie_word_embeddings": config.tied,
        "bos_token_id": prefix_ids[0] if prefix_ids else special_ids.get("bos"),
        "eos_token_id": special_ids.get("eos"),
        "pad_token_id": special_ids.get("pad"),
        "prefix_ids": prefix_ids,
        "dtype": "float32",
    }
    if config.family == "gpt2":
        return common | {
            "architectures": ["GPT2LMHeadModel"],
            "n_positions": config.max_positions,
            "n_layer": config.layers,
            "n_embd": config.hidden_size,
            "n_head": config.heads,
            "n_inner": config.intermediate_size,
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "scale_attn_weights": config.scale_attention,
            "scale_attn_by_inverse_layer_idx": config.scale_by_layer,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
        }
    return common | {
        "architectures": ["OPTForCausalLM"],
        "max_position_embeddings": config.max_positions,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden_size,
        "word_embed_proj_dim": config.embedding_size,
        "num_attention_heads": config.heads,
        "ffn_dim": config.intermediate_size,
        "do_layer_norm_before": config.norm_first,
        "_remove_final_layer_norm": config.norm_first and not config.final_norm,
        "dropout": config.dropout,
        "attention_dropout": config.dropout,
    }
