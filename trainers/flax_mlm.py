"""Entry: trains a masked language model (RoBERTa, BERT, ELECTRA) on a shard set, in Flax NNX.

    python -m trainers.flax_mlm --shards=DIR --output=RUN --model=small --steps=1000
    python -m trainers.flax_mlm --evaluate_only --output=RUN

`--help` lists every flag.
"""

from dataclasses import dataclass
from typing import ClassVar, List

from schemas.commands.entry import run_entry
from trainers.run.model_flags import EncoderFlags
from trainers.run.program import Plan, Program, Trainer
from trainers.run.start import run_trainer
from trainers.tasks.language import PretrainingFlags
from trainers.tasks.mlm import MlmFlags, MlmTask


@dataclass(frozen=True)
class FlaxMlmFlags(PretrainingFlags, EncoderFlags, MlmFlags):
    """Trains a masked language model on a shard set: RoBERTa, BERT or ELECTRA's generator.

    What is not given here (vocabulary, row length, special tokens) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "flax_mlm"


def _import_program(plan: Plan, task: MlmTask) -> Program:
    # JAX: seconds that --help and refusals do not pay.
    from trainers.on_flax.flax_program import FlaxProgram
    from trainers.on_flax.mlm_objective import MlmObjective

    return FlaxProgram(plan, MlmObjective(plan))


TRAINER = Trainer(
    make_task=MlmTask,
    import_program=_import_program,
    framework="JAX",
    gigabytes=3.2,
)


def main(argv: List[str]) -> None:
    """Trains, or does what else the command line asks for."""
    run_trainer(argv, FlaxMlmFlags, TRAINER)


if __name__ == "__main__":
    run_entry(main)
