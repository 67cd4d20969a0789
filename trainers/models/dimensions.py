"""Dimensions and switches of a model. Python 3.8 syntax: their hints are read at run time.

families.py makes the modules with weights from them, and model_config.py checks them.
"""

from dataclasses import dataclass
from typing import Optional, Tuple

from textmill.trainers.models.rope import Rope


@dataclass(frozen=True)
class Dimensions:
    """An encoder or a decoder with its head, unchecked."""

    family: str  # a key of FAMILIES, which decides names and config.json of exported weights
    vocab_size: int  # V, rows of the embedding
    max_positions: int  # tokens of the longest segment
    layers: int
    hidden_size: int  # H, a multiple of `heads` in most families
    heads: int  # N
    intermediate_size: int  # I, width of the feed-forward block
    embedding_size: int  # E; if it is not H, there is a projection in and one out
    # K, a divisor of N; N / K heads share keys and values (Ainslie et al., "GQA", 2023,
    # arXiv:2305.13245).
    kv_heads: int
    head_size: int  # D, width of a head; H / N in families without a key for it
    activation: str  # of the feed-forward block, by Hugging Face's name
    tied: bool = True  # whether the output layer is the embedding
    dropout: float = 0.0  # on embeddings and both residual branches
    attention_dropout: float = 0.0  # on attention probabilities
    classifier_dropout: float = 0.0  # before the head of a classifier
    layer_norm_epsilon: float = 1e-5  # that of RoBERTa, GPT-2 and OPT; 1e-12 in BERT and ELECTRA
    # Rows of the position table before position 0: RoBERTa's positions start after its padding id,
    # OPT's at 2.
    position_offset: int = 0
    token_types: int = 0  # rows of the token type table of encoders
    # LayerNorm before attention and feed-forward, not after as in encoders and OPT-350m.
    norm_first: bool = False
    final_norm: bool = False  # LayerNorm after the last layer
    scale_attention: bool = True  # divide attention's logits by sqrt(D), or by sqrt(query_size)
    scale_by_layer: bool = False  # divide them also by the number of the layer, from 1
    # The feed-forward block is out(activation(gate) * up) (Shazeer, "GLU Variants", 2020,
    # arXiv:2002.05202).
    is_gated: bool = False
    rope: Optional[Rope] = None  # rotary positions; None for a table of positions
    local_rope: Optional[Rope] = None  # those of local layers; None for the same
    window: int = 0  # tokens that a token of a local layer attends to; 0 for no limit
    query_size: int = 0  # Gemma's query_pre_attn_scalar; 0 for D
    attention_softcap: float = 0.0  # c, if not 0: logits x of attention become c * tanh(x / c)
    logit_softcap: float = 0.0  # the same of the output's logits
    scale_embeddings: bool = False  # multiply embeddings by sqrt(H)
    # Which layers are local, repeated: (True, False) for every other, from the first.
    local_layers: Tuple[bool, ...] = (False,)
    classes: Tuple[str, ...] = ()  # names of the classes by number; none for a language model

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have a different width than hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_positions + self.position_offset
