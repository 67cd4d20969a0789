"""What the loop asks of a device, be it an IPU or plain PyTorch."""

from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.placement import Placement


class Placed(NamedTuple):
    """Rows of a call.

    Attributes:
      rows: as the reader gave them.
      tensors: what the model takes, labels last, int32.
    """

    rows: Batch
    tensors: Tuple[Tensor, ...]


class Measured(NamedTuple):
    """What a call measured; tensors, so that nobody waits for them before they are read.

    Attributes:
      step: steps that were done before it.
      losses: f32 [D], of each step.
      gradient_norm: f32 [], before clipping; None where the device does not tell.
      rates: learning rate of each step.
    """

    step: int
    losses: Tensor
    gradient_norm: Optional[Tensor]
    rates: List[float]


def tensors_of(rows: Batch, *, length: int) -> Tuple[Tensor, ...]:
    """The model's arguments: input_ids, segment_ids, token_type_ids [B, L] and labels [B], int32.

    Where rows have no token types or labels these are zeros: a compiled model takes the same
    arguments always.
    """
    none = np.zeros((len(rows["input_ids"]), length), np.int32)
    arrays = [rows.get(name, none) for name in ("input_ids", "segment_ids", "token_type_ids")]
    arrays.append(rows.get("label", none[:, 0]))
    return tuple(torch.from_numpy(array.astype(np.int32)) for array in arrays)


def example_rows(schema: Schema, rows: int) -> Batch:
    """Rows of zeros with the contract's shapes and dtypes, to compile with."""
    return {f.name: np.zeros((rows,) + f.shape, f.dtype) for f in schema.features}


class Runner(ABC):
    """A model on a device, with its optimizer and schedule.

    Attributes:
      kind: plain or ipu; checkpoints of one do not go on as the other.
      placement: how rows are shared out.
      evaluation_rows: rows an evaluation call takes.
    """

    kind: str
    placement: Placement
    evaluation_rows: int
    model: Classifier
    optimizer: torch.optim.Optimizer
    schedule: LambdaLR

    @abstractmethod
    def compile(self, schema: Schema, *, trains: bool, evaluates: bool) -> None:
        """Compiles what is due from the contract's shapes, before the first batch."""

    @abstractmethod
    def place(self, rows: Batch) -> Placed:
        """Makes tensors of rows; called in the reader's thread."""

    @abstractmethod
    def train(self, placed: Placed, step: int) -> Measured:
        """Runs the steps after `step`, one or several."""

    @abstractmethod
    def evaluate(self, placed: Placed) -> Tensor:
        """Logits f32 [rows, C] on the CPU."""

    @abstractmethod
    def weights(self) -> Dict[str, Tensor]:
        """The weights now, on the CPU, not to be changed by later steps."""

    @abstractmethod
    def _optimizer_state(self) -> Dict[str, Any]:
        """The optimizer's state now."""

    def state(self) -> Dict[str, Any]:
        """All that a checkpoint holds."""
        return {
            "kind": self.kind,
            "model": self.weights(),
            "optimizer": self._optimizer_state(),
            "schedule": {"last_epoch": self.schedule.last_epoch},
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Puts a checkpoint's state in place; before `compile`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        # The rate of the next step is in the optimizer's groups: of this schedule, not the stored.
        self.schedule.last_epoch = done = state["schedule"]["last_epoch"]
        rates = zip(self.schedule.base_lrs, self.schedule.lr_lambdas)
        for group, (base, share) in zip(self.optimizer.param_groups, rates):
            group["lr"] = base * share(done)
