"""Entry: fine-tunes a BERT or ELECTRA classifier on Graphcore IPUs, or on plain PyTorch.

    python -m trainers.poptorch_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.poptorch_classifier --output=RUN --predict=FILE.jsonl

`--help` lists every flag; each is a field of `trainers.on_poptorch.config.TrainConfig`. The syntax
is that of Python 3.8 and the calls those of PyTorch 2.0, which PopTorch 3.4 comes with.
"""

from typing import List

import tyro

from schemas.errors import run_entry
from schemas.memory import want_addresses
from trainers.data.mixture import open_shards
from trainers.models.set_tokenizer import TOKENIZER, set_file
from trainers.on_poptorch.config import TrainConfig, plan_run
from trainers.run.config_file import with_config
from trainers.run.run_directory import errors_in_words


def main(argv: List[str]) -> None:
    """Parses the command line, checks the contract, then trains; or predicts with a run."""
    argv = with_config(argv, "poptorch_classifier", TrainConfig)
    config = tyro.cli(
        TrainConfig, args=argv, prog="trainers.poptorch_classifier", use_underscores=True
    )
    want_addresses(2.5, "PyTorch")
    if config.predict is not None:
        from trainers.on_poptorch.prediction import predict

        with errors_in_words(config.output_directory(config.model), "Mend that, then ask again"):
            predict(config, config.predict)
        return
    shards = open_shards(
        config.shards,
        seed=config.seed,
        verify=config.verify,
        cache=config.cache,
        follow_links=config.follow_links,
    )
    plan = plan_run(
        config,
        shards.schema,
        train_rows=shards.rows(config.train_split) if config.train_split in shards.splits else 0,
        tokenizer_json=set_file(shards, TOKENIZER) if config.init_from is not None else None,
    )

    from trainers.on_poptorch.loop import train  # PyTorch: seconds that refusals do not pay

    train(plan, shards)


if __name__ == "__main__":
    run_entry(main)
