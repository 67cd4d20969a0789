"""Entry: trains, evaluates and uses a causal language model (GPT-2, OPT), in Flax NNX.

    python -m trainers.flax_clm --shards=DIR --output=RUN --model=small --steps=1000
    python -m trainers.flax_clm --evaluate_only --shards=DIR --checkpoint=RUN
    python -m trainers.flax_clm --generate="Once upon a time" --checkpoint=RUN

`--help` lists every flag.
"""

from dataclasses import dataclass
from typing import ClassVar, List

from schemas.commands.entry import run_entry, want_addresses
from trainers.run.flags import parse_flags
from trainers.run.model_flags import DecoderFlags
from trainers.run.program import Plan, Program, Trainer
from trainers.run.start import run
from trainers.tasks.clm import ClmTask, GenerationFlags
from trainers.tasks.language import PretrainingFlags


@dataclass(frozen=True)
class FlaxClmFlags(PretrainingFlags, DecoderFlags, GenerationFlags):
    """Trains a causal language model on a shard set: GPT-2 or OPT, from scratch or fine-tuned.

    What is not given here (vocabulary, row length, special tokens) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win. With --evaluate_only it measures
    a checkpoint instead, with --generate=TEXT it goes on with the text.
    """

    entry: ClassVar[str] = "flax_clm"


def _import_program(plan: Plan, task: ClmTask) -> Program:
    # JAX: seconds that --help and refusals do not pay.
    from trainers.on_flax.clm_objective import ClmObjective
    from trainers.on_flax.flax_program import FlaxProgram

    return FlaxProgram(plan, ClmObjective(plan))


TRAINER = Trainer(
    make_task=ClmTask,
    import_program=_import_program,
    framework="JAX",
    gigabytes=3.2,
)


def main(argv: List[str]) -> None:
    """Trains, evaluates or generates, as the command line asks."""
    flags = parse_flags(argv, FlaxClmFlags)
    if flags.generate is None:
        run(flags, TRAINER)
        return
    want_addresses(TRAINER.gigabytes, TRAINER.framework)
    from trainers.on_flax.clm_text import write_text  # JAX, as above

    write_text(flags)


if __name__ == "__main__":
    run_entry(main)
