"""A stand-in for PopTorch 3.4: its signatures and its rules of use.

There is no IPU and no PopTorch on a package index. This module takes the arguments that PopTorch's
documentation names, refuses what PopTorch refuses (two programs attached at once, options that are
changed after a model has them, other shapes than the compiled ones), traces what is compiled, and
computes on the CPU in float32 with weights of its own, as an IPU has: what is not copied back to
the host is not there.

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

OutputMode = enum.Enum("OutputMode", ["All", "Final", "EveryN", "Sum"])
ReductionType = enum.Enum("ReductionType", ["Sum", "Mean", "NoReduction"])
AutoStage = enum.Enum("AutoStage", ["SameAsIpu", "AutoIncrement"])


class Stub(ModuleType):
    """The module, with what was recorded.

    Attributes:
      executors: the program of each kind, training or inference.
      optimizer_arguments: those that were given, but for the parameters.
      programs: what was traced of the module for one micro-batch, by kind of program.
      traced: the operators in it.
      rates: learning rate of each step that the IPUs ran.
      blocks: (user_id, ipu_id) in the order in which tracing came upon them, by kind of program.
    """

    def __init__(self) -> None:
        super().__init__("poptorch")
        self.executors: dict[str, Executor] = {}
        self.optimizer_arguments: dict[str, Any] = {}
        self.programs: dict[str, Any] = {}
        self.traced: dict[str, list[str]] = {}
        self.blocks: dict[str, list[tuple[str, int]]] = {}
        self.passed: list[tuple[str, int]] = []
        self.rates: list[float] = []
        self.on_the_ipus: Executor | None = None
        self.OutputMode, self.ReductionType, self.AutoStage = OutputMode, ReductionType, AutoStage
        self.Options, self.PipelinedExecution = Options, PipelinedExecution
        for made in (BeginBlock, trainingModel, inferenceModel):
            setattr(self, made.__name__, functools.partial(made, self))
        self.identity_loss = identity_loss
        self.ipuHardwareIsAvailable = lambda num_ipus=1: True
        self.optim = SimpleNamespace(
            AdamW=functools.partial(AdamW, self), SGD=functools.partial(SGD, self)
        )

    def __deepcopy__(self, _) -> "Stub":
        return self  # modules are copied, what they refer to is not


class _Settings:
    """Options of one kind; a model freezes them."""

    def __init__(self):
        self._frozen = False
        self.values: dict[str, Any] = {}

    def _set(self, **values):
        assert not self._frozen, f"options are frozen once a model has them: {values}"
        self.values.update(values)
        return self


class _Training(_Settings):
    def gradientAccumulation(self, gradient_accumulation):
        return self._set(accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type):
        assert reduction_type in (ReductionType.Sum, ReductionType.Mean)
        return self._set(reduction=reduction_type)


class _Precision(_Settings):
    def enableStochasticRounding(self, enabled):
        assert isinstance(enabled, bool)
        return self._set(stochastic_rounding=enabled)

    def setPartialsType(self, dtype):
        assert dtype in (torch.float32, torch.float16)
        return self._set(partials=dtype)


class Options(_Settings):
    def __init__(self):
        super().__init__()
        self.Training, self.Precision = _Training(), _Precision()
        self.values = {"device_iterations": 1, "replication": 1, "output_mode": None}
        self.Training.values = {"accumulation": 1}

    def deviceIterations(self, device_iterations):
        return self._set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor):
        return self._set(replication=replication_factor)

    def outputMode(self, output_mode, output_return_period=None):
        assert (output_mode is OutputMode.EveryN) == (output_return_period is not None)
        return self._set(output_mode=output_mode)

    def setExecutionStrategy(self, strategy):
        assert isinstance(strategy, PipelinedExecution)
        return self._set(strategy=strategy)

    def enableExecutableCaching(self, path):
        return self._set(cache=path)

    def randomSeed(self, random_seed):
        return self._set(seed=random_seed)

    def freeze(self) -> None:
        """No change from now on."""
        self._frozen = self.Training._frozen = self.Precision._frozen = True

    @property
    def micro_batches(self) -> int:
        """Into how many parts a call's rows are cut."""
        values = self.values
        accumulation = self.Training.values["accumulation"]
        return values["device_iterations"] * values["replication"] * accumulation


class PipelinedExecution:
    def __init__(self, *args):
        assert args == (AutoStage.SameAsIpu,)


def BeginBlock(stub: Stub, layer_to_call, user_id: Any = None, ipu_id: Any = None):
    layer_to_call.register_forward_pre_hook(lambda *_: stub.passed.append((user_id, ipu_id)))
    return layer_to_call


def identity_loss(x, reduction):
    assert reduction in ("sum", "mean", "none") and x.dtype == torch.float32
    return {"sum": x.sum, "mean": x.mean, "none": lambda: x}[reduction]()


NOT_ARGUMENTS = ("self", "stub", "params", "__class__")
_TYPES = (None, torch.float16, torch.float32)


class _Optimizer(torch.optim.Optimizer):
    """PopTorch's optimizers keep the IPUs' state by names of its own, beside PyTorch's.

    `ipu_state` is name -> tensor of all moments, there from the first step on, `ipu_param` of what
    is not learned, such as the learning rate; None before a program was on the IPUs.
    """

    ipu: dict[str, Any] = {"ipu_state": None, "ipu_param": None}

    def state_dict(self):
        return {**self.ipu, **torch.optim.Optimizer.state_dict(self)}

    def load_state_dict(self, state_dict):
        torch.optim.Optimizer.load_state_dict(self, state_dict)
        assert "ipu_state" in state_dict and "ipu_param" in state_dict
        self.ipu = {name: state_dict[name] for name in self.ipu}


class AdamW(_Optimizer, torch.optim.AdamW):
    def __init__(
        self,
        stub: Stub,
        params,
        lr: Any = None,
        betas: Any = None,
        eps: Any = None,
        weight_decay: Any = None,
        amsgrad: Any = None,
        loss_scaling: Any = None,
        bias_correction: Any = None,
        accum_type: Any = None,
        first_order_momentum_accum_type: Any = None,
        second_order_momentum_accum_type: Any = None,
        max_grad_norm: Any = None,
    ):
        given = {k: v for k, v in locals().items() if k not in NOT_ARGUMENTS}
        stub.optimizer_arguments = {k: v for k, v in given.items() if v is not None}
        types = (accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        assert all(found in _TYPES for found in types)
        assert not amsgrad and bias_correction
        super().__init__(params, lr=lr, betas=betas, eps=eps, foreach=False)
        self.limit = max_grad_norm


class SGD(_Optimizer, torch.optim.SGD):
    def __init__(
        self,
        stub: Stub,
        params,
        lr: Any = None,
        momentum: Any = None,
        dampening: Any = None,
        weight_decay: Any = None,
        nesterov: Any = None,
        loss_scaling: Any = None,
        velocity_scaling: Any = None,
        use_combined_accum: Any = None,
        accum_type: Any = None,
        velocity_accum_type: Any = None,
        max_grad_norm: Any = None,
    ):
        given = {k: v for k, v in locals().items() if k not in NOT_ARGUMENTS}
        stub.optimizer_arguments = {k: v for k, v in given.items() if v is not None}
        assert accum_type in _TYPES and velocity_accum_type in _TYPES
        assert velocity_accum_type is None or use_combined_accum is False
        super().__init__(params, lr=lr, momentum=momentum, foreach=False)
        self.limit = max_grad_norm


def trainingModel(stub: Stub, model, options: Any = None, optimizer: Any = None):
    return Executor(stub, "training", model, options, optimizer)


def inferenceModel(stub: Stub, model, options: Any = None):
    assert options.Training.values["accumulation"] == 1
    return Executor(stub, "inference", model, options, None)


class Executor:
    """A program, and what it has on the IPUs."""

    def __init__(self, stub: Stub, kind: str, model, options: Options, optimizer):
        self.stub, self.kind, self.host, self.options = stub, kind, model, options
        self.optimizer = optimizer
        self.shapes: list[tuple] | None = None
        self._random = [options.values.get("seed", 0), 0]
        options.freeze()
        stub.executors[kind] = self
        assert (optimizer is not None) == (kind == "training")

    def compile(self, *args, **kwargs):
        assert not kwargs and self.shapes is None
        assert self.host.training == (self.kind == "training")
        self.shapes = [(part.shape, part.dtype) for part in args]
        self.device = copy.deepcopy(self.host).float()
        part = [tensor[: len(tensor) // self.options.micro_batches] for tensor in args]
        self.stub.passed.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch 2.0 has nothing newer
            program: Any = torch.jit.trace(self.device, tuple(part), check_trace=False)
        self.stub.programs[self.kind] = program
        self.stub.blocks[self.kind] = list(self.stub.passed)
        kinds = (node.kind() for node in program.inlined_graph.nodes())
        self.stub.traced[self.kind] = [kind for kind in kinds if kind.startswith("aten::")]
        if self.optimizer is not None:
            of = dict(zip(self.host.parameters(), self.device.parameters(), strict=True))
            groups = [
                dict(group, params=[of[p] for p in group["params"]])
                for group in self.optimizer.param_groups
            ]
            theirs = torch.optim.AdamW if isinstance(self.optimizer, AdamW) else torch.optim.SGD
            self.twin, self.told = theirs(groups), self._rates()
            for parameter in self.device.parameters():
                parameter.grad = torch.zeros_like(parameter)
            self.twin.step()
            for tensor in self._moments().values():
                tensor.zero_()
            self.optimizer.state_dict = self._optimizer_state
        self._attach()

    def attachToDevice(self):
        assert self.shapes is not None
        self._attach()

    def _attach(self):
        assert self.stub.on_the_ipus is None, "another program is on the IPUs"
        self.stub.on_the_ipus = self
        self.device.load_state_dict(self.host.state_dict())
        if self.optimizer is not None and self.optimizer.ipu["ipu_state"] is not None:
            for name, tensor in self._moments().items():
                tensor.copy_(self.optimizer.ipu["ipu_state"][name])
            rates = self.optimizer.ipu["ipu_param"]["learningRate"].tolist()
            for group, rate in zip(self.twin.param_groups, rates, strict=True):
                group["lr"] = rate

    def detachFromDevice(self):
        assert self.stub.on_the_ipus is self, "the program is not on the IPUs"
        if self.optimizer is not None:
            self._to_host()
            self._optimizer_state()
        self.stub.on_the_ipus = None

    def copyWeightsToHost(self):
        assert self.stub.on_the_ipus is self
        self._to_host()

    def _to_host(self):
        self.host.load_state_dict(self.device.state_dict())

    def _optimizer_state(self):
        """The IPUs' own while the program is there; otherwise the last that was read."""
        if self.stub.on_the_ipus is self:
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
        return [group["lr"] for group in self.optimizer.param_groups]

    def setOptimizer(self, optimizer):
        assert optimizer is self.optimizer
        if self._rates() == self.told:
            return  # PopTorch copies changed rates only
        self.told = self._rates()
        for group, rate in zip(self.twin.param_groups, self.told, strict=True):
            group["lr"] = rate

    @property
    def rng_state(self):
        return list(self._random)

    @rng_state.setter
    def rng_state(self, state):
        assert self.shapes is not None, "the program is not compiled"
        self._random = list(state)

    def __call__(self, *args, **kwargs):
        assert not kwargs and self.stub.on_the_ipus is self
        assert [(part.shape, part.dtype) for part in args] == self.shapes, "not as compiled"
        assert self.options.values["output_mode"] is OutputMode.All
        parts = list(zip(*(part.chunk(self.options.micro_batches) for part in args), strict=True))
        if self.kind == "inference":
            with torch.no_grad():
                return torch.cat([self.device.eval()(*part) for part in parts])
        torch.manual_seed(self._random[0] * 1_000_003 + self._random[1])
        self._random[1] += 1
        losses = []
        a_step = len(parts) // self.options.values["device_iterations"]
        self.device.train()
        for start in range(0, len(parts), a_step):
            self.twin.zero_grad()
            for part in parts[start : start + a_step]:
                loss = self.device(*part)
                (loss / a_step).backward()
                losses.append(loss.detach())
            torch.nn.utils.clip_grad_norm_(self.device.parameters(), self.optimizer.limit)
            self.twin.step()
            self.stub.rates.append(self.twin.param_groups[0]["lr"])
        return torch.stack(losses)


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
