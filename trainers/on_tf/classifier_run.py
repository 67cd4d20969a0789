"""A classifier's run from its plan: devices, weights, the loop, and what is exported of it."""

from dataclasses import asdict

from trainers.data.batches import BatchReader
from trainers.data.shards_flag import shards_name
from trainers.measures.class_scores import class_weights
from trainers.models.hf_files import read_directory
from trainers.models.set_tokenizer import SCHEMA, TOKENIZER, set_file
from trainers.on_tf.backend import tf
from trainers.on_tf.classifier import Classifier, label_counts
from trainers.on_tf.classifier_config import ClassifierPlan
from trainers.on_tf.classifier_files import export_all
from trainers.on_tf.encoder import Encoder, build_encoder
from trainers.on_tf.encoder_weights import fill, fresh, pretrained
from trainers.on_tf.loop import Run, train
from trainers.on_tf.strategy import choose_strategy, device_name, set_precision
from trainers.run.journal import ProgressLine


def train_classifier(plan: ClassifierPlan, shards: BatchReader) -> None:
    """Trains, or goes on training, to the end of the plan; then exports what is asked for.

    Raises:
      UsageError: the output directory or the devices do not suit.
      DataError: the loss is no longer a number, or something cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    config, line = plan.config, ProgressLine()
    output = config.run_directory
    strategy = choose_strategy(config)
    dtype = set_precision(config, strategy)
    line.say(f"{device_name(strategy)}, {dtype}{', XLA' if config.jit_compile else ''}")
    model = first_model(plan, strategy, line)
    counts = label_counts(shards, config.train_split)
    weights = class_weights(config.class_weights, counts)
    for name, count, weight in zip(plan.model.classes, counts, weights, strict=True):
        line.say(f"  {name}: {count:,} training rows, weight {weight:.4g}")
    learner = Classifier(model, weights, best_by=config.best_by, pictures=output)
    run = Run(
        config=config,
        steps=plan.steps,
        output=output,
        model=asdict(plan.model),
        title=f"{shards_name(config.shards)}, {config.init_from or config.model}",
        files={name: set_file(shards, name) for name in (SCHEMA, TOKENIZER)},
    )
    checkpoints = train(run, learner, shards, strategy)
    if config.export or config.export_saved_model:
        step = checkpoints.load_weights(config.checkpoint)
        line.say(f"exporting the weights after step {step}")
        export_all(config, output, learner, plan.schema)


def first_model(
    plan: ClassifierPlan, strategy: tf.distribute.Strategy, line: ProgressLine
) -> Encoder:
    """The model before its first step: published weights, or new ones."""
    config = plan.config
    with strategy.scope():
        model = build_encoder(plan.model)
    if config.init_from is None:
        fill(model, fresh(plan.model, config.seed))
        return model
    place = f"--init_from={config.init_from}"
    _, tensors = read_directory(config.init_from)
    weights, notes = pretrained(tensors, plan.model, seed=config.seed, place=place)
    for note in notes:
        line.say(f"note: {place}: {note}")
    fill(model, weights)
    return model
