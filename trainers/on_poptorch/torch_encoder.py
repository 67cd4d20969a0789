"""The parts of BERT, RoBERTa and ELECTRA as PyTorch modules, named as `trainers.models` names them.

Legend: B rows, L tokens, E width of the embedding, H of the hidden states, N heads.
"""

import functools
from typing import Callable, Dict

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.models.model_config import ModelConfig
from trainers.models.modules import ACTIVATIONS

# Added to the scores of padding. exp(-10,000) is 0 in every precision, float16 can hold it, and a
# row that is all padding gives a mean instead of not-a-number.
HIDDEN_SCORE = -1e4
FORMULAS: Dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh_gelu": functools.partial(functional.gelu, approximate="tanh"),
}


class TorchEmbeddings(nn.Module):
    """Tokens, positions and token types, added up, normed, and projected where E is not H."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        width = config.embedding_size
        self.position_offset = config.position_offset
        self.tokens = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.position_rows, width)
        self.token_types = nn.Embedding(config.token_types, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        projected = config.is_projected
        self.projection = nn.Linear(width, config.hidden_size) if projected else nn.Identity()

    def forward(self, input_ids_BxL: Tensor, token_type_ids_BxL: Tensor) -> Tensor:
        """Hidden states [B, L, H]; the example starts at the row's first place."""
        first, length = self.position_offset, input_ids_BxL.shape[1]
        summed = self.tokens(input_ids_BxL) + self.token_types(token_type_ids_BxL)
        summed = summed + self.positions.weight[first : first + length]
        return self.projection(self.dropout(self.norm(summed)))


class EncoderLayer(nn.Module):
    """Self-attention inside the example, then the feed-forward block; norms come after each."""

    def __init__(self, config: ModelConfig, on_ipus: bool):
        super().__init__()
        hidden, wide = config.hidden_size, config.intermediate_size
        # Numbers, not sizes of tensors, of which tracing would make operators.
        self.parts = (3, config.heads, hidden // config.heads)
        self.scale = config.attention_scale(0)
        self.attention_dropout = config.attention_dropout
        # PopTorch is known to compile it taken apart into matrix products and a softmax.
        self.fused_attention = not on_ipus
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attention_out = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.mlp_in = nn.Linear(hidden, wide)
        self.mlp_out = nn.Linear(wide, hidden)
        self.mlp_norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.activation = FORMULAS[ACTIVATIONS[config.activation]]

    def forward(self, hidden_BxLxH: Tensor, scores_Bx1x1xL: Tensor) -> Tensor:
        """New hidden states [B, L, H]; scores are 0 on the example, HIDDEN_SCORE on padding."""
        attended = self.attention_out(self._attend(hidden_BxLxH, scores_Bx1x1xL))
        hidden_BxLxH = self.attention_norm(self.dropout(attended) + hidden_BxLxH)
        fed = self.mlp_out(self.activation(self.mlp_in(hidden_BxLxH)))
        return self.mlp_norm(self.dropout(fed) + hidden_BxLxH)

    def _attend(self, hidden_BxLxH: Tensor, scores_Bx1x1xL: Tensor) -> Tensor:
        rows, length, _ = hidden_BxLxH.shape
        parts = self.qkv(hidden_BxLxH).view(rows, length, *self.parts)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # each [B, N, L, H / N]
        rate = self.attention_dropout if self.training else 0.0
        if self.fused_attention:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=scores_Bx1x1xL.to(query.dtype), dropout_p=rate
            )
        else:
            scores = torch.matmul(query * self.scale, key.transpose(2, 3)) + scores_Bx1x1xL
            weights = functional.dropout(torch.softmax(scores, dim=-1), rate, self.training)
            mixed = torch.matmul(weights, value)
        return mixed.transpose(1, 2).flatten(2)
