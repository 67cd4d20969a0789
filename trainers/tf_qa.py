"""Entry: trains a GPT-2 to answer questions, scores its answers, or asks it, in TensorFlow.

    python -m trainers.tf_qa --shards=DIR --output=RUN --init_from=DIR --epochs=2
    python -m trainers.tf_qa --evaluate_checkpoints=all --output=RUN
    python -m trainers.tf_qa --saved_model=DIR --ask="Who did?" --context="Ann did."

`--help` lists every flag; each is a field of `trainers.on_tf.qa_config.QaConfig`.
"""

import tyro

from schemas.errors import run_entry
from schemas.memory import want_addresses
from trainers.data.mixture import open_shards
from trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from trainers.on_tf.qa_config import QaConfig, plan_run
from trainers.run.config_file import with_config
from trainers.run.run_directory import errors_in_words


def main(argv: list[str]) -> None:
    """Parses the command line, checks the contract, then trains, scores or asks."""
    argv = with_config(argv, "tf_qa", QaConfig)
    config = tyro.cli(QaConfig, args=argv, prog="trainers.tf_qa", use_underscores=True)
    want_addresses(2.8, "TensorFlow")
    if config.ask is not None:
        from trainers.on_tf.qa_saved_model import ask  # TensorFlow: seconds that refusals spare

        ask(config)
    elif config.evaluate_checkpoints is not None:
        from trainers.on_tf.qa_evaluation import evaluate_checkpoints

        with errors_in_words(config.run_directory, "Mend that, then ask again"):
            evaluate_checkpoints(config)
    else:
        _train(config)


def _train(config: QaConfig) -> None:
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

    from trainers.on_tf.qa_run import train_reader

    train_reader(plan, shards)


if __name__ == "__main__":
    run_entry(main)
