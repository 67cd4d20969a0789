"""Entry: trains and uses a classifier of BERT's family, in TensorFlow.

    python -m trainers.tf_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=3
    python -m trainers.tf_classifier --output=RUN --predict=FILE.jsonl

`--help` lists every flag. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import ClassVar, List, Literal

from schemas.commands.entry import run_entry
from trainers.on_tf.tf_flags import TfFlags
from trainers.run.model_flags import EncoderFlags
from trainers.run.program import Plan, Program, Trainer
from trainers.run.start import run_trainer
from trainers.tasks.classification import ClassificationFlags, ClassificationTask


@dataclass(frozen=True)
class TfClassifierFlags(ClassificationFlags, EncoderFlags, TfFlags):
    """Trains a classifier of BERT's family on a shard set, or uses one that was trained.

    What is not given here (vocabulary, row length, classes) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "tf_classifier"

    family: Literal["bert", "roberta", "electra"] = "bert"
    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"


def _program(plan: Plan, task: ClassificationTask) -> Program:
    # TensorFlow: seconds that --help and refusals spare.
    from trainers.on_tf.classification_objective import ClassificationObjective
    from trainers.on_tf.tf_program import TfProgram

    return TfProgram(plan, lambda: ClassificationObjective(plan.model, task.weights))


TRAINER = Trainer(
    make_task=ClassificationTask,
    import_program=_program,
    framework="TensorFlow",
    gigabytes=2.8,
)


def main(argv: List[str]) -> None:
    """Parses the command line, checks the contract, then trains, measures or predicts."""
    run_trainer(argv, TfClassifierFlags, TRAINER)


if __name__ == "__main__":
    run_entry(main)
