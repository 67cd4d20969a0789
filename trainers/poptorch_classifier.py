"""Entry: fine-tunes an encoder as a classifier on Graphcore IPUs, or on plain PyTorch.

    python -m trainers.poptorch_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.poptorch_classifier --output=RUN --predict=FILE.jsonl

`--help` lists every flag. Python 3.8 syntax; the calls are of PyTorch 2.0, as PopTorch 3.4 has it.
"""

import os
from dataclasses import dataclass
from typing import ClassVar, List, Literal, Optional

from schemas.commands.entry import run_entry
from trainers.data.flag_values import above_0, at_least
from trainers.run.model_flags import EncoderFlags
from trainers.run.program import Plan, Program, Trainer
from trainers.run.start import run_trainer
from trainers.tasks.classification import ClassificationFlags, ClassificationTask


@dataclass(frozen=True)
class PoptorchClassifierFlags(ClassificationFlags, EncoderFlags):
    """Fine-tunes an encoder as a classifier on Graphcore IPUs, or on plain PyTorch.

    What is not given here (vocabulary, row length, classes) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "poptorch_classifier"

    family: Literal["bert", "roberta", "electra"] = "bert"
    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"

    device: Literal["auto", "ipu", "cpu", "cuda"] = "auto"
    """auto: IPUs if PopTorch finds them, else a GPU, else the CPU."""
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Of the computation. auto: float16 on IPUs, bfloat16 on a GPU, float32 on the CPU."""
    blocks_per_ipu: str = "auto"
    """Blocks on each IPU: the embedding, then each layer. auto: 1+4+4+4 for 12 layers."""
    replication: int = 1
    """Copies of the model, each on its own IPUs."""
    device_iterations: int = 1
    """Steps that IPUs run at a time; the learning rate is that of the first of them."""
    loss_scaling: float = 128.0
    """Of gradients in float16, on IPUs."""
    executable_cache: Optional[str] = None
    """Directory of compiled IPU programs, to compile each only once."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, "replication", 1)
        at_least(self, "device_iterations", 1)
        above_0(self, "loss_scaling")


def _import_program(plan: Plan, task: ClassificationTask) -> Program:
    # Threads that spin while they wait take the time of whatever else runs: beside four busy
    # processes on two cores a step took three times as long; alone it costs a twentieth.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # PyTorch: seconds that --help and refusals do not pay.
    from trainers.on_poptorch.classifier import ClassifierObjective
    from trainers.on_poptorch.ipu_program import IpuProgram, find_poptorch
    from trainers.on_poptorch.module_program import ModuleProgram

    poptorch = find_poptorch(plan.flags.device)
    if poptorch is not None:
        return IpuProgram(plan, task.weights, poptorch)
    return ModuleProgram(plan, ClassifierObjective(plan.model, task.weights))


TRAINER = Trainer(
    make_task=ClassificationTask,
    import_program=_import_program,
    framework="PyTorch",
    gigabytes=2.5,
)


def main(argv: List[str]) -> None:
    """Trains, or does what else the command line asks for with a run."""
    run_trainer(argv, PoptorchClassifierFlags, TRAINER)


if __name__ == "__main__":
    run_entry(main)
