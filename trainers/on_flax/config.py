"""Settings of the masked language model's trainer, and the encoder that they and the contract make.

No framework, so that --help and refusals cost no import of JAX.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.models.encoder import PRESETS
from trainers.models.hf_files import Tensors, read_directory
from trainers.models.set_tokenizer import check_same_tokens
from trainers.on_flax.encoder_config import FAMILIES, ModelConfig
from trainers.on_flax.encoder_files import ARCHITECTURES, encoder_config
from trainers.on_flax.run_config import Plan, RunConfig
from trainers.on_flax.weights import check_weights
from trainers.run.flags import check_task

DEFAULT_MASK_RATE = 0.15  # BERT's and RoBERTa's


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    """Trains a masked language model on a shard set: RoBERTa, BERT or ELECTRA's generator.

    What is not given here (vocabulary, row length, special tokens) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "flax_mlm"
    task: ClassVar[str] = "mlm"

    family: Literal["roberta", "bert", "electra"] = "roberta"
    """Which encoder; with --init_from its config.json says it."""
    model: Literal["tiny", "small", "base"] = "small"
    """Dimensions to start from; each flag below replaces one of them. With --init_from its
    config.json says them all."""
    layers: int | None = None
    """Encoder layers."""
    hidden_size: int | None = None
    """Width of the hidden states."""
    heads: int | None = None
    """Attention heads; divides hidden_size."""
    intermediate_size: int | None = None
    """Width of the feed-forward block."""
    embedding_size: int | None = None
    """Width of the embeddings, electra only. None: hidden_size."""
    max_positions: int | None = None
    """Longest segment the model can place, at least the rows' length. None: that length."""
    vocab_size: int | None = None
    """Only a check: must be the contract's."""
    activation: str | None = None
    """Of the feed-forward blocks, by Hugging Face's name. None: gelu."""

    masking: Literal["auto", "static", "dynamic"] = "auto"
    """static: as stored. dynamic: anew in every epoch, on the device. auto: static if stored."""
    mask_rate: float | None = None
    """Share of tokens that dynamic masking picks. None: the contract's."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        if self.mask_rate is not None and not 0 < self.mask_rate < 1:
            raise UsageError(f"--mask_rate={self.mask_rate}: a share between 0 and 1")


@dataclass(frozen=True)
class MlmPlan(Plan):
    """A run of this trainer.

    Attributes:
      config: the settings.
      model: the encoder.
      published: weights to begin with, read when they are asked for.
      published_vocabulary: rows of their embedding.
      mask_rate: share of tokens that masks made on the device pick, or None for stored masks.
      evaluation_mask_rate: the same for evaluation; masks that are stored are used.
    """

    config: TrainConfig
    model: ModelConfig
    published: Tensors | None
    published_vocabulary: int
    mask_rate: float | None
    evaluation_mask_rate: float | None


def model_for(config: TrainConfig, schema: Schema) -> ModelConfig:
    """The model that these settings make of this contract.

    Raises:
      UsageError: they make none.
    """
    dimensions: dict[str, Any] = dict(PRESETS[config.model])
    for name in dimensions:
        if getattr(config, name) is not None:
            dimensions[name] = getattr(config, name)
    offset = schema.special_ids.get("pad", -1) + 1 if config.family == "roberta" else 0
    max_positions = config.max_positions
    return ModelConfig(
        family=config.family,
        vocab_size=schema.vocab_size,
        max_positions=schema.max_length if max_positions is None else max_positions,
        position_offset=offset,
        embedding_size=config.embedding_size or dimensions["hidden_size"],
        activation=config.activation or "gelu",
        dropout=config.dropout,
        **dimensions,
        **FAMILIES[config.family],
    )


def published_model(config: TrainConfig, directory: str) -> tuple[ModelConfig, Tensors]:
    """The model that --init_from holds, with its weights.

    Raises:
      UsageError: it is another kind of model, or a flag asks for other dimensions.
      DataError: a file is broken, or a tensor is missing or left over.
    """
    place = f"--init_from={directory}"
    found, tensors = read_directory(directory, model_types=tuple(ARCHITECTURES))
    model = encoder_config(found, dropout=config.dropout, place=place)
    for name in ("layers", "hidden_size", "heads", "intermediate_size", "embedding_size"):
        _must_agree(config, name, getattr(model, name), place)
    for name in ("max_positions", "activation"):
        _must_agree(config, name, getattr(model, name), place)
    check_weights(tensors, model, place=place)
    return model, tensors


def _must_agree(config: TrainConfig, name: str, value: object, place: str) -> None:
    asked = getattr(config, name)
    if asked not in (None, value):
        raise UsageError(
            f"--{name}={asked}, but the weights of {place} have {value}: leave the flag out"
        )


def check_fit(config: TrainConfig, schema: Schema, model: ModelConfig) -> None:
    """Refuses a model that cannot read the rows.

    Raises:
      UsageError: vocabulary, row length or padding do not go together.
    """
    if config.vocab_size not in (None, schema.vocab_size):
        raise UsageError(
            f"--vocab_size={config.vocab_size}, but the rows of {config.shards} were written with "
            f"a vocabulary of {schema.vocab_size}: leave the flag out, or build the set with the "
            "other tokenizer"
        )
    if model.max_positions < schema.max_length:
        whose = f"--max_positions={model.max_positions}"
        remedy = f"raise it, or build a set with --max_length={model.max_positions}"
        if config.init_from is not None:
            whose = f"the {model.max_positions} positions of --init_from={config.init_from}"
            remedy = f"build a set with --max_length={model.max_positions}"
        verb = "are" if config.init_from is not None else "is"
        raise UsageError(
            f"{whose} {verb} fewer than the {schema.max_length} tokens of a row of "
            f"{config.shards}: {remedy}"
        )
    pad = schema.special_ids.get("pad", -1)
    if model.family == "roberta" and model.position_offset != pad + 1:
        raise UsageError(
            f"--init_from={config.init_from}: its pad_token_id is {model.position_offset - 1} and "
            f"that of {config.shards} {pad}; RoBERTa counts positions from it. Build the set with "
            "the tokenizer of these weights"
        )


def plan_run(
    config: TrainConfig, schema: Schema, *, train_rows: int, tokenizer_json: bytes | None = None
) -> MlmPlan:
    """Settings and contract together.

    Args:
      config: what the user asked for.
      schema: what the shards are.
      train_rows: rows of the training split.
      tokenizer_json: of the shards, to compare with that of --init_from.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on, or published weights are broken.
    """
    check_task(config.task, schema, config.shards)
    published, rows = None, 0
    if config.init_from is None:
        model = model_for(config, schema)
    else:
        model, published = published_model(config, config.init_from)
        rows = model.vocab_size
        # Rows beyond the set's vocabulary stay: a table is often filled up to a round number.
        model = replace(model, vocab_size=max(rows, schema.vocab_size))
        if tokenizer_json is not None:
            check_same_tokens(tokenizer_json, config.init_from, flag="--init_from")
    check_fit(config, schema, model)
    steps = config.planned_steps(train_rows)
    if config.masking == "static" and not schema.static_masking:
        raise UsageError(
            f"--masking=static, but the rows of {config.shards} carry no masks: use "
            "--masking=dynamic, or build the set with --static_masking"
        )
    rate = config.mask_rate or schema.mask_rate or DEFAULT_MASK_RATE
    stored = schema.static_masking and config.masking != "dynamic"
    if stored and config.mask_rate is not None:
        raise UsageError(
            f"--mask_rate={config.mask_rate} has no effect on the masks that the rows carry: add "
            "--masking=dynamic, or leave it out"
        )
    return MlmPlan(
        config=config,
        schema=schema,
        model=model,
        steps=steps,
        output=config.output_directory(config.model),
        published=published,
        published_vocabulary=rows,
        mask_rate=None if stored else rate,
        evaluation_mask_rate=None if schema.static_masking else rate,
    )
