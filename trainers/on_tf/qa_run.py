"""A reader's run from its plan: devices, weights, the loop, and what is exported of it."""

from dataclasses import asdict

from trainers.data.batches import BatchReader
from trainers.data.shards_flag import shards_name
from trainers.measures.questions import PromptMaker, Scoring, read_questions
from trainers.models.hf_files import read_directory, tokenizer_settings, write_directory
from trainers.models.set_tokenizer import SCHEMA, TOKENIZER, open_tokenizer, set_file, sets_of
from trainers.on_tf.backend import tf
from trainers.on_tf.gpt2 import Gpt2, build_gpt2
from trainers.on_tf.gpt2_config import from_config_json, to_config_json
from trainers.on_tf.gpt2_weights import fill, fresh, from_hugging_face, read, to_hugging_face
from trainers.on_tf.loop import Run, train
from trainers.on_tf.qa_config import QaConfig, QaPlan
from trainers.on_tf.qa_learner import QaLearner
from trainers.on_tf.qa_saved_model import write_saved_model
from trainers.on_tf.strategy import choose_strategy, device_name, set_precision
from trainers.run.journal import ProgressLine


def train_reader(plan: QaPlan, shards: BatchReader) -> None:
    """Trains, or goes on training, to the end of the plan; then exports what is asked for.

    Raises:
      UsageError: the output directory or the devices do not suit.
      DataError: the loss is no longer a number, or something cannot be read or written.
      SystemExit: 130 or 143 after Ctrl-C or SIGTERM, with a checkpoint.
    """
    config, line = plan.config, ProgressLine()
    strategy = choose_strategy(config)
    dtype = set_precision(config, strategy)
    line.say(f"{device_name(strategy)}, {dtype}{', XLA' if config.jit_compile else ''}")
    model = first_model(plan, strategy, line)
    line.say(f"{model.count_params():,} weights; attention is {plan.schema.parameters['qa_form']}")
    scoring = scoring_of(config, shards) if config.score else None
    run = Run(
        config=config,
        steps=plan.steps,
        output=config.run_directory,
        model=asdict(plan.model),
        title=f"{shards_name(config.shards)}, {config.init_from or config.model}",
        files={name: set_file(shards, name) for name in (SCHEMA, TOKENIZER)},
    )
    learner = QaLearner(model, plan.schema, scoring, str(run.output / "predictions.json"))
    checkpoints = train(run, learner, shards, strategy)
    if config.export or config.export_saved_model:
        step = checkpoints.load_weights(config.checkpoint)
        line.say(f"exporting the weights after step {step}")
        _export(plan, model, set_file(shards, TOKENIZER), line)


def first_model(plan: QaPlan, strategy: tf.distribute.Strategy, line: ProgressLine) -> Gpt2:
    """The model before its first step: published weights, or new ones."""
    config, sizes = plan.config, plan.model
    with strategy.scope():
        model = build_gpt2(sizes)
    if config.init_from is None:
        fill(model, fresh(sizes, config.seed))
        return model
    place = f"--init_from={config.init_from}"
    found, tensors = read_directory(config.init_from)
    weights = from_hugging_face(tensors, sizes, place=place, seed=config.seed)
    rows = from_config_json(found, dropout=0.0, place=place).vocab_size
    if rows < sizes.vocab_size:
        line.say(
            f"note: {place}: the embedding has {rows:,} rows, and the set's vocabulary "
            f"{sizes.vocab_size:,} ids: new rows are drawn near the mean of the old ones"
        )
    fill(model, weights)
    return model


def scoring_of(config: QaConfig, shards: BatchReader) -> Scoring:
    """What answers to a set's questions are scored with."""
    tokenizer = open_tokenizer(set_file(shards, TOKENIZER))
    return Scoring(
        read_questions(sets_of(shards)),
        PromptMaker(shards.schema, tokenizer),
        version=config.squad_version,
    )


def _export(plan: QaPlan, model: Gpt2, tokenizer_json: bytes, line: ProgressLine) -> None:
    config, schema, sizes = plan.config, plan.schema, plan.model
    if config.export is not None:
        write_directory(
            config.export,
            to_config_json(sizes, schema.special_ids),
            to_hugging_face(read(model), sizes),
            tokenizer_json,
            tokenizer_settings(tokenizer_json, schema.special_ids, max_length=sizes.max_positions),
        )
        line.say(f"weights for transformers: {config.export}")
        if schema.parameters["qa_form"] == "prefix":
            line.say("note: transformers' GPT-2 is causal; this one read its prompts both ways")
    if config.export_saved_model is not None:
        write_saved_model(config.export_saved_model, model, schema, tokenizer_json)
        line.say(f"SavedModel: {config.export_saved_model}")
