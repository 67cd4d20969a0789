"""Settings of tf_classifier: what the command line gives and what the contract decides.

Standard library only, so that --help and refusals cost no import of TensorFlow.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.measures.class_scores import class_weights
from trainers.models.encoder import (
    ARCHITECTURES,
    PRESETS,
    EncoderConfig,
    from_config_json,
)
from trainers.models.hf_files import read_directory, refuse_existing
from trainers.on_tf.run_config import RunConfig
from trainers.run.flags import at_least, check_task, share


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(RunConfig):
    """Trains a classifier of BERT's family on a shard set, or uses one that was trained.

    What is not given here (vocabulary, row length, classes) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "tf_classifier"
    task: ClassVar[str] = "classification"
    same_settings: ClassVar[tuple[str, ...]] = (
        *RunConfig.same_settings,
        "best_by",
        "class_weights",
    )

    model: Literal["tiny", "small", "base"] = "tiny"
    """Dimensions to start from without --init_from; each flag below replaces one of them."""
    architecture: Literal["bert", "roberta", "electra"] = "bert"
    """Of a model without --init_from."""
    layers: int | None = None
    """Encoder layers."""
    hidden_size: int | None = None
    """Width of the hidden states."""
    heads: int | None = None
    """Attention heads; divides hidden_size."""
    intermediate_size: int | None = None
    """Width of the feed-forward block."""
    max_positions: int | None = None
    """Longest row the model can place, at least the set's. None: that length."""
    dropout: float | None = None
    """On embeddings, attention probabilities, residual branches and before the head. None: as the
    published model has it, 0.1 for a new one."""
    class_weights: str = "none"
    """Weight of each class in the loss: none, balanced, or one number a class as in 1,2.5."""

    best_by: Literal["accuracy", "auc", "f1", "loss"] = "accuracy"
    """What the best checkpoint is best in, on the validation split."""

    evaluate_only: bool = False
    """Do not train: measure the run in --output on --validation_split of --shards, or of the set it
    was trained on. Measures and pictures go to OUTPUT/evaluation."""
    predict: str | None = None
    """Do not train: classify the texts of this file (JSON Lines by .jsonl, else lines; a pair's two
    with a tab between) with the run in --output; a line of label, tab, probability for each."""
    predictions: str | None = None
    """Where the lines of --predict go. None: standard output."""
    checkpoint: str = "best"
    """Which weights to use, measure and export: best, last, or a step's number. Without --shards
    --export and --export_saved_model write those of the run in --output."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        for name in ("layers", "hidden_size", "heads", "intermediate_size", "max_positions"):
            at_least(self, name, 1)
            if getattr(self, name) is not None and self.init_from and name != "max_positions":
                raise UsageError(
                    f"--{name}={getattr(self, name)}, but the weights of --init_from have their "
                    "own dimensions: leave one of them out"
                )
        share(self, "dropout")
        if not self.trains:
            flags = ("evaluate_only", "predict", "export", "export_saved_model")
            if not any(getattr(self, flag) for flag in flags):
                raise UsageError("give the directory of a shard set with --shards")
            if self.output is None:
                raise UsageError("without training there must be a run to use: give --output")
        if self.predictions is not None and self.predict is None:
            raise UsageError(f"--predictions={self.predictions} needs --predict=FILE")
        for flag in ("export", "export_saved_model"):
            if getattr(self, flag) is not None:
                refuse_existing(getattr(self, flag), flag=f"--{flag}")

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return bool(self.shards) and not self.evaluate_only and self.predict is None

    @property
    def run_directory(self) -> Path:
        """Where the run lies."""
        return self.output_directory(self.model)


@dataclass(frozen=True)
class ClassifierPlan:
    """A run, once the settings have met the contract.

    Attributes:
      config: the settings.
      schema: the contract.
      model: the model's dimensions.
      steps: optimizer steps of the whole schedule.
    """

    config: ClassifierConfig
    schema: Schema
    model: EncoderConfig
    steps: int


def plan_run(config: ClassifierConfig, schema: Schema, *, train_rows: int) -> ClassifierPlan:
    """Settings and contract together.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on, or the weights cannot be read.
    """
    check_task(config.task, schema, config.shards)
    model = model_for(config, schema)
    if config.class_weights not in ("none", "balanced"):
        check_class_weights(config.class_weights, schema)
    return ClassifierPlan(config, schema, model, config.planned_steps(train_rows))


def check_class_weights(text: str, schema: Schema) -> None:
    """Refuses weights that do not go with the set's classes."""
    classes = schema.parameters["classes"]
    try:
        class_weights(text, [1] * len(classes))
    except ValueError as error:
        raise UsageError(
            f"--class_weights={text}: {error} (the classes are {', '.join(classes)})"
        ) from error


def check_same_rows(place: str, schema: Schema, trained: Schema, model: EncoderConfig) -> None:
    """Refuses rows that mean something else than those a model was trained on, or are too long.

    Args:
      place: of the rows.
      schema: their contract.
      trained: of the set that the model was trained on.
      model: its dimensions.

    Raises:
      UsageError: names what differs.
    """
    check_task(ClassifierConfig.task, schema, place)
    of_rows, of_model = (
        {
            "classes": found.parameters["classes"],
            "tokenizer": found.tokenizer_sha256,
            "features": [feature.name for feature in found.features],
        }
        for found in (schema, trained)
    )
    differing = [
        f"its {name} is {of_rows[name]!r}, the model's {of_model[name]!r}"
        for name in of_rows
        if of_rows[name] != of_model[name]
    ]
    if differing:
        raise UsageError(
            f"{place} does not go with the model: {'; '.join(differing)}. Build it as the set that "
            "the model was trained on"
        )
    check_length(model, schema, place)


def model_for(config: ClassifierConfig, schema: Schema) -> EncoderConfig:
    """The model that these settings make of this contract.

    Raises:
      UsageError: the rows are too long for the weights, or these cannot be used.
    """
    classes = tuple(schema.parameters["classes"])
    if config.init_from is None:
        model = _new_model(config, schema, classes)
    else:
        model = _published_model(config, schema, classes, config.init_from)
    check_length(model, schema, config.shards)
    return model


def check_length(model: EncoderConfig, schema: Schema, place: str) -> None:
    """Refuses rows that are longer than the model can place."""
    if model.max_positions < schema.max_length:
        raise UsageError(
            f"the model places {model.max_positions} tokens, fewer than the {schema.max_length} "
            f"of a row of {place}: build a set with --max_length={model.max_positions}, or train a "
            "model with more --max_positions"
        )


def _new_model(config: ClassifierConfig, schema: Schema, classes: tuple[str, ...]) -> EncoderConfig:
    sizes = dict(PRESETS[config.model])
    sizes.update({n: getattr(config, n) for n in sizes if getattr(config, n) is not None})
    is_roberta = config.architecture == "roberta"
    offset = schema.special_ids.get("pad", -1) + 1 if is_roberta else 0
    dropout = 0.1 if config.dropout is None else config.dropout
    return EncoderConfig(
        architecture=config.architecture,
        vocab_size=schema.vocab_size,
        embedding_size=sizes["hidden_size"],
        position_rows=(config.max_positions or schema.max_length) + offset,
        position_offset=offset,
        type_rows=1 if is_roberta else 2,
        activation="gelu",
        layer_norm_epsilon=1e-5 if is_roberta else 1e-12,
        dropout=dropout,
        attention_dropout=dropout,
        classifier_dropout=dropout,
        classes=classes,
        **sizes,
    )


def _published_model(
    config: ClassifierConfig, schema: Schema, classes: tuple[str, ...], directory: str
) -> EncoderConfig:
    place = f"--init_from={directory}"
    found, _ = read_directory(directory, model_types=ARCHITECTURES)
    if config.max_positions is not None:
        raise UsageError(
            f"--max_positions={config.max_positions}, but the weights of {place} have their own "
            "positions: leave it out"
        )
    model = from_config_json(found, classes=classes, place=place)
    # Published tables may have more rows than the tokenizer has ids; they stay.
    changes: dict[str, Any] = {"vocab_size": max(model.vocab_size, schema.vocab_size)}
    if config.dropout is not None:
        changes.update(
            dropout=config.dropout,
            attention_dropout=config.dropout,
            classifier_dropout=config.dropout,
        )
    return EncoderConfig(**{**asdict(model), **changes})
