"""Entry: trains a GPT-2 to answer questions, scores its answers, or asks it, in TensorFlow.

    python -m trainers.tf_qa --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.tf_qa --evaluate_only --checkpoint=all --output=RUN
    python -m trainers.tf_qa --saved_model=DIR --ask="Who did?" --context="Ann did."

`--help` lists every flag. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import ClassVar, List, Literal

from schemas.commands.entry import run_entry
from trainers.on_tf.tf_flags import TfFlags
from trainers.run.flags import parse_flags
from trainers.run.model_flags import DecoderFlags
from trainers.run.program import Plan, Program, Trainer
from trainers.run.start import run
from trainers.tasks.qa import QaFlags, QaTask


@dataclass(frozen=True)
class TfQaFlags(QaFlags, DecoderFlags, TfFlags):
    """Trains a GPT-2 to answer questions on a shard set, scores its answers, or asks it one.

    What is not given here (vocabulary, row length, attention, longest answer) comes from the set's
    contract. --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "tf_qa"

    family: Literal["gpt2"] = "gpt2"
    model: Literal["tiny", "small", "base", "medium", "gpt2"] = "tiny"


def _program(plan: Plan, task: QaTask) -> Program:
    # TensorFlow: seconds that --help and refusals spare.
    from trainers.on_tf.qa_objective import QaObjective
    from trainers.on_tf.tf_program import TfProgram

    return TfProgram(plan, lambda: QaObjective(plan.model, plan.schema, answers=task.is_scored))


TRAINER = Trainer(
    make_task=QaTask,
    import_program=_program,
    framework="TensorFlow",
    gigabytes=2.8,
)


def main(argv: List[str]) -> None:
    """Parses the command line, checks the contract, then trains, scores or asks."""
    flags = parse_flags(argv, TfQaFlags)
    if flags.ask is None:
        run(flags, TRAINER)
        return
    from trainers.on_tf.saved_models import ask  # as above

    assert flags.saved_model is not None and flags.context is not None  # checked with the flags
    ask(flags.saved_model, flags.ask, flags.context)


if __name__ == "__main__":
    run_entry(main)
