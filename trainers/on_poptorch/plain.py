"""The classifier on plain PyTorch, where there is no IPU."""

from typing import Any, Dict

import torch
from torch import Tensor

from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.on_poptorch.config import Plan
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.optimizer import schedule_for, torch_optimizer
from trainers.on_poptorch.placement import Placement
from trainers.on_poptorch.runner import Measured, Placed, Runner, tensors_of


class PlainRunner(Runner):
    """A model on the CPU or a GPU."""

    kind = "plain"

    def __init__(self, plan: Plan, placement: Placement, model: Classifier, steps: int):
        """Takes the model to its device."""
        self.plan, self.placement, self.config = plan, placement, plan.config
        self.device = torch.device(placement.device)
        self.model = model.to(self.device)
        self.evaluation_rows = placement.batch_size
        self.optimizer = torch_optimizer(self.config, model)
        self.schedule = schedule_for(self.config, self.optimizer, steps)

    def compile(self, schema: Schema, *, trains: bool, evaluates: bool) -> None:
        """Nothing: PyTorch runs operators one by one."""

    def place(self, rows: Batch) -> Placed:
        """Tensors on the device."""
        tensors = tensors_of(rows, length=self.plan.schema.max_length)
        if self.device.type == "cuda":
            pinned = (tensor.pin_memory() for tensor in tensors)
            tensors = tuple(t.to(self.device, non_blocking=True) for t in pinned)
        return Placed(rows, tensors)

    def train(self, placed: Placed, step: int) -> Measured:
        """One step: micro-batches one after another, then the optimizer."""
        # Dropout is a function of (seed, step): a resumed run draws what an unbroken one does.
        torch.manual_seed(self.config.seed << 32 | step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        count = self.placement.accumulation
        micro_batches = zip(*(tensor.chunk(count) for tensor in placed.tensors))
        total = torch.zeros((), device=self.device)
        for tensors in micro_batches:
            with self._autocast():
                loss = self.model(*tensors) / count
            loss.backward()
            total += loss.detach()
        limit = self.config.clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.schedule.step()
        return Measured(step, total[None], norm, [rate])

    def evaluate(self, placed: Placed) -> Tensor:
        """Logits of the rows."""
        self.model.eval()
        with torch.no_grad(), self._autocast():
            return self.model(*placed.tensors[:3]).cpu()

    def weights(self) -> Dict[str, Tensor]:
        """A copy."""
        return {name: w.detach().cpu().clone() for name, w in self.model.state_dict().items()}

    def _optimizer_state(self) -> Dict[str, Any]:
        return self.optimizer.state_dict()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            device_type=self.device.type,
            dtype=torch.bfloat16,
            enabled=self.placement.precision == "bfloat16",
        )
