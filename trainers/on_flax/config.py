"""Settings of the Flax trainers: what the command line gives and what the contract decides.

Standard library only, so that --help and refusals cost no import of JAX.
"""

import dataclasses
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from trainers.shards_flag import shards_name

# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is RoBERTa's own.
PRESETS = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512},
    "small": {"layers": 4, "hidden_size": 512, "heads": 8, "intermediate_size": 2048},
    "base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 3072},
}
DEFAULT_MASK_RATE = 0.15  # BERT's and RoBERTa's


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions of an encoder.

    Attributes:
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, at 2.
      layers: encoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: width of the feed-forward block.
      dropout: on embeddings, attention probabilities and both residual branches.
      layer_norm_epsilon: RoBERTa's 1e-5.
    """

    vocab_size: int
    max_positions: int
    position_offset: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        for name in ("vocab_size", "max_positions", "layers", "hidden_size", "heads"):
            _at_least(self, name, 1)
        _at_least(self, "intermediate_size", 1)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        _share(self, "dropout")

    @property
    def position_rows(self) -> int:
        """Rows of the position table (Hugging Face: `max_position_embeddings`)."""
        return self.max_positions + self.position_offset


@dataclass(frozen=True)
class TrainConfig:
    """Trains a RoBERTa-style masked language model on a shard set.

    What is not given here (vocabulary, row length, special tokens) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.
    """

    shards: str
    """Directory that build_shards wrote; or several with weights, as DIR:0.7,DIR:0.3."""
    output: str | None = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    verify: bool = True
    """Check the sha256 of every file of the set before the first step."""

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
    max_positions: int | None = None
    """Longest segment the model can place, at least the rows' length. None: that length."""
    vocab_size: int | None = None
    """Only a check: must be the contract's."""
    dropout: float = 0.0
    """On embeddings, attention probabilities and residual branches."""

    masking: Literal["auto", "static", "dynamic"] = "auto"
    """static: as stored. dynamic: anew in every epoch, on the device. auto: static if stored."""
    mask_rate: float | None = None
    """Share of tokens that dynamic masking picks. None: the contract's."""

    steps: int | None = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given; of a mixture, over all its rows."""
    stop_after: int | None = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    batch_size: int = 32
    """Rows a step, over all devices and microbatches."""
    accumulation: int = 1
    """Microbatches a step; gradients are added up in f32."""
    learning_rate: float = 5e-4
    """Highest learning rate."""
    warmup_steps: int | None = None
    """Linear warm-up, then linear decay to 0. None: a tenth of the steps."""
    weight_decay: float = 0.01
    """AdamW's, on matrices only."""
    beta1: float = 0.9
    """AdamW's."""
    beta2: float = 0.98
    """AdamW's."""
    epsilon: float = 1e-6
    """AdamW's."""
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 does not clip."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""
    seed: int = 0
    """Of weights, row order, dynamic masks and dropout."""

    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on, if the set has it."""
    evaluate_every: int = 500
    """Steps between evaluations; there is one at the end in any case."""
    checkpoint_every: int = 500
    """Steps between checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        positive = ("batch_size", "accumulation", "evaluate_every", "checkpoint_every")
        for name in (*positive, "keep_checkpoints", "steps", "stop_after"):
            _at_least(self, name, 1)
        for name in ("epochs", "learning_rate", "epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name}={getattr(self, name)}: must be above 0")
        for name in ("warmup_steps", "weight_decay", "clip_norm", "seed"):
            _at_least(self, name, 0)
        if self.seed >= 1 << 32:
            raise UsageError(f"--seed={self.seed}: must be below 2**32")
        for name in ("beta1", "beta2", "dropout"):
            _share(self, name)
        if self.mask_rate is not None and not 0 < self.mask_rate < 1:
            raise UsageError(f"--mask_rate={self.mask_rate}: a share between 0 and 1")
        if self.batch_size % self.accumulation:
            raise UsageError(
                f"--batch_size={self.batch_size} is no multiple of "
                f"--accumulation={self.accumulation}: microbatches are of one size"
            )

    def command(self, **changes: object) -> str:
        """The command line that gives these settings, with some of them changed."""
        words = ["python", "-m", "trainers.flax_mlm"]
        for field in dataclasses.fields(self):
            value = changes.get(field.name, getattr(self, field.name))
            if value == field.default or value is None:
                continue
            if isinstance(value, bool):
                words.append(f"--{field.name}" if value else f"--no_{field.name}")
            else:
                words.append(f"--{field.name}={value}")
        return shlex.join(words)


@dataclass(frozen=True)
class Plan:
    """A run, once the settings have met the contract.

    Attributes:
      config: the settings.
      schema: the contract.
      model: the model's dimensions.
      steps: optimizer steps of the whole schedule.
      output: the run's directory.
      mask_rate: share of tokens that masks made on the device pick, or None for stored masks.
      evaluation_mask_rate: the same for evaluation; masks that are stored are used.
    """

    config: TrainConfig
    schema: Schema
    model: ModelConfig
    steps: int
    output: Path
    mask_rate: float | None
    evaluation_mask_rate: float | None


def _at_least(config: object, name: str, least: int) -> None:
    value = getattr(config, name)
    if value is not None and value < least:
        raise UsageError(f"--{name}={value}: must be at least {least}")


def _share(config: object, name: str) -> None:
    value = getattr(config, name)
    if not 0 <= value < 1:
        raise UsageError(f"--{name}={value}: a share from 0 to below 1")


def model_for(config: TrainConfig, schema: Schema) -> ModelConfig:
    """The model that these settings make of this contract.

    Raises:
      UsageError: the set is of another task or vocabulary, or its rows are too long for the model.
    """
    if schema.task != "mlm":
        raise UsageError(
            f"{config.shards} holds rows for task {schema.task!r}; this trainer takes 'mlm'. Build "
            "a set with build_shards --task=mlm, or use that task's trainer"
        )
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
    return ModelConfig(
        vocab_size=schema.vocab_size,
        max_positions=max_positions,
        position_offset=schema.special_ids.get("pad", -1) + 1,
        dropout=config.dropout,
        **dimensions,
    )


def plan_run(config: TrainConfig, schema: Schema, *, train_rows: int) -> Plan:
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
    if not train_rows:
        raise DataError(
            f"{config.shards}: split {config.train_split!r} has no rows; build the set from more "
            "text or with other --splits"
        )
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
    steps = config.steps or math.ceil(config.epochs * train_rows / config.batch_size)
    name = f"{shards_name(config.shards)}-{config.model}"
    return Plan(
        config=config,
        schema=schema,
        model=model,
        steps=steps,
        output=Path(config.output or Path("runs") / name),
        mask_rate=None if stored else rate,
        evaluation_mask_rate=None if schema.static_masking else rate,
    )
