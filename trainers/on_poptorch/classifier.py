"""BERT, RoBERTa and ELECTRA as classifiers in PyTorch.

Modules are named as in `trainers.models`. Legend: B rows, L tokens, E width of the embedding, H of
the hidden states, N heads, C classes.
"""

from __future__ import annotations

import functools
from typing import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from textmill.trainers.data.batches import Batch
from textmill.trainers.models.families import ACTIVATIONS
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.tasks.classification import LABEL

# Added to the scores of padding. float16 can hold -10,000, exp() of it is 0 in every precision, and
# a row of padding only gives a mean instead of NaN.
HIDDEN_SCORE = -1e4
FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh_gelu": functools.partial(functional.gelu, approximate="tanh"),
}


class TorchEmbeddings(nn.Module):
    """Sum of tokens, positions and token types, normed, and projected if E is not H."""

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
        """Hidden states [B, L, H]; the example starts at position 0."""
        first, length = self.position_offset, input_ids_BxL.shape[1]
        summed = self.tokens(input_ids_BxL) + self.token_types(token_type_ids_BxL)
        summed = summed + self.positions.weight[first : first + length]
        return self.projection(self.dropout(self.norm(summed)))


class EncoderLayer(nn.Module):
    """Self-attention inside the example, then the feed-forward block, each with a norm after."""

    def __init__(self, config: ModelConfig, on_ipus: bool):
        super().__init__()
        hidden, wide = config.hidden_size, config.intermediate_size
        # Numbers, since tracing turns sizes of tensors into operators.
        self.parts = (3, config.heads, hidden // config.heads)
        self.scale = config.attention_scale(0)
        self.attention_dropout = config.attention_dropout
        # For PopTorch attention is separate matrix products and a softmax, which it compiles.
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


TEXT_INPUTS = ("input_ids", "segment_ids", "token_type_ids")


def classifier_arrays(rows: Batch) -> Arrays:
    """The module's arguments, int32: TEXT_INPUTS [B, L] and the labels [B], in this order.

    Missing token types or labels are zeros, since a compiled model always takes the same arguments.
    """
    none_BxL = np.zeros_like(rows["input_ids"])
    arrays = {name: rows.get(name, none_BxL) for name in TEXT_INPUTS}
    arrays[LABEL] = rows.get(LABEL, none_BxL[:, 0])
    return {name: array.astype(np.int32) for name, array in arrays.items()}


class Classifier(nn.Module):
    """An encoder and a classifier on its first token."""

    def __init__(self, config: ModelConfig, mark_loss: Callable[[Tensor], Tensor] | None = None):
        """On IPUs, `mark_loss` is PopTorch's `identity_loss`: the backward pass starts there."""
        super().__init__()
        self._mark_loss, on_ipus = mark_loss, mark_loss is not None
        self.embeddings = TorchEmbeddings(config)
        self.layers = nn.ModuleList([EncoderLayer(config, on_ipus) for _ in range(config.layers)])
        self.head = Head(config, on_ipus)

    @property
    def blocks(self) -> list[tuple[str, nn.Module]]:
        """Names and modules that are not split over devices, in order of computation."""
        layers = [(f"layer {index}", layer) for index, layer in enumerate(self.layers)]
        return [("embeddings", self.embeddings), *layers, ("classifier", self.head)]

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        token_type_ids: Tensor,
        label: Tensor | None = None,
    ) -> Tensor:
        """Float32 logits [B, C]; on IPUs with labels the mean loss of the rows, f32 [].

        Inputs are those of `classifier_arrays`; no token attends to padding, segment 0.
        """
        hidden_BxLxH = self.embeddings(input_ids, token_type_ids)
        hidden = (segment_ids == 0).to(hidden_BxLxH.dtype) * HIDDEN_SCORE
        scores_Bx1x1xL = hidden[:, None, None, :]
        for layer in self.layers:
            hidden_BxLxH = layer(hidden_BxLxH, scores_Bx1x1xL)
        logits_BxC = self.head(hidden_BxLxH[:, 0])
        if label is None or self._mark_loss is None:
            return logits_BxC
        return self._mark_loss(functional.cross_entropy(logits_BxC, label.long()))


class Head(nn.Module):
    """The classifier on the hidden states of the first token.

    BERT: dense, tanh, dropout, output. RoBERTa: dropout before that, too. ELECTRA: as RoBERTa, with
    GELU instead of tanh.
    """

    def __init__(self, config: ModelConfig, on_ipus: bool):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out = nn.Linear(config.hidden_size, len(config.classes))
        self.drops_first = config.family != "bert"
        self.activation = functional.gelu if config.family == "electra" else torch.tanh
        self._on_ipus = on_ipus

    def forward(self, first_BxH: Tensor) -> Tensor:
        """Float32 logits [B, C]."""
        if self.drops_first:
            first_BxH = self.dropout(first_BxH)
        dense_BxH = self.dropout(self.activation(self.dense(first_BxH)))
        if self._on_ipus:  # without autocast
            return self.out(dense_BxH).float()
        # Logits rounded to bfloat16 would tie too often.
        with torch.autocast(dense_BxH.device.type, enabled=False):
            return self.out(dense_BxH.float())
