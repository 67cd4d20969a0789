"""A run of the classifier in use: measured on a split, on texts of a file, exported.

OUTPUT/evaluation/SET-SPLIT/measures.json, confusion.png, reliability.png   of --evaluate_only
"""

import json

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from schemas.terminal import say
from trainers.data.mixture import open_shards
from trainers.data.shards_flag import shards_name
from trainers.models.encoder import EncoderConfig
from trainers.models.set_tokenizer import kept_schema, kept_tokenizer, open_tokenizer
from trainers.on_tf.checkpoints import Checkpoints
from trainers.on_tf.classifier import LOGITS, Classifier
from trainers.on_tf.classifier_config import ClassifierConfig, check_same_rows
from trainers.on_tf.classifier_files import export_all
from trainers.on_tf.encoder import build_encoder
from trainers.on_tf.step import Steps
from trainers.on_tf.strategy import choose_strategy, set_precision
from trainers.run.journal import ProgressLine
from trainers.run.run_directory import read_settings
from trainers.tasks.class_predictions import write_predictions
from trainers.tasks.class_texts import TextRows, read_texts


def use(config: ClassifierConfig) -> None:
    """Does what is asked with the run in --output: measures, predicts, exports.

    Raises:
      UsageError: there is no such run or checkpoint, or the set does not go with it.
      DataError: something cannot be read or written.
    """
    output, line = config.run_directory, ProgressLine()
    settings = read_settings(output, config.entry)
    schema = kept_schema(output)
    try:
        sizes = EncoderConfig(
            **{**settings["model"], "classes": tuple(schema.parameters["classes"])}
        )
    except (KeyError, TypeError) as error:
        raise UsageError(f"--output={output} holds a run of another trainer") from error
    strategy = choose_strategy(config)
    set_precision(config, strategy)
    with strategy.scope():
        model = build_encoder(sizes)
    step = Checkpoints(output, config.keep_checkpoints, model).load_weights(config.checkpoint)
    line.say(f"the weights after step {step}")
    learner = Classifier(model, [1.0] * len(sizes.classes))
    steps = Steps(
        learner, None, strategy, batch_size=config.batch_size, jit_compile=config.jit_compile
    )
    if config.evaluate_only:
        _evaluate(config, learner, steps, schema, config.shards or settings["config"]["shards"])
    if config.predict is not None:
        tokenizer = open_tokenizer(kept_tokenizer(output))
        _predict(config, config.predict, steps, TextRows(schema, tokenizer))
    export_all(config, output, learner, schema)


def _evaluate(
    config: ClassifierConfig, learner: Classifier, steps: Steps, schema: Schema, place: str
) -> None:
    """Measures a split, prints and writes what it finds."""
    shards = open_shards(
        place, verify=config.verify, cache=config.cache, follow_links=config.follow_links
    )
    split = config.validation_split
    check_same_rows(place, shards.schema, schema, learner.model.sizes)
    if not shards.rows(split):
        raise shards.no_rows(split)
    folder = config.run_directory / "evaluation" / f"{shards_name(place)}-{split}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        learner.pictures = folder
        measures = learner.measures(steps.evaluated(shards, split))
        text = json.dumps(measures, indent=2) + "\n"
        (folder / "measures.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: {error}") from error
    rows = f"{measures['rows']:,.0f} rows of {split} of {place}"
    say(f"{rows}: {learner.said(measures)}\nMeasures and pictures lie in {folder}")


def _predict(config: ClassifierConfig, path: str, steps: Steps, maker: TextRows) -> None:
    """Writes a line for each text of a file, as they come."""
    batches = maker.batches(read_texts(path, maker.schema), config.batch_size)
    logits = (found[LOGITS] for _, found in steps.outputs(batches))
    write_predictions(logits, maker.schema.parameters["classes"], config.predictions)
