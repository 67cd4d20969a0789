"""Entry: trains GPT-2 to answer questions, in TensorFlow.

    python -m trainers.tf_qa --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.evaluate RUN --checkpoint=all

`--help=all` lists every flag. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Optional

from textmill.schemas.commands.entry import import_later, run_entry
from textmill.trainers.flags.framework_flags import TfComputeFlags
from textmill.trainers.flags.run_flags import DecoderFlags, RunFlags
from textmill.trainers.flags.task_flags import QaFlags
from textmill.trainers.run.start import main_of
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.tasks.qa import QaTask


@dataclass(frozen=True)
class _Gpt2Flags(DecoderFlags):
    """Which decoder to train."""

    family: Optional[Literal["gpt2"]] = None
    model: Literal["tiny", "small", "base", "medium", "gpt2"] = "tiny"


@dataclass(frozen=True)
class TfQaFlags(RunFlags):
    """Trains GPT-2 to answer the questions of a dataset of --task=qa, and scores its answers."""

    entry: ClassVar[str] = "tf_qa"

    architecture: _Gpt2Flags = _Gpt2Flags()
    compute: TfComputeFlags = TfComputeFlags()
    task: QaFlags = QaFlags()


TRAINER = Trainer(
    flags=TfQaFlags,
    make_task=QaTask,
    import_program=import_later("textmill.trainers.on_tf.tf_decoder:make_program"),
    framework="TensorFlow",
    gigabytes=2.8,
)
main = main_of(TRAINER)

if __name__ == "__main__":
    run_entry(main)
