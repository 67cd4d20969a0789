"""Settings of the PopTorch classifier: what the command line gives and what the contract decides.

Standard library only, so that --help and refusals cost no import of PyTorch.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Optional, Tuple

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.models.encoder import (
    ELECTRA_EMBEDDING,
    PRESETS,
    EncoderConfig,
    from_config_json,
)
from trainers.models.hf_files import read_directory, refuse_existing
from trainers.models.set_tokenizer import check_same_tokens
from trainers.run.flags import RunFlags, at_least, check_task, share


@dataclass(frozen=True)
class TrainConfig(RunFlags):
    """Fine-tunes a BERT or ELECTRA classifier on Graphcore IPUs, or on plain PyTorch.

    What is not given here (vocabulary, row length, classes) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "poptorch_classifier"
    task: ClassVar[str] = "classification"

    shards: str = ""
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""

    architecture: Literal["electra", "bert"] = "electra"
    """Of a model that starts from scratch."""
    model: Literal["tiny", "small", "base", "electra_small"] = "electra_small"
    """Dimensions of a model that starts from scratch; each flag below replaces one of them."""
    layers: Optional[int] = None
    """Encoder layers."""
    hidden_size: Optional[int] = None
    """Width of the hidden states."""
    embedding_size: Optional[int] = None
    """ELECTRA's width of the embedding. None: 128 up to hidden states of 256, else as wide."""
    heads: Optional[int] = None
    """Attention heads; divides hidden_size."""
    intermediate_size: Optional[int] = None
    """Width of the feed-forward block."""
    dropout: Optional[float] = None
    """Everywhere in the model. None: what the weights' config.json says, or 0.1."""

    device: Literal["auto", "ipu", "cpu", "cuda"] = "auto"
    """auto: IPUs if PopTorch finds them, else a GPU, else the CPU."""
    blocks_per_ipu: str = "auto"
    """Blocks on each IPU: the embedding, then each layer. auto: 1+4+4+4 for 12 layers."""
    replication: int = 1
    """Copies of the model, each on its own IPUs."""
    device_iterations: int = 1
    """Steps that IPUs run at a time; the learning rate is that of the first of them."""
    loss_scaling: float = 128.0
    """Of gradients in float16, on IPUs."""
    executable_cache: Optional[str] = None
    """Directory of compiled IPU programs, to compile each only once."""
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """auto: float16 on IPUs, bfloat16 on a GPU, float32 on the CPU."""
    accumulation: Optional[int] = None
    """Micro-batches a step and replica. None: 1, or on IPUs as few as fill the pipeline."""

    best_by: Literal["accuracy", "auc", "f1", "loss"] = "accuracy"
    """What the best checkpoint, kept besides the newest, is best in on the validation split."""
    patience: Optional[int] = None
    """Stop after so many evaluations in a row without a better one. None: never."""

    predict: Optional[str] = None
    """Do not train: classify the documents of this file (text lines, or JSON Lines by .jsonl) with
    the best weights of the run in --output; a line of label, tab, probability for each."""
    predictions: Optional[str] = None
    """Where the lines of --predict go. None: standard output."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        counts = ("accumulation", "replication", "device_iterations", "patience")
        dimensions = ("layers", "hidden_size", "embedding_size", "heads", "intermediate_size")
        for name in counts + dimensions:
            at_least(self, name, 1)
        if not self.loss_scaling > 0:
            raise UsageError(f"--loss_scaling={self.loss_scaling}: must be above 0")
        share(self, "dropout")
        if self.predict is not None and self.output is None:
            raise UsageError("--predict needs the run to use: give --output")
        if self.predict is None and not self.shards:
            raise UsageError("give the directory of a shard set with --shards")
        if self.predictions is not None and self.predict is None:
            raise UsageError(f"--predictions={self.predictions} needs --predict=FILE")


# What a resumed run must have in common with its first part: else it would be another run, or
# another order of the data.
SAME_SETTINGS = (
    "batch_size",
    "seed",
    "train_split",
    "clip_norm",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "beta1",
    "beta2",
    "epsilon",
    "init_from",
    "precision",
    "best_by",
)


@dataclass(frozen=True)
class Plan:
    """A run, once the settings have met the contract.

    Attributes:
      config: the settings.
      schema: the contract.
      model: the model's dimensions and switches.
      steps: optimizer steps of the whole schedule.
      output: the run's directory.
    """

    config: TrainConfig
    schema: Schema
    model: EncoderConfig
    steps: int
    output: Path


def model_for(config: TrainConfig, schema: Schema) -> EncoderConfig:
    """The model that these settings make of this contract.

    Raises:
      UsageError: the set is of another task, its rows are too long for the published weights, or
        its pairs need token types that these lack.
    """
    check_task(config.task, schema, config.shards)
    classes = tuple(schema.parameters["classes"])
    if config.init_from is not None:
        model = _published(config, config.init_from, schema, classes)
    else:
        model = _from_scratch(config, schema, classes)
    if config.dropout is None:
        return model
    rate = config.dropout
    return dataclasses.replace(model, dropout=rate, attention_dropout=rate, classifier_dropout=rate)


def _from_scratch(config: TrainConfig, schema: Schema, classes: Tuple[str, ...]) -> EncoderConfig:
    dimensions = dict(PRESETS[config.model])
    for name in dimensions:
        if getattr(config, name) is not None:
            dimensions[name] = getattr(config, name)
    embedding_size = config.embedding_size or dimensions["hidden_size"]
    if config.architecture == "electra" and config.embedding_size is None:
        narrow = dimensions["hidden_size"] <= 2 * ELECTRA_EMBEDDING
        embedding_size = ELECTRA_EMBEDDING if narrow else dimensions["hidden_size"]
    return EncoderConfig(
        architecture=config.architecture,
        vocab_size=schema.vocab_size,
        embedding_size=embedding_size,
        position_rows=schema.max_length,
        position_offset=0,
        type_rows=2,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        dropout=0.1,
        attention_dropout=0.1,
        classifier_dropout=0.1,
        classes=classes,
        **dimensions,
    )


def _published(
    config: TrainConfig, directory: str, schema: Schema, classes: Tuple[str, ...]
) -> EncoderConfig:
    place = f"--init_from={directory}"
    for name in ("layers", "hidden_size", "embedding_size", "heads", "intermediate_size"):
        if getattr(config, name) is not None:
            raise UsageError(
                f"--{name}={getattr(config, name)} is decided by the weights of {place}: leave one "
                "of the two flags out"
            )
    found, _ = read_directory(directory, model_types=("electra", "bert"))
    model = from_config_json(found, classes=classes, place=place)
    if model.max_positions < schema.max_length:
        raise UsageError(
            f"{place} places {model.max_positions} tokens, and a row of {config.shards} has "
            f"{schema.max_length}: build a set with --max_length={model.max_positions}"
        )
    if model.type_rows < 2 and any(f.name == "token_type_ids" for f in schema.features):
        raise UsageError(
            f"{place} knows one token type, and the pairs of {config.shards} have two: give other "
            "weights"
        )
    # Published tables may have more rows than the tokenizer has ids; they stay.
    return dataclasses.replace(model, vocab_size=max(model.vocab_size, schema.vocab_size))


def plan_run(
    config: TrainConfig, schema: Schema, *, train_rows: int, tokenizer_json: Optional[bytes] = None
) -> Plan:
    """Settings and contract together.

    Args:
      config: what the user asked for.
      schema: what the shards are.
      train_rows: rows of the training split.
      tokenizer_json: of the shards, to compare with that of --init_from.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on.
    """
    model = model_for(config, schema)
    if config.init_from is not None and tokenizer_json is not None:
        check_same_tokens(tokenizer_json, config.init_from, flag="--init_from")
    steps = config.planned_steps(train_rows)
    if config.export is not None:
        refuse_existing(config.export)
    return Plan(
        config=config,
        schema=schema,
        model=model,
        steps=steps,
        output=config.output_directory(config.model),
    )
