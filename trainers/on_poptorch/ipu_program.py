"""The classifier on Graphcore IPUs with PopTorch 3.4: two programs, one of them on the IPUs.

    module -> trainingModel  -> compile -> detach          (weights, accumulation, optimizer)
           -> inferenceModel -> compile -> detach
    then attach one, and detach it before the other.

Both share the weights on the host: attaching a program copies them to the IPUs, and detaching the
training program copies them back. The same holds for the optimizer's state.

A batch of B rows is A * R microbatches of B / (A * R) rows: each of R replicas accumulates over A.
IPUs run D such steps in one call. Blocks are the embedding (with ELECTRA's projection), then each
encoder layer; the classifier is on the IPU of the last layer.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from textmill.schemas.errors import UsageError, flag
from textmill.trainers.data.batches import Batch
from textmill.trainers.flags.framework_flags import IpuComputeFlags
from textmill.trainers.flags.run_flags import OptimizationFlags, RunFlags
from textmill.trainers.on_poptorch.classifier import TEXT_INPUTS, Classifier, classifier_arrays
from textmill.trainers.on_poptorch.ipu_placement import place_on_ipus
from textmill.trainers.on_poptorch.module_program import (
    RANDOM,
    check_device,
    copy_to_host,
    parameter_groups,
)
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.program import Program
from textmill.trainers.run.schedule import Schedule
from textmill.trainers.run.tensors import Arrays, Snapshot, check_state, to_tensors
from textmill.trainers.tasks.classification import LOGITS

Tensors = Tuple[Tensor, ...]  # TEXT_INPUTS and the labels, int32


class IpuProgram(Program):
    """A classifier on IPUs."""

    def __init__(self, plan: TrainingPlan, class_weights: Sequence[float], poptorch: ModuleType):
        """Prepares the module, but compiles nothing; refuses flags that IPUs do not support."""
        compute, rates = plan.flags.compute, plan.flags.optimization
        assert isinstance(compute, IpuComputeFlags)
        self._schema, self._poptorch, self._rates = plan.schema, poptorch, rates
        self._compute = compute
        _check_calls(plan.flags, compute.device_iterations, class_weights)
        self._placement = placement = place_on_ipus(compute, layers=plan.model.layers)
        self.steps_per_call = placement.device_iterations
        self.steps = -(-plan.steps // self.steps_per_call) * self.steps_per_call
        self.evaluation_rows, self.description = placement.call_rows, placement.description
        mark_loss = functools.partial(poptorch.identity_loss, reduction="none")
        self.module = Classifier(plan.model, mark_loss)
        is_half = placement.precision == "float16"
        if is_half:
            self.module.half()
            for module in self.module.modules():
                if isinstance(module, torch.nn.LayerNorm):
                    # The smallest float16 above 0 is 6e-8: BERT's 1e-12 would be 0.
                    module.eps = max(module.eps, 1e-6)
        self._place_blocks()
        scaling = compute.loss_scaling if is_half else None
        self._optimizer = poptorch_optimizer(rates, self.module, poptorch, scaling)
        self._share_of_rate = Schedule(self.steps, rates)
        self._state: Arrays | None = None  # of the checkpoint to resume from
        self._training: Any = None
        self._inference: Any = None
        self._attached: Any = None

    def _place_blocks(self) -> None:
        """Puts blocks on their IPUs; the classifier goes to the last one.

        (1, 4, 4, 4) with 12 layers: embeddings on IPU 0, layers 0 to 3 on IPU 1, 4 to 7 on IPU 2,
        8 to 11 and the classifier on IPU 3. A block ends where the next begins.
        """
        counts, blocks = self._placement.blocks, self.module.blocks
        ipus = [ipu for ipu, count in enumerate(counts) for _ in range(count)]
        ipus += [len(counts) - 1] * (len(blocks) - len(ipus))
        for ipu, (name, block) in zip(ipus, blocks):
            self._poptorch.BeginBlock(block, user_id=name, ipu_id=ipu)

    def load(self, weights: Arrays, state: Arrays | None) -> None:
        """Puts weights on the host; the next program takes them and the state to the IPUs."""
        self._attach(None)
        self._state = state
        self.module.load_state_dict({name: torch.tensor(v) for name, v in weights.items()})

    def compile(self, *, trains: bool, evaluates: bool) -> None:
        """Compiles the programs and detaches them.

        PopTorch compiles the module in its current mode, so `train` and `eval` come before. Raises
        like `check_state`.
        """
        shape = (self._placement.call_rows, self._schema.max_length)
        tensors = self.put({"input_ids": np.zeros(shape, np.int32)})
        if trains:
            self.module.train()
            self._training = self._poptorch.trainingModel(
                self.module, options=self._options(trains=True), optimizer=self._optimizer
            )
            self._training.compile(*tensors)
            self._training.detachFromDevice()
            if self._state is not None:
                self._load_state(self._state)
        if evaluates:
            self.module.eval()
            options = self._options(trains=False)
            self._inference = self._poptorch.inferenceModel(self.module, options=options)
            self._inference.compile(*tensors[: len(TEXT_INPUTS)])
            self._inference.detachFromDevice()

    def _options(self, *, trains: bool) -> Any:
        """`poptorch.Options`; training and evaluation take the same number of rows in a call.

        Output mode All returns the logits of every row, or the loss of every microbatch, which
        shows NaN in each of the steps of a call.
        """
        poptorch, placement = self._poptorch, self._placement
        options, steps = poptorch.Options(), placement.device_iterations
        options.replicationFactor(placement.replication)
        options.outputMode(poptorch.OutputMode.All)
        # The blocks on one IPU are a stage of the pipeline.
        options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
        # Matrix products accumulate in float32 for any dtype.
        options.Precision.setPartialsType(torch.float32)
        if self._compute.executable_cache is not None:
            options.enableExecutableCaching(self._compute.executable_cache)
        # Accumulation is for training only; device iterations fill the pipeline of an evaluation
        # with as many microbatches.
        options.deviceIterations(steps if trains else steps * placement.accumulation)
        if trains:
            options.Training.gradientAccumulation(placement.accumulation)
            options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
            options.randomSeed(self._compute.seed)
        # Stochastic rounding in float16 lets small updates accumulate.
        options.Precision.enableStochasticRounding(trains and placement.precision == "float16")
        return options

    def _load_state(self, state: Arrays) -> None:
        # PopTorch's state also has learning rates and decays: these stay those of the flags.
        optimizer_state = self._optimizer.state_dict()
        check_device(state, on_ipus=True)
        moments = {name: value for name, value in state.items() if name != RANDOM}
        check_state(moments, optimizer_state["ipu_state"], self._rates.optimizer)
        optimizer_state["ipu_state"] = {
            name: torch.tensor(state[name], dtype=like.dtype)
            for name, like in optimizer_state["ipu_state"].items()
        }
        self._optimizer.load_state_dict(optimizer_state)
        self._training.rng_state = state[RANDOM].tolist()

    def put(self, rows: Batch) -> Tensors:
        """Tensors on the host; PopTorch sends them to the IPUs."""
        return tuple(torch.from_numpy(array) for array in classifier_arrays(rows).values())

    def train(self, placed: Tensors, step: int) -> Callable[[], list[dict[str, float]]]:
        """Runs the steps of a call, all with the learning rate of the first."""
        training = self._attach(self._training)
        rate = self._rates.learning_rate * self._share_of_rate(step)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        training.setOptimizer(self._optimizer)
        losses = training(*placed)  # of every microbatch, step by step
        of_steps = losses.float().reshape(self.steps_per_call, -1).mean(dim=1).tolist()
        rows = float(self._placement.batch_size)
        steps = [{"loss": loss, "counted": rows, "learning_rate": rate} for loss in of_steps]
        return lambda: steps

    def evaluate(self, placed: Tensors) -> Callable[[], Arrays]:
        """Logits of the rows."""
        logits_BxC = self._attach(self._inference)(*placed[: len(TEXT_INPUTS)])
        return lambda: {LOGITS: logits_BxC.float().numpy()}

    def snapshot(self, *, weights_only: bool = False) -> Snapshot:
        """Copies on the host, after PopTorch has copied the weights there.

        The state is PopTorch's moments by its own names, and that of dropout's random numbers.
        """
        if self._attached is not None and self._attached is self._training:
            self._training.copyWeightsToHost()
        weights = {name: value.float() for name, value in self.module.state_dict().items()}
        if weights_only:
            return copy_to_host(weights), {}
        # PopTorch reads the moments from the IPUs, or did so when the program was detached.
        moments = self._optimizer.state_dict()["ipu_state"]
        random = to_tensors({RANDOM: np.array(self._training.rng_state, np.uint64)})
        return copy_to_host(weights), {**random, **copy_to_host(moments)}

    def close(self) -> None:
        """Detaches the program from the IPUs."""
        self._attach(None)

    def _attach(self, program: Any) -> Any:
        """Attaches a program to the IPUs and detaches the other first; None only detaches."""
        if self._attached is not program:
            if self._attached is not None:
                self._attached.detachFromDevice()
            if program is not None:
                program.attachToDevice()
            self._attached = program
        return program


def _check_calls(flags: RunFlags, steps_per_call: int, class_weights: Sequence[float]) -> None:
    """Refuses flags that do not fit whole calls of equally weighted microbatches."""
    for name in ("steps", "stop_after", "evaluate_every", "checkpoint_every"):
        value = getattr(flags.length, name)
        if value is not None and value % steps_per_call:
            raise UsageError(
                f"{flag(name, value)} is not a multiple of "
                f"{flag('device_iterations', steps_per_call)}, the steps of one call of the IPUs: "
                "give a multiple"
            )
    if any(weight != 1.0 for weight in class_weights):
        raise UsageError(
            f"{flag('class_weights')}: IPUs weigh all microbatches equally; remove the flag, or "
            f"give {flag('device', 'cpu')}"
        )


def poptorch_optimizer(
    flags: OptimizationFlags,
    module: torch.nn.Module,
    poptorch: ModuleType,
    loss_scaling: float | None,
) -> torch.optim.Optimizer:
    """The optimizer for IPUs, with float32 moments.

    Gradients are float16 and scaled by `loss_scaling`, or float32 if it is None.
    """
    groups = parameter_groups(module, flags.weight_decay)
    shared = {
        "lr": flags.learning_rate,
        "loss_scaling": loss_scaling or 1.0,
        "accum_type": torch.float16 if loss_scaling else torch.float32,
        "max_grad_norm": flags.clip_norm or float("inf"),
    }
    if flags.optimizer == "sgd_momentum":
        return poptorch.optim.SGD(
            groups,
            momentum=flags.beta1,
            use_combined_accum=False,  # else gradients and velocity would share a dtype
            velocity_accum_type=torch.float32,
            **shared,
        )
    return poptorch.optim.AdamW(
        groups,
        betas=(flags.beta1, flags.beta2),
        eps=flags.epsilon,
        bias_correction=True,
        first_order_momentum_accum_type=torch.float32,
        second_order_momentum_accum_type=torch.float32,
        **shared,
    )
