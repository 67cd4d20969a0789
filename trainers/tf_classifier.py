"""Entry: trains and uses a classifier of BERT's family, in TensorFlow.

    python -m trainers.tf_classifier --shards=DIR --output=RUN --init_from=DIR --epochs=3
    python -m trainers.tf_classifier --output=RUN --predict=FILE.jsonl

`--help` lists every flag; each is a field of `trainers.on_tf.classifier_config.ClassifierConfig`.
"""

import tyro

from schemas.errors import run_entry
from schemas.memory import want_addresses
from trainers.data.mixture import open_shards
from trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from trainers.on_tf.classifier_config import ClassifierConfig, plan_run
from trainers.run.config_file import with_config
from trainers.run.run_directory import errors_in_words


def main(argv: list[str]) -> None:
    """Parses the command line, checks the contract, then trains, measures or predicts."""
    argv = with_config(argv, "tf_classifier", ClassifierConfig)
    config = tyro.cli(
        ClassifierConfig, args=argv, prog="trainers.tf_classifier", use_underscores=True
    )
    want_addresses(2.8, "TensorFlow")
    if not config.trains:
        from trainers.on_tf.classifier_use import use  # TensorFlow: seconds that refusals spare

        with errors_in_words(config.run_directory, "Mend that, then ask again"):
            use(config)
        return
    shards = open_shards(
        config.shards,
        seed=config.seed,
        verify=config.verify,
        cache=config.cache,
        follow_links=config.follow_links,
    )
    train_rows = shards.rows(config.train_split) if config.train_split in shards.splits else 0
    plan = plan_run(config, shards.schema, train_rows=train_rows)
    if config.init_from is not None:
        check_same_tokens(set_file(shards, TOKENIZER), config.init_from, flag="--init_from")

    from trainers.on_tf.classifier_run import train_classifier

    train_classifier(plan, shards)


if __name__ == "__main__":
    run_entry(main)
