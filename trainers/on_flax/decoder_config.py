"""Dimensions and switches of a decoder. Standard library only."""

from dataclasses import dataclass

from schemas.errors import UsageError
from trainers.on_flax.encoder_config import ACTIVATIONS
from trainers.run.flags import at_least, share


@dataclass(frozen=True)
class DecoderConfig:
    """A GPT-2 or an OPT.

    Attributes:
      family: gpt2 or opt: whose names and whose config.json the weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      layers: decoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: width of the feed-forward block.
      embedding_size: E; where it is not H, projections lead in and out (OPT-350m).
      activation: of the feed-forward block, by Hugging Face's name.
      norm_first: LayerNorm before attention and feed-forward, not after (OPT-350m).
      final_norm: LayerNorm after the last layer.
      tied: the output layer is the embedding.
      scale_attention: logits of attention are divided by sqrt(D).
      scale_by_layer: and by the layer's number, from 1.
      dropout: on embeddings, attention probabilities and both residual branches.
      layer_norm_epsilon: 1e-5 in both.
    """

    family: str
    vocab_size: int
    max_positions: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    activation: str = "gelu_new"
    norm_first: bool = True
    final_norm: bool = True
    tied: bool = True
    scale_attention: bool = True
    scale_by_layer: bool = False
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model, and switches that its family does not have."""
        sizes = ("vocab_size", "max_positions", "layers", "hidden_size", "heads")
        for name in (*sizes, "intermediate_size", "embedding_size"):
            at_least(self, name, 1)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"--activation={self.activation} is not known: {', '.join(ACTIVATIONS)} are"
            )
        share(self, "dropout")
        if self.family == "gpt2":
            self._only("norm_first", True, "--norm=post", "OPT")
            self._only("final_norm", True, "no last LayerNorm", "OPT")
            self._only("embedding_size", self.hidden_size, "--embedding_size", "OPT")
        else:
            self._only("scale_attention", True, "unscaled attention", "GPT-2")
            self._only("scale_by_layer", False, "attention scaled by the layer", "GPT-2")
            self._only("layer_norm_epsilon", 1e-5, "another epsilon", "GPT-2")
            if not self.norm_first:
                self._only("final_norm", False, "a last LayerNorm after post-norm layers", "no")

    def _only(self, name: str, value: object, switch: str, other: str) -> None:
        if getattr(self, name) != value:
            raise UsageError(f"{switch}: {other} models have that, not {self.family}")

    @property
    def position_offset(self) -> int:
        """Rows of the position table before that of position 0: OPT's table begins at 2."""
        return 2 if self.family == "opt" else 0

    @property
    def position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_positions + self.position_offset

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        scale = (self.hidden_size // self.heads) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale
