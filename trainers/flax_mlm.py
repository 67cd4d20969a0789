"""Entry: trains a masked language model (RoBERTa, BERT, ELECTRA, ModernBERT) in Flax NNX.

    python -m trainers.flax_mlm --shards=DIR --output=RUN --model=small --steps=1000

`--help=all` lists every flag.
"""

from dataclasses import dataclass
from typing import ClassVar

from textmill.schemas.commands.entry import import_later, run_entry
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.flags.run_flags import EncoderFlags, PretrainingFlags
from textmill.trainers.flags.task_flags import MlmFlags
from textmill.trainers.run.start import main_of
from textmill.trainers.run.trainer import Trainer, join_processes
from textmill.trainers.tasks.language_models import MlmTask


@dataclass(frozen=True)
class FlaxMlmFlags(FlaxRunFlags):
    """Trains RoBERTa, BERT, ELECTRA's generator or ModernBERT on a dataset of --task=mlm."""

    entry: ClassVar[str] = "flax_mlm"

    optimization: PretrainingFlags = PretrainingFlags()
    architecture: EncoderFlags = EncoderFlags()
    task: MlmFlags = MlmFlags()


TRAINER = Trainer(
    flags=FlaxMlmFlags,
    make_task=MlmTask,
    import_program=import_later("textmill.trainers.on_flax.flax_encoder:make_program"),
    framework="JAX",
    gigabytes=3.2,
    packages=("jax", "jaxlib", "flax", "optax", "numpy"),
    join=join_processes,
)
main = main_of(TRAINER)

if __name__ == "__main__":
    run_entry(main)
