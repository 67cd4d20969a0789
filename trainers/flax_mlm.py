"""Entry: trains a masked language model (RoBERTa, BERT, ELECTRA) on a shard set, in Flax NNX.

    python -m trainers.flax_mlm --shards=DIR --output=DIR --model=small --steps=1000

`--help` lists every flag; each is a field of `trainers.on_flax.config.TrainConfig`.
"""

import tyro

from schemas.errors import run_entry
from schemas.memory import want_addresses
from trainers.data.mixture import open_shards
from trainers.models.set_tokenizer import TOKENIZER, set_file
from trainers.on_flax.config import TrainConfig, plan_run
from trainers.run.config_file import with_config


def main(argv: list[str]) -> None:
    """Parses the command line, checks the contract, then trains."""
    argv = with_config(argv, "flax_mlm", TrainConfig)
    config = tyro.cli(TrainConfig, args=argv, prog="trainers.flax_mlm", use_underscores=True)
    want_addresses(3.2, "JAX")
    shards = open_shards(
        config.shards,
        seed=config.seed,
        verify=config.verify,
        cache=config.cache,
        follow_links=config.follow_links,
    )
    tokenizer_json = set_file(shards, TOKENIZER)
    rows = shards.rows(config.train_split)
    plan = plan_run(config, shards.schema, train_rows=rows, tokenizer_json=tokenizer_json)

    # JAX: seconds that --help and refusals do not pay
    from trainers.on_flax.loop import train
    from trainers.on_flax.mlm_task import MlmTask

    train(plan, MlmTask(plan, tokenizer_json), shards)


if __name__ == "__main__":
    run_entry(main)
