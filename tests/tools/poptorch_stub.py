"""A stand-in for PopTorch 3.4, which is on no package index: its names and rules, on the CPU.

It rejects what PopTorch rejects: two programs attached at once, options that are changed after a
program has them, other shapes than the compiled ones. Like IPUs it has weights and an optimizer of
its own, in float32: what is not copied back to the host is not there.

    with installed() as poptorch:        # `import poptorch` finds it
        ...
    poptorch.executors["training"]       # what it made
"""

import copy
import enum
import functools
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

Reduction = enum.Enum("Reduction", ["Sum", "Mean", "NoReduction"])
Output = enum.Enum("Output", ["All", "Final", "EveryN", "Sum"])
Stage = enum.Enum("Stage", ["SameAsIpu", "AutoIncrement"])


class Stub(ModuleType):
    """The module, with what it made.

    Attributes:
      executors: the program of each kind, training or inference.
      blocks: (user_id, ipu_id) in the order in which the last trace met them.
      rates: learning rate of each step that the IPUs ran.
      attached: the program on the IPUs.
    """

    def __init__(self) -> None:
        super().__init__("poptorch")
        self.executors: dict[str, Executor] = {}
        self.blocks: list[tuple[str, int]] = []
        self.rates: list[float] = []
        self.attached: Executor | None = None
        self.OutputMode, self.ReductionType, self.AutoStage = Output, Reduction, Stage
        self.Options, self.PipelinedExecution = Options, lambda stage: stage
        self.optim = SimpleNamespace(AdamW=AdamW, SGD=SGD)
        self.identity_loss = lambda losses, reduction: losses
        self.ipuHardwareIsAvailable = lambda num_ipus=1: True

    def __deepcopy__(self, _) -> "Stub":
        return self  # modules are copied, what they refer to is not

    def BeginBlock(self, layer_to_call: torch.nn.Module, user_id: str, ipu_id: int):
        layer_to_call.register_forward_pre_hook(lambda *_: self.blocks.append((user_id, ipu_id)))

    def trainingModel(self, model, options: "Options", optimizer: "_Optimizer"):
        self.executors["training"] = Executor(self, model, options, optimizer)
        return self.executors["training"]

    def inferenceModel(self, model, options: "Options"):
        self.executors["inference"] = Executor(self, model, options, None)
        return self.executors["inference"]


class _Settings:
    """Methods that keep their argument by their name."""

    def __init__(self, *names: str):
        self.values: dict[str, Any] = {}
        self.is_frozen = False
        for name in names:
            setattr(self, name, functools.partial(self._keep, name))

    def _keep(self, name: str, value: Any) -> None:
        assert not self.is_frozen, f"{name}: a program has these options"
        self.values[name] = value


class Options(_Settings):
    """Options of a program, which freezes them."""

    def __init__(self):
        names = ("deviceIterations", "replicationFactor", "outputMode", "randomSeed")
        super().__init__(*names, "setExecutionStrategy", "enableExecutableCaching")
        self.Training = _Settings("gradientAccumulation", "accumulationAndReplicationReductionType")
        self.Precision = _Settings("enableStochasticRounding", "setPartialsType")

    def freeze(self) -> dict[str, Any]:
        """All values by their names, which no longer change."""
        parts = (self, self.Training, self.Precision)
        for part in parts:
            part.is_frozen = True
        return {name: value for part in parts for name, value in part.values.items()}


class _Optimizer(torch.optim.Optimizer):
    """PopTorch's optimizers have the IPUs' state by names of its own, beside PyTorch's.

    `ipu_state` is name -> tensor of all moments, `ipu_param` what is not learned, such as the
    learning rate; None before a program was on the IPUs.
    """

    of_ipus: tuple[str, ...]  # arguments that PyTorch does not have
    ipu: dict[str, Any] = {"ipu_state": None, "ipu_param": None}

    def __init__(self, params, **settings: Any):
        self.settings = dict(settings)
        for name in self.of_ipus:
            del settings[name]
        super().__init__(params, foreach=False, **settings)  # pyright: ignore[reportCallIssue]

    def state_dict(self):
        return {**self.ipu, **torch.optim.Optimizer.state_dict(self)}

    def load_state_dict(self, state_dict):
        torch.optim.Optimizer.load_state_dict(self, state_dict)
        self.ipu = {name: state_dict[name] for name in self.ipu}


class AdamW(_Optimizer, torch.optim.AdamW):
    of_ipus = (
        *("loss_scaling", "bias_correction", "accum_type", "max_grad_norm"),
        *("first_order_momentum_accum_type", "second_order_momentum_accum_type"),
    )


class SGD(_Optimizer, torch.optim.SGD):
    of_ipus = (
        *("loss_scaling", "use_combined_accum", "accum_type", "velocity_accum_type"),
        "max_grad_norm",
    )


class Executor:
    """A program, and what it has on the IPUs."""

    def __init__(self, stub: Stub, model, options: Options, optimizer: _Optimizer | None):
        self.stub, self.host, self.optimizer = stub, model, optimizer
        self.options = {"gradientAccumulation": 1, **options.freeze()}
        self.shapes: list[tuple] | None = None
        self.rng_state = [self.options.get("randomSeed", 0), 0]
        steps, replicas = self.options["deviceIterations"], self.options["replicationFactor"]
        self.steps, self.parts = steps, steps * replicas * self.options["gradientAccumulation"]

    def compile(self, *args):
        assert self.shapes is None and self.host.training == (self.optimizer is not None)
        self.shapes = [(part.shape, part.dtype) for part in args]
        self.device = copy.deepcopy(self.host).float()
        self.stub.blocks.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch 2.0 has nothing newer
            part = tuple(tensor[: len(tensor) // self.parts] for tensor in args)
            trace: Any = torch.jit.trace(self.device, part, check_trace=False)
        self.traced = {node.kind() for node in trace.inlined_graph.nodes()}
        if self.optimizer is not None:
            self._make_twin(self.optimizer)
        self.attachToDevice()

    def _make_twin(self, optimizer: _Optimizer) -> None:
        """PyTorch's optimizer of the weights on the IPUs; its first step makes its moments."""
        of = dict(zip(self.host.parameters(), self.device.parameters(), strict=True))
        groups = [
            dict(group, params=[of[p] for p in group["params"]]) for group in optimizer.param_groups
        ]
        kind: Any = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.SGD
        self.twin, self.given_rates = kind(groups), self._rates()
        for parameter in self.device.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.twin.step()
        for tensor in self._moments().values():
            tensor.zero_()
        optimizer.state_dict = self._optimizer_state

    def attachToDevice(self):
        assert self.shapes is not None, "the program is not compiled"
        assert self.stub.attached is None, "another program is on the IPUs"
        self.stub.attached = self
        self.device.load_state_dict(self.host.state_dict())
        if self.optimizer is not None and self.optimizer.ipu["ipu_state"] is not None:
            for name, tensor in self._moments().items():
                tensor.copy_(self.optimizer.ipu["ipu_state"][name])
            self._set_rates(self.optimizer.ipu["ipu_param"]["learningRate"].tolist())

    def detachFromDevice(self):
        if self.optimizer is not None:
            self.copyWeightsToHost()
            self._optimizer_state()
        assert self.stub.attached is self, "the program is not on the IPUs"
        self.stub.attached = None

    def copyWeightsToHost(self):
        assert self.stub.attached is self, "the program is not on the IPUs"
        self.host.load_state_dict(self.device.state_dict())

    def _optimizer_state(self):
        """The IPUs' own while the program is there; otherwise the last that was read."""
        assert self.optimizer is not None
        if self.stub.attached is self:
            rates = torch.tensor([group["lr"] for group in self.twin.param_groups])
            moments = {name: tensor.clone() for name, tensor in self._moments().items()}
            self.optimizer.ipu = {"ipu_state": moments, "ipu_param": {"learningRate": rates}}
        return type(self.optimizer).state_dict(self.optimizer)

    def _moments(self) -> dict[str, torch.Tensor]:
        return {
            f"{kind}___{name}": tensor
            for name, parameter in self.device.named_parameters()
            for kind, tensor in self.twin.state[parameter].items()
        }

    def _rates(self) -> list[float]:
        assert self.optimizer is not None
        return [group["lr"] for group in self.optimizer.param_groups]

    def _set_rates(self, rates: list[float]) -> None:
        for group, rate in zip(self.twin.param_groups, rates, strict=True):
            group["lr"] = rate

    def setOptimizer(self, optimizer: _Optimizer):
        """Copies learning rates, but only those that differ from the last that were given."""
        assert optimizer is self.optimizer
        if self._rates() != self.given_rates:
            self.given_rates = self._rates()
            self._set_rates(self.given_rates)

    def __call__(self, *args):
        assert self.stub.attached is self, "the program is not on the IPUs"
        assert [(part.shape, part.dtype) for part in args] == self.shapes, "not as compiled"
        parts = list(zip(*(part.chunk(self.parts) for part in args), strict=True))
        if self.optimizer is None:
            with torch.no_grad():
                return torch.cat([self.device.eval()(*part) for part in parts])
        torch.manual_seed(self.rng_state[0] * 1_000_003 + self.rng_state[1])
        self.rng_state = [self.rng_state[0], self.rng_state[1] + 1]
        self.device.train()
        per_step = len(parts) // self.steps
        losses = []
        for start in range(0, len(parts), per_step):
            self.twin.zero_grad()
            for part in parts[start : start + per_step]:
                losses.append(self.device(*part))
                (losses[-1] / per_step).backward()
            limit = self.optimizer.settings["max_grad_norm"]
            torch.nn.utils.clip_grad_norm_(self.device.parameters(), limit)
            self.twin.step()
            self.stub.rates.append(self.twin.param_groups[0]["lr"])
        return torch.stack(losses).detach()


@contextmanager
def installed() -> Iterator[Stub]:
    """`import poptorch` gives the stub inside of this."""
    stub, before = Stub(), sys.modules.get("poptorch")
    sys.modules["poptorch"] = stub
    try:
        yield stub
    finally:
        del sys.modules["poptorch"]
        if before is not None:
            sys.modules["poptorch"] = before
