"""Entry: trains BERT, RoBERTa or ELECTRA as a classifier on a dataset, in TensorFlow.

    python -m trainers.tf_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=3
    python -m trainers.predict RUN --input=FILE.jsonl

`--help=all` lists every flag. Python 3.8 syntax.
"""

from dataclasses import dataclass
from typing import ClassVar

from textmill.schemas.commands.entry import import_later, run_entry
from textmill.trainers.flags.framework_flags import TfComputeFlags
from textmill.trainers.flags.run_flags import ClassifierFlags, RunFlags
from textmill.trainers.flags.task_flags import ClassificationFlags
from textmill.trainers.run.start import main_of
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.tasks.classification import ClassificationTask


@dataclass(frozen=True)
class TfClassifierFlags(RunFlags):
    """Trains BERT, RoBERTa or ELECTRA as a classifier on a dataset of --task=classification."""

    entry: ClassVar[str] = "tf_classifier"

    architecture: ClassifierFlags = ClassifierFlags()
    compute: TfComputeFlags = TfComputeFlags()
    task: ClassificationFlags = ClassificationFlags()


TRAINER = Trainer(
    flags=TfClassifierFlags,
    make_task=ClassificationTask,
    import_program=import_later("textmill.trainers.on_tf.tf_encoder:make_program"),
    framework="TensorFlow",
    gigabytes=2.8,
)
main = main_of(TRAINER)

if __name__ == "__main__":
    run_entry(main)
