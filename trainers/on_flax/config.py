"""Settings of the masked language model's trainer, and the encoder that they and the contract make.

Standard library only, so that --help and refusals cost no import of JAX.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.on_flax.run_config import (
    Plan,
    RunConfig,
    at_least,
    check_task,
    output_directory,
    planned_steps,
    share,
)

# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is RoBERTa's own.
PRESETS = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512},
    "small": {"layers": 4, "hidden_size": 512, "heads": 8, "intermediate_size": 2048},
    "base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 3072},
}
DEFAULT_MASK_RATE = 0.15  # BERT's and RoBERTa's
# What the families differ in besides their names of weights.
FAMILIES = {
    "roberta": {"token_types": 1, "layer_norm_epsilon": 1e-5},
    "bert": {"token_types": 2, "layer_norm_epsilon": 1e-12},
    "electra": {"token_types": 2, "layer_norm_epsilon": 1e-12},
}


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and switches of an encoder.

    Attributes:
      family: roberta, bert or electra: whose names and config.json weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, at 2.
      layers: encoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: width of the feed-forward block.
      embedding_size: E; where it is not H, a projection leads in and the head leads out (ELECTRA).
      token_types: rows of the token type table.
      activation: of the feed-forward block, by Hugging Face's name.
      tied: the output layer is the embedding.
      dropout: on embeddings, attention probabilities and both residual branches.
      layer_norm_epsilon: RoBERTa's 1e-5, BERT's 1e-12.
    """

    family: str
    vocab_size: int
    max_positions: int
    position_offset: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    token_types: int = 1
    activation: str = "gelu"
    tied: bool = True
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        for name in ("vocab_size", "max_positions", "layers", "hidden_size", "heads"):
            at_least(self, name, 1)
        for name in ("intermediate_size", "embedding_size", "token_types"):
            at_least(self, name, 1)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.is_projected and self.family != "electra":
            raise UsageError(
                f"--embedding_size={self.embedding_size} is not --hidden_size={self.hidden_size}: "
                f"only --family=electra has a projection between them, not {self.family}"
            )
        share(self, "dropout")

    @property
    def position_rows(self) -> int:
        """Rows of the position table (Hugging Face: `max_position_embeddings`)."""
        return self.max_positions + self.position_offset

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size


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
    """Dimensions to start from; each flag below replaces one of them."""
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
      mask_rate: share of tokens that masks made on the device pick, or None for stored masks.
      evaluation_mask_rate: the same for evaluation; masks that are stored are used.
    """

    config: TrainConfig
    model: ModelConfig
    mask_rate: float | None
    evaluation_mask_rate: float | None


def model_for(config: TrainConfig, schema: Schema) -> ModelConfig:
    """The model that these settings make of this contract.

    Raises:
      UsageError: the set is of another task or vocabulary, or its rows are too long for the model.
    """
    check_task(config, schema)
    if config.vocab_size not in (None, schema.vocab_size):
        raise UsageError(
            f"--vocab_size={config.vocab_size}, but the rows of {config.shards} were written with "
            f"a vocabulary of {schema.vocab_size}: leave the flag out, or build the set with the "
            "other tokenizer"
        )
    max_positions = schema.max_length if config.max_positions is None else config.max_positions
    if max_positions < schema.max_length:
        raise UsageError(
            f"--max_positions={max_positions} is fewer than the {schema.max_length} tokens of a "
            f"row of {config.shards}: raise it, or build a set with --max_length={max_positions}"
        )
    dimensions = dict(PRESETS[config.model])
    for name in dimensions:
        if getattr(config, name) is not None:
            dimensions[name] = getattr(config, name)
    offset = schema.special_ids.get("pad", -1) + 1 if config.family == "roberta" else 0
    return ModelConfig(
        family=config.family,
        vocab_size=schema.vocab_size,
        max_positions=max_positions,
        position_offset=offset,
        embedding_size=config.embedding_size or dimensions["hidden_size"],
        dropout=config.dropout,
        **dimensions,
        **FAMILIES[config.family],
    )


def plan_run(config: TrainConfig, schema: Schema, *, train_rows: int) -> MlmPlan:
    """Settings and contract together.

    Args:
      config: what the user asked for.
      schema: what the shards are.
      train_rows: rows of the training split.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on.
    """
    model = model_for(config, schema)
    steps = planned_steps(config, train_rows)
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
        output=output_directory(config, config.model),
        mask_rate=None if stored else rate,
        evaluation_mask_rate=None if schema.static_masking else rate,
    )
