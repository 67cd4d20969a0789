"""Entry: trains, evaluates and uses a causal language model (GPT-2, OPT), in Flax NNX.

    python -m trainers.flax_clm --shards=DIR --output=RUN --model=small --steps=1000
    python -m trainers.flax_clm --evaluate_only --shards=DIR --checkpoint=RUN
    python -m trainers.flax_clm --generate="Once upon a time" --checkpoint=RUN

`--help` lists every flag; each is a field of a class in `trainers.on_flax.clm_config`.
"""

from typing import TypeVar

import tyro

from schemas.errors import run_entry
from schemas.memory import want_addresses
from trainers.data.mixture import open_shards
from trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from trainers.on_flax.clm_config import ClmConfig, EvaluateConfig, GenerateConfig, plan_clm
from trainers.run.config_file import with_config

Config = TypeVar("Config")


def main(argv: list[str]) -> None:
    """Parses the command line, checks the contract, then trains, evaluates or generates."""
    argv = with_config(argv, "flax_clm", ClmConfig, EvaluateConfig, GenerateConfig)
    words = {argument.split("=")[0].replace("_", "-") for argument in argv}
    if "--generate" in words:
        _generate(_parsed(GenerateConfig, argv, " --generate=TEXT"))
    elif "--evaluate-only" in words:
        _evaluate(_parsed(EvaluateConfig, argv, " --evaluate_only"))
    else:
        _train(_parsed(ClmConfig, argv))


def _parsed(kind: type[Config], argv: list[str], mode: str = "") -> Config:
    config = tyro.cli(kind, args=argv, prog=f"trainers.flax_clm{mode}", use_underscores=True)
    want_addresses(3.2, "JAX")
    return config


def _train(config: ClmConfig) -> None:
    shards = open_shards(
        config.shards,
        seed=config.seed,
        verify=config.verify,
        cache=config.cache,
        follow_links=config.follow_links,
    )
    plan = plan_clm(config, shards.schema, train_rows=shards.rows(config.train_split))
    if config.init_from is not None:
        check_same_tokens(set_file(shards, TOKENIZER), config.init_from, flag="--init_from")

    # JAX: seconds that --help and refusals do not pay
    from trainers.on_flax.clm_task import ClmTask
    from trainers.on_flax.loop import train
    from trainers.on_flax.programs import compute_dtype

    train(plan, ClmTask(plan, shards, compute_dtype(config.precision)), shards)


def _evaluate(config: EvaluateConfig) -> None:
    shards = open_shards(
        config.shards, verify=config.verify, cache=config.cache, follow_links=config.follow_links
    )

    from trainers.on_flax.clm_evaluation import evaluate

    evaluate(config, shards)


def _generate(config: GenerateConfig) -> None:
    from trainers.on_flax.clm_text import write_text

    write_text(config)


if __name__ == "__main__":
    run_entry(main)
