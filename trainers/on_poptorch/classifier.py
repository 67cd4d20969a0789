"""The classifier as one PyTorch module, and what it learns.

Legend: B rows, L tokens, H width of the hidden states, C classes.
"""

from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.data.batches import Batch
from trainers.models.model_config import ModelConfig
from trainers.on_poptorch.module_program import Inputs, ModuleObjective
from trainers.on_poptorch.torch_encoder import HIDDEN_SCORE, EncoderLayer, TorchEmbeddings
from trainers.run.program import Arrays
from trainers.tasks.classification import LABEL, LOGITS

TEXT_INPUTS = ("input_ids", "segment_ids", "token_type_ids")


def classifier_arrays(rows: Batch) -> Arrays:
    """The module's arguments, int32: TEXT_INPUTS [B, L] and the labels [B], in this order.

    Where rows have no token types or labels these are zeros: a compiled model takes the same
    arguments always.
    """
    none_BxL = np.zeros_like(rows["input_ids"])
    arrays = {name: rows.get(name, none_BxL) for name in TEXT_INPUTS}
    arrays[LABEL] = rows.get(LABEL, none_BxL[:, 0])
    return {name: array.astype(np.int32) for name, array in arrays.items()}


class Classifier(nn.Module):
    """An encoder and a classifier on its first token."""

    def __init__(self, config: ModelConfig, mark_loss: Optional[Callable[[Tensor], Tensor]] = None):
        """Takes PopTorch's `identity_loss`, which marks where the backward pass starts, on IPUs."""
        super().__init__()
        self._mark_loss, on_ipus = mark_loss, mark_loss is not None
        self.embeddings = TorchEmbeddings(config)
        self.layers = nn.ModuleList([EncoderLayer(config, on_ipus) for _ in range(config.layers)])
        self.head = Head(config, on_ipus)

    @property
    def blocks(self) -> List[Tuple[str, nn.Module]]:
        """What lies on one device as a whole, in the order of the computation."""
        layers = [(f"layer {index}", layer) for index, layer in enumerate(self.layers)]
        return [("embeddings", self.embeddings), *layers, ("classifier", self.head)]

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        token_type_ids: Tensor,
        label: Optional[Tensor] = None,
    ) -> Tensor:
        """Logits f32 [B, C]; or with labels, on IPUs, the mean loss of the rows, f32 [].

        Inputs are as `classifier_arrays` gives them; segment 0 is padding, which no token attends
        to.
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
    gelu for tanh.
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
        """Logits f32 [B, C]."""
        if self.drops_first:
            first_BxH = self.dropout(first_BxH)
        dense_BxH = self.dropout(self.activation(self.dense(first_BxH)))
        if self._on_ipus:  # which know no autocast
            return self.out(dense_BxH).float()
        # Of logits that are rounded to bfloat16 too many are equal.
        with torch.autocast(dense_BxH.device.type, enabled=False):
            return self.out(dense_BxH.float())


class ClassifierObjective(ModuleObjective):
    """Cross-entropy of the classes, each row with the weight of its class."""

    def __init__(self, config: ModelConfig, class_weights: Sequence[float]):
        super().__init__(Classifier(config))
        self._class_weights = np.asarray(class_weights, np.float32)

    def prepare(self, rows: Batch) -> Tuple[Arrays, float]:
        """Arguments of the module and the rows' weights f32 [B]; the sum of these."""
        arrays = classifier_arrays(rows)
        weights_B = self._class_weights[arrays[LABEL]]
        return dict(arrays, weights=weights_B), float(weights_B.sum(dtype=np.float64))

    def loss(self, inputs: Inputs) -> Tensor:
        """The weighted cross-entropies of the rows, added up."""
        logits_BxC, label_B = self._logits(inputs), inputs[LABEL].long()
        losses_B = functional.cross_entropy(logits_BxC, label_B, reduction="none")
        return (losses_B * inputs["weights"]).sum()

    def evaluate(self, inputs: Inputs) -> Dict[str, Tensor]:
        """Logits f32 [B, C]."""
        return {LOGITS: self._logits(inputs)}

    def _logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.module(*(inputs[name] for name in TEXT_INPUTS))
