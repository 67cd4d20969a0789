"""The classifier in plain PyTorch, on the CPU or on GPUs.

Under torchrun each process computes the loss of its share of each batch, see
`trainers.on_poptorch.ranks`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from textmill.schemas.errors import DataError, UsageError, flag, one_line
from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.framework_flags import IpuComputeFlags
from textmill.trainers.flags.run_flags import OptimizationFlags
from textmill.trainers.on_poptorch.classifier import TEXT_INPUTS, Classifier, classifier_arrays
from textmill.trainers.on_poptorch.ranks import (
    Ranks,
    choose_gpu,
    hint_at_gpus,
    keep_gradients,
    report_lost_ranks,
)
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import STOP, TOKENS, Program
from textmill.trainers.run.tensors import Arrays, Snapshot, Tensors, check_state, to_tensors
from textmill.trainers.tasks.classification import LABEL, LOGITS, ROW_WEIGHTS

Inputs = Mapping[str, Tensor]


class PlacedRows(NamedTuple):
    """This process's rows of a step on the device."""

    inputs: Inputs  # those of `classifier_arrays`, the weight of each row's class, `row_weights`
    counts: Tensor  # the sum of the weights, and tokens; f64 [2]


class ModuleProgram(Program):
    """A classifier on the CPU or a GPU, or on one in each process of a run under torchrun."""

    def __init__(self, plan: TrainingPlan, class_weights: Sequence[float], device: str):
        """Makes the module on its device.

        Raises:
          UsageError: as `choose_device`, or the processes cannot share the batch equally.
        """
        self._compute, self._rates = plan.flags.compute, plan.flags.optimization
        self._ranks = ranks = Ranks()
        self._device, self._precision = choose_device(device, self._compute.precision, ranks.local)
        self.steps, self._microbatches = plan.steps, self._compute.gradient_accumulation_steps or 1
        self._compute.check_share(ranks.count, "processes")
        self.module = Classifier(plan.model).to(self._device)
        assert isinstance(self._compute, IpuComputeFlags)
        self._compiles, self._length = self._compute.torch_compile, plan.schema.max_length
        self._class_weights = np.asarray(class_weights, np.float32)
        self._optimizer = torch_optimizer(self._rates, self.module)
        self.evaluation_rows = self._compute.batch_size // self._microbatches
        self.devices = ranks.count
        self._share_of_rate = plan.schedule
        devices = f"{ranks.count} x {self._device.type}" if ranks.count > 1 else self._device.type
        self.description = f"PyTorch on {devices}, {self._precision}"
        if self._device.type == "cuda" and ranks.count == 1:
            self.description += hint_at_gpus(torch.cuda.device_count())

    def load(self, weights: Arrays, state: Arrays | None) -> None:
        """Loads weights and the optimizer's state, but no hyperparameters."""
        if state is not None:
            self._load_state(state)
        self.module.load_state_dict({name: torch.tensor(v) for name, v in weights.items()})

    def _load_state(self, state: Arrays) -> None:
        # The first step of an optimizer creates its state; the weights are loaded afterwards.
        for weight in self.module.parameters():
            weight.grad = torch.zeros_like(weight)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        tensors = self._optimizer_tensors()
        check_device(state, on_ipus=False)
        check_state(state, tensors, self._rates.optimizer)
        for name, tensor in tensors.items():
            tensor.copy_(torch.tensor(state[name]))

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """With --torch_compile compiles a step on padding; without it, PyTorch is eager.

        Raises:
          UsageError: PyTorch cannot compile here.
        """
        called: Any = self.module
        if trains and self._compiles:
            called = torch.compile(called)
            rows = self.evaluation_rows // self._ranks.count
            arrays = classifier_arrays({"input_ids": np.zeros((rows, self._length), np.int32)})
            inputs = [torch.from_numpy(arrays[name]).to(self._device) for name in TEXT_INPUTS]
            try:
                with self._autocast():
                    logits_BxC = called.train()(*inputs)
                logits_BxC.sum().backward()
            except Exception as error:  # of Inductor's own classes: no C compiler, mostly
                reason = one_line(error).partition(" Set TORCHDYNAMO_VERBOSE")[0]
                raise UsageError(
                    f"{flag('torch_compile', True)}: PyTorch cannot compile: {reason:.300}: "
                    "install a C++ compiler (g++), or leave the flag out"
                ) from error
            self._optimizer.zero_grad(set_to_none=True)
        self._parallel = self._ranks.parallelize(called)

    def put(self, rows: Batch) -> PlacedRows:
        """Tensors on the device; copies to a GPU do not block."""
        arrays = classifier_arrays(rows)
        weights_B = arrays["weights"] = self._class_weights[arrays[LABEL]]
        if ROW_WEIGHTS in rows:
            arrays[ROW_WEIGHTS] = rows[ROW_WEIGHTS]
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        counted, tokens = weights_B.sum(dtype=np.float64), np.count_nonzero(rows["segment_ids"])
        counts = torch.tensor([counted, tokens], dtype=torch.float64)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # of this thread, for pinned memory
            send = lambda tensor: tensor.pin_memory().to(self._device, non_blocking=True)  # noqa: E731
            tensors, counts = {name: send(x) for name, x in tensors.items()}, send(counts)
        return PlacedRows(tensors, counts)

    @report_lost_ranks()
    def train(self, placed: PlacedRows, step: int) -> Callable[[], list[dict[str, float]]]:
        """One step: microbatches one after another, then the optimizer.

        The loss is the mean over what counts in the whole batch, so that the gradients do not
        depend on the number of processes, which add them up after the last microbatch.
        """
        rates, module, ranks = self._rates, self.module, self._ranks
        rate = rates.learning_rate * self._share_of_rate(step)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(dropout_seed(self._compute.seed, step, ranks.index))
        module.train()
        self._optimizer.zero_grad(set_to_none=True)
        counts, stop = self._count(placed.counts)
        # The gradients are a mean over processes: each divides by its share of what counts.
        share = torch.where(counts[0] > 0, counts[0] / ranks.count, 1.0).float()
        loss = torch.zeros((), device=self._device)
        for number, inputs in enumerate(self._cut(placed.inputs), 1):
            is_last = number == self._microbatches
            with nullcontext() if is_last else keep_gradients(self._parallel):
                with self._autocast():
                    logits_BxC, label_B = self._logits(inputs), inputs[LABEL].long()
                    losses_B = functional.cross_entropy(logits_BxC, label_B, reduction="none")
                    part = (losses_B * inputs["weights"]).sum() / share
                part.backward()
            loss += part.detach() / ranks.count
        limit = rates.clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), limit)
        self._optimizer.step()
        read = send_to_host(torch.cat((counts, torch.stack((stop, ranks.add(loss), norm)))))

        def wait() -> list[dict[str, float]]:
            counted, tokens, stop, loss, norm = read().tolist()
            others = {"counted": counted, "learning_rate": rate, "gradient_norm": norm}
            if ranks.count > 1:
                others.update({TOKENS: tokens, STOP: stop})
            return [{"loss": loss, **others}]

        return wait

    def evaluate(self, placed: PlacedRows) -> Callable[[], Arrays]:
        """Float32 logits [B, C], labels and `row_weights` of all processes' rows, no dropout."""
        self.module.eval()
        with torch.no_grad(), self._autocast():
            names = [name for name in (LABEL, ROW_WEIGHTS) if name in placed.inputs]
            outputs = {LOGITS: self._logits(placed.inputs)}
            outputs.update((name, placed.inputs[name]) for name in names)
        with report_lost_ranks():
            results = {name: self._ranks.concatenate(rows) for name, rows in outputs.items()}
            if self._ranks.count > 1:
                results[STOP] = self._count(placed.counts)[1]
        reads = {name: send_to_host(result) for name, result in results.items()}
        return lambda: {name: read() for name, read in reads.items()}

    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """Copies on the host; the state is {"0.exp_avg": ..., "0.step": ..., ...}."""
        state = {} if weights_only else self._optimizer_tensors()
        return copy_to_host(self.module.state_dict()), copy_to_host(state)

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": value
            for number, state in self._optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }

    def _count(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of all processes' counts, f64 [2], and the largest signal that one got, f64 []."""
        signal = torch.full((1,), self.asked_to_stop(), dtype=counts.dtype, device=counts.device)
        all_Rx3 = self._ranks.concatenate(torch.cat((counts, signal))[None])
        return all_Rx3[:, :2].sum(dim=0), all_Rx3[:, 2].max()

    def _logits(self, inputs: Inputs) -> Tensor:
        return self._parallel(*(inputs[name] for name in TEXT_INPUTS))

    def _cut(self, inputs: Inputs) -> list[Inputs]:
        count = self._microbatches
        chunks = {name: tensor.chunk(count) for name, tensor in inputs.items()}
        return [{name: parts[i] for name, parts in chunks.items()} for i in range(count)]

    def _autocast(self) -> torch.autocast:
        is_on = self._precision == "bfloat16"
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_on)


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups of weights: matrices, which decay, and vectors (biases, norms), which do not."""
    weights = list(module.parameters())
    return [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]


def torch_optimizer(flags: OptimizationFlags, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer on CPUs and GPUs."""
    groups = parameter_groups(module, flags.weight_decay)
    if flags.optimizer == "sgd_momentum":
        return torch.optim.SGD(groups, lr=flags.learning_rate, momentum=flags.beta1)
    betas = (flags.beta1, flags.beta2)
    fused = next(module.parameters()).is_cuda or None  # one kernel; PyTorch takes it if asked only
    return torch.optim.AdamW(
        groups, lr=flags.learning_rate, betas=betas, eps=flags.epsilon, fused=fused
    )


RANDOM = "random"  # the state of random numbers, in checkpoints of IPUs only


def check_device(state: Arrays, *, on_ipus: bool) -> None:
    """Refuses a checkpoint of a different kind of device, whose optimizer has a different state.

    Raises:
      DataError: names both devices.
    """
    here, there = ("IPUs", "plain PyTorch") if on_ipus else ("plain PyTorch", "IPUs")
    if (RANDOM in state) != on_ipus:
        raise DataError(
            f"the checkpoint is of a run on {there}, but this run is on {here}, and their "
            f"optimizers differ: resume there, or start over with {flag('init_from')} an exported "
            "model"
        )


def choose_device(device: str, precision: str, local: int = 0) -> tuple[torch.device, str]:
    """The device and precision of the flags: cuda or cpu, bfloat16 or float32.

    Several processes of a machine, numbered by `local`, have a GPU each.

    Raises:
      UsageError: there is no such device, or it does not support the precision.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"{flag('device', 'cuda')}: PyTorch finds no GPU; give {flag('device', 'cpu')}"
        )
    if precision == "float16":
        raise UsageError(
            f"{flag('precision', 'float16')} works on IPUs only, and this run is on {device}: give "
            "bfloat16, which needs no loss scaling, or float32"
        )
    if precision == "auto":
        precision = "bfloat16" if device == "cuda" else "float32"
    return choose_gpu(local) if device == "cuda" else torch.device(device), precision


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of a step in a process, so that a resumed run draws the same as an unbroken one.

    It is hashed, since PyTorch's generator on the CPU uses only the lower 32 bits.
    """
    words = np.random.SeedSequence([*b"dropout", seed, step, rank]).generate_state(1, np.uint64)
    return int(words[0])


def send_to_host(tensor: Tensor) -> Callable[[], np.ndarray]:
    """Starts to copy a tensor to the host; the returned function waits only for this copy."""
    tensor = tensor.detach()
    if tensor.device.type != "cuda":
        return tensor.numpy
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    arrival = torch.cuda.Event()
    arrival.record()

    def read() -> np.ndarray:
        arrival.synchronize()
        return host.numpy()

    return read


def copy_to_host(tensors: Mapping[str, Tensor]) -> Tensors:
    """Copies on the host, which no later step changes."""
    return to_tensors({name: x.detach().cpu().numpy().copy() for name, x in tensors.items()})
