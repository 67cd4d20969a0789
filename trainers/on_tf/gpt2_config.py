"""Dimensions and switches of a GPT-2, and Hugging Face's names. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import UsageError

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
# gpt2 is Radford et al.'s smallest; the others are for machines without an accelerator.
PRESETS = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 2},
    "small": {"layers": 4, "hidden_size": 256, "heads": 4},
    "gpt2": {"layers": 12, "hidden_size": 768, "heads": 12},
}


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """A GPT-2.

    Attributes:
      vocab_size: V, rows of the embedding, which is the output layer too unless `tied` is False.
      max_positions: the longest segment it can place.
      layers: blocks.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: width of the feed-forward block.
      activation: of that block, by Hugging Face's name.
      layer_norm_epsilon: GPT-2's 1e-5.
      scale_attention: logits of attention are divided by the root of H / N.
      scale_by_layer: and by the layer's number, from 1.
      tied: the output layer is the embedding.
      dropout: on embeddings, attention probabilities and both residual branches.
    """

    vocab_size: int
    max_positions: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    activation: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attention: bool = True
    scale_by_layer: bool = False
    tied: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        for name in ("vocab_size", "max_positions", "layers", "hidden_size", "heads"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name}={getattr(self, name)}: must be at least 1")
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"the activation {self.activation!r} is not known: {', '.join(ACTIVATIONS)} are"
            )

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        scale = (self.hidden_size // self.heads) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale


def from_config_json(found: Mapping[str, Any], *, dropout: float, place: str) -> Gpt2Config:
    """The GPT-2 that a config.json describes; what it leaves out is as in transformers.

    Args:
      found: config.json.
      dropout: for training; theirs is not taken over.
      place: to name in errors, such as "--init_from=DIR".

    Raises:
      UsageError: it asks for something that is not built here.
    """
    if found.get("add_cross_attention"):
        raise UsageError(f"{place}: config.json asks for cross-attention, which is not built here")
    hidden = int(found.get("n_embd", 768))
    return Gpt2Config(
        vocab_size=int(found.get("vocab_size", 50257)),
        max_positions=int(found.get("n_positions", 1024)),
        layers=int(found.get("n_layer", 12)),
        hidden_size=hidden,
        heads=int(found.get("n_head", 12)),
        intermediate_size=int(found.get("n_inner") or 4 * hidden),
        activation=str(found.get("activation_function", "gelu_new")),
        layer_norm_epsilon=float(found.get("layer_norm_epsilon", 1e-5)),
        scale_attention=bool(found.get("scale_attn_weights", True)),
        scale_by_layer=bool(found.get("scale_attn_by_inverse_layer_idx", False)),
        tied=bool(found.get("tie_word_embeddings", True)),
        dropout=dropout,
    )


def to_config_json(config: Gpt2Config, special_ids: Mapping[str, int]) -> dict[str, Any]:
    """The config.json of this model, for `AutoModelForCausalLM`.

    Args:
      config: of the model.
      special_ids: role to id, as in the contract.
    """
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_positions": config.max_positions,
        "n_layer": config.layers,
        "n_embd": config.hidden_size,
        "n_head": config.heads,
        "n_inner": config.intermediate_size,
        "activation_function": config.activation,
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "scale_attn_weights": config.scale_attention,
        "scale_attn_by_inverse_layer_idx": config.scale_by_layer,
        "tie_word_embeddings": config.tied,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "initializer_range": 0.02,
        "dtype": "float32",
        **{f"{role}_token_id": special_ids.get(role) for role in ("bos", "eos", "pad")},
    }
