"""The classifier on Graphcore IPUs, by PopTorch 3.4: two programs, one on the IPUs at a time.

    model -> trainingModel  -> compile -> detach          (weights, accumulation, optimizer)
          -> inferenceModel -> compile -> detach
    then attach the one that is due, and detach it before the other.

Both share the host's copy of the weights: detaching the training program copies them back to the
host, attaching a program copies them to the IPUs.
"""

import functools
import warnings
from types import ModuleType
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor

from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.on_poptorch.config import Plan
from trainers.on_poptorch.encoder import EncoderLayer
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.optimizer import poptorch_optimizer, schedule_for
from trainers.on_poptorch.options import evaluation_options, place_blocks, training_options
from trainers.on_poptorch.placement import Placement
from trainers.on_poptorch.runner import Measured, Placed, Runner, example_rows, tensors_of

# float16 has nothing between 0 and 6e-8: BERT's 1e-12 would be 0, and a division by it.
HALF_EPSILON = 1e-6


class IpuRunner(Runner):
    """A model on IPUs."""

    kind = "ipu"

    def __init__(
        self,
        plan: Plan,
        placement: Placement,
        model: Classifier,
        steps: int,
        poptorch: ModuleType,
    ):
        """Prepares the module: blocks, loss, precision, optimizer. Nothing is compiled yet."""
        self.plan, self.placement, self.config = plan, placement, plan.config
        self.poptorch, self.model = poptorch, model
        self.evaluation_rows = placement.call_rows
        model.mark_loss = functools.partial(poptorch.identity_loss, reduction="none")
        for module in model.modules():
            if isinstance(module, EncoderLayer):
                module.fused_attention = False
        half = placement.precision == "float16"
        if half:
            model.half()
            for module in model.modules():
                if isinstance(module, torch.nn.LayerNorm):
                    module.eps = max(module.eps, HALF_EPSILON)
        place_blocks(poptorch, model, placement)
        self.optimizer = poptorch_optimizer(self.config, model, poptorch, half=half)
        self.schedule = schedule_for(self.config, self.optimizer, steps)
        self.training: Any = None
        self.inference: Any = None
        self.attached: Any = None
        self.random: Optional[List[int]] = None  # of the checkpoint that the run goes on from

    def compile(self, schema: Schema, *, trains: bool, evaluates: bool) -> None:
        """Compiles the programs that are due; none is on the IPUs after it.

        `train` and `eval` come before each: PopTorch sees the module as it is then.
        """
        tensors = self.place(example_rows(schema, self.placement.call_rows)).tensors
        if trains:
            self.model.train()
            options = training_options(self.poptorch, self.config, self.placement)
            self.training = self.poptorch.trainingModel(
                self.model, options=options, optimizer=self.optimizer
            )
            self.training.compile(*tensors)
            self.training.detachFromDevice()
            if self.random is not None:
                self.training.rng_state = self.random
        if evaluates:
            self.model.eval()
            options = evaluation_options(self.poptorch, self.config, self.placement)
            self.inference = self.poptorch.inferenceModel(self.model, options=options)
            self.inference.compile(*tensors[:3])
            self.inference.detachFromDevice()

    def place(self, rows: Batch) -> Placed:
        """Tensors on the host; PopTorch sends them to the IPUs."""
        return Placed(rows, tensors_of(rows, length=self.plan.schema.max_length))

    def train(self, placed: Placed, step: int) -> Measured:
        """As many steps as a call runs, with the learning rate of the first of them."""
        training = self._attach(self.training)
        count = self.placement.device_iterations
        rate = self.optimizer.param_groups[0]["lr"]
        training.setOptimizer(self.optimizer)
        losses = training(*placed.tensors)  # of every micro-batch, step by step
        with warnings.catch_warnings():
            # The schedule misses calls of the optimizer's step, which happen on the IPUs.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            for _ in range(count):
                self.schedule.step()
        return Measured(step, losses.float().reshape(count, -1).mean(dim=1), None, [rate] * count)

    def evaluate(self, placed: Placed) -> Tensor:
        """Logits of the rows."""
        return self._attach(self.inference)(*placed.tensors[:3]).float()

    def weights(self) -> Dict[str, Tensor]:
        """A copy, after the IPUs' have come back to the host."""
        if self.attached is not None and self.attached is self.training:
            self.training.copyWeightsToHost()
        return {name: w.detach().clone() for name, w in self.model.state_dict().items()}

    def _optimizer_state(self) -> Dict[str, Any]:
        # PopTorch reads the moments from the IPUs, or has read them when the program left them.
        return self.optimizer.state_dict()

    def state(self) -> Dict[str, Any]:
        """All that a checkpoint holds: here the IPUs' random numbers too, which dropout takes."""
        return dict(super().state(), random=list(self.training.rng_state))

    def restore(self, state: Dict[str, Any]) -> None:
        """Puts a checkpoint's state in place; before `compile`."""
        super().restore(state)
        self.random = state["random"]

    def _attach(self, wanted: Any) -> Any:
        """Puts one program on the IPUs, taking the other off first."""
        if self.attached is not wanted:
            if self.attached is not None:
                self.attached.detachFromDevice()
            wanted.attachToDevice()
            self.attached = wanted
        return wanted


def find_poptorch() -> Optional[ModuleType]:
    """PopTorch, if it is installed and finds an IPU."""
    try:
        import poptorch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return poptorch if poptorch.ipuHardwareIsAvailable() else None
