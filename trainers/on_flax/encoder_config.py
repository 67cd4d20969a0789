"""Dimensions and switches of an encoder. Standard library only."""

from dataclasses import dataclass
from typing import Any

from schemas.errors import UsageError
from trainers.run.flags import at_least, share

# By Hugging Face's names; the last three are one formula, silu and swish too.
ACTIVATIONS = (
    *("relu", "tanh", "silu", "swish"),
    *("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
)
# What the families differ in besides their names of weights.
FAMILIES: dict[str, dict[str, Any]] = {
    "roberta": {"token_types": 1, "layer_norm_epsilon": 1e-5},
    "bert": {"token_types": 2, "layer_norm_epsilon": 1e-12},
    "electra": {"token_types": 2, "layer_norm_epsilon": 1e-12},
}


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and switches of an encoder.

    Attributes:
      family: roberta, bert or electra: whose names and config.json weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, at 2.
      layers: encoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: width of the feed-forward block.
      embedding_size: E; where it is not H, a projection leads in and the head leads out (ELECTRA).
      token_types: rows of the token type table.
      activation: of the feed-forward block, by Hugging Face's name.
      tied: the output layer is the embedding.
      dropout: on embeddings, attention probabilities and both residual branches.
      layer_norm_epsilon: RoBERTa's 1e-5, BERT's 1e-12.
    """

    family: str
    vocab_size: int
    max_positions: int
    position_offset: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    token_types: int = 1
    activation: str = "gelu"
    tied: bool = True
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        for name in ("vocab_size", "max_positions", "layers", "hidden_size", "heads"):
            at_least(self, name, 1)
        for name in ("intermediate_size", "embedding_size", "token_types"):
            at_least(self, name, 1)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.is_projected and self.family != "electra":
            raise UsageError(
                f"--embedding_size={self.embedding_size} is not --hidden_size={self.hidden_size}: "
                f"only --family=electra has a projection between them, not {self.family}"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"--activation={self.activation} is not known: {', '.join(ACTIVATIONS)} are"
            )
        share(self, "dropout")

    @property
    def position_rows(self) -> int:
        """Rows of the position table (Hugging Face: `max_position_embeddings`)."""
        return self.max_positions + self.position_offset

    @property
    def head_activation(self) -> str:
        """Of the output head: BERT's is that of its layers, the others' is always GELU."""
        return self.activation if self.family == "bert" else "gelu"

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size
