"""The classifier as one PyTorch module: rows of ids in, logits or the loss out.

Legend: B rows, L tokens, H width of the hidden states, C classes.
"""

from typing import Callable, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.models.encoder import EncoderConfig
from trainers.on_poptorch.encoder import HIDDEN_SCORE, Embeddings, EncoderLayer


def _unmarked(loss: Tensor) -> Tensor:
    return loss


class Classifier(nn.Module):
    """An encoder and a classifier on its first token, as BERT's or ELECTRA's.

    BERT: dense, tanh, dropout, output. ELECTRA: dropout, dense, gelu, dropout, output.

    Attributes:
      mark_loss: what the loss goes through; PopTorch's `identity_loss` on IPUs, where it tells
        which tensor the backward pass starts from.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList([EncoderLayer(config) for _ in range(config.layers)])
        self.head = Head(config)
        self.mark_loss: Callable[[Tensor], Tensor] = _unmarked

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        token_type_ids: Tensor,
        labels: Optional[Tensor] = None,
    ) -> Tensor:
        """Logits f32 [B, C]; or with labels the mean loss of the rows, f32 [].

        Args:
          input_ids: int32 [B, L].
          segment_ids: int32 [B, L]; 0 is padding, which no token attends to.
          token_type_ids: int32 [B, L]; zeros where rows have one text.
          labels: int32 [B].
        """
        hidden_BxLxH = self.embeddings(input_ids, token_type_ids)
        hidden = (segment_ids == 0).to(hidden_BxLxH.dtype) * HIDDEN_SCORE
        scores_Bx1x1xL = hidden[:, None, None, :]
        for layer in self.layers:
            hidden_BxLxH = layer(hidden_BxLxH, scores_Bx1x1xL)
        logits_BxC = self.head(hidden_BxLxH[:, 0])
        if labels is None:
            return logits_BxC
        return self.mark_loss(functional.cross_entropy(logits_BxC, labels.long()))


class Head(nn.Module):
    """The classifier on the hidden states of the first token."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.is_electra = config.architecture == "electra"
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out = nn.Linear(config.hidden_size, len(config.classes))

    def forward(self, first_BxH: Tensor) -> Tensor:
        """Logits f32 [B, C]."""
        if self.is_electra:
            dense = functional.gelu(self.dense(self.dropout(first_BxH)))
        else:
            dense = torch.tanh(self.dense(first_BxH))
        return self.out(self.dropout(dense)).float()
