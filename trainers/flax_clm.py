"""Entry: trains a causal language model (GPT-2, Llama and others) on a dataset, in Flax NNX.

    python -m trainers.flax_clm --shards=DIR --output=RUN --model=small --steps=1000
    python -m trainers.generate RUN "Once upon a time"

`--help=all` lists every flag.
"""

from dataclasses import dataclass
from typing import ClassVar

from textmill.schemas.commands.entry import import_later, run_entry
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.flags.run_flags import DecoderFlags, PretrainingFlags
from textmill.trainers.flags.task_flags import ClmFlags
from textmill.trainers.run.start import main_of
from textmill.trainers.run.trainer import Trainer, join_processes
from textmill.trainers.tasks.language_models import ClmTask


@dataclass(frozen=True)
class FlaxClmFlags(FlaxRunFlags):
    """Trains GPT-2, Llama or another decoder on a dataset of --task=clm or chat."""

    entry: ClassVar[str] = "flax_clm"

    optimization: PretrainingFlags = PretrainingFlags()
    architecture: DecoderFlags = DecoderFlags()
    task: ClmFlags = ClmFlags()


TRAINER = Trainer(
    flags=FlaxClmFlags,
    make_task=ClmTask,
    import_program=import_later("textmill.trainers.on_flax.flax_decoder:make_program"),
    framework="JAX",
    gigabytes=3.2,
    packages=("jax", "jaxlib", "flax", "optax", "numpy"),
    join=join_processes,
    continue_text=import_later("textmill.trainers.on_flax.generation:write_texts"),
    open_chat=import_later("textmill.trainers.on_flax.generation:FlaxChat"),
)
main = main_of(TRAINER)

if __name__ == "__main__":
    run_entry(main)
