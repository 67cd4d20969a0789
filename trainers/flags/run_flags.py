"""The flags of a trainer, in groups.

    @dataclass(frozen=True)
    class FlaxMlmFlags(RunFlags):
        entry: ClassVar[str] = "flax_mlm"
        task: MlmFlags = MlmFlags()

    flags.data.shards, flags.task.masking       # --shards, --masking

A trainer with more flags, other choices or other defaults replaces a group by a subclass of it. A
flag means the same in all trainers, and its name is in only one group.

--help prints the string under a field, and its default unless the string ends with "Default: ...".
"""

import importlib.util
import math
import os
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, Optional, Tuple, Union

from typing_extensions import Annotated

from textmill.schemas.commands.values import NONE, OF_THIS_RUN, spelled
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.files.cache import CACHE_GIGABYTES, Cache, default_directory
from textmill.schemas.files.store import is_url
from textmill.schemas.format.features import ROWS_OF
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.data.shards_value import check_shares, open_shards, shards_name
from textmill.trainers.data.stages import Stages


def at_least(config: object, least: int, *names: str) -> None:
    """Refuses flags below `least`, NaN and what float32 cannot hold; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value <= 1e30:
            bound = "at most 1e30" if value > least else f"at least {least}"
            raise FieldError(name, value, f"must be {bound}")


def above_0(config: object, *names: str) -> None:
    """Refuses flags that are not above 0, or that float32 cannot hold with what they multiply."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value <= 1e30:
            raise FieldError(name, value, "must be above 0 and at most 1e30")


def share(config: object, *names: str) -> None:
    """Refuses flags outside [0, 1); None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise FieldError(name, value, "must be at least 0 and below 1")


def on_disk(config: object, *names: str) -> None:
    """Refuses URLs and empty names (`--export=$UNSET`); None passes."""
    for name in names:
        value = getattr(config, name)
        if value == "":
            raise UsageError(f"{flag(name)} is empty: give a directory, or leave the flag out")
        if value is not None and is_url(value):
            raise UsageError(
                f"{flag(name, value)}: give a directory on this machine; only {flag('shards')} may "
                "be a URL"
            )


def refuse_existing(path: str, *, field: str = "export") -> None:
    """Refuses to replace files, before hours of training; an empty directory passes."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{flag(field, path)} exists already: give another directory or remove it")


_LOG_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by the name for --log_to
DIMENSIONS = (
    *("max_positions", "layers", "hidden_size", "heads"),
    *("intermediate_size", "embedding_size"),
)


@dataclass(frozen=True)
class DataFlags:
    """Which rows the trainer reads."""

    shards: str = ""
    """Directory or URL of a dataset that build_shards wrote. Several are mixed by weight,
    DIR:0.7,DIR:0.3, or as --stages says: web=DIR,code=DIR."""
    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on, if the dataset has it."""
    evaluation_rows: Optional[int] = None
    """Evaluate on the first N rows of the split, or of each dataset of a mixture. Default: all."""
    verify: bool = True
    """Check the sha256 of every file of the dataset first."""
    follow_links: bool = False
    """Also open files of the dataset that are links to outside its directory."""
    order: Literal["auto", "window", "full"] = "auto"
    """Order of the rows: full permutes all rows, window permutes pieces and the rows of 128 pieces
    at a time. auto is window for a dataset at a URL that is larger than the cache, else full."""
    cache_dir: Optional[str] = None
    """Directory for files fetched from a URL. Default: ~/.cache/textmill."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """Size limit of the cache, in 1e9 bytes. The least recently used files are removed first."""

    def __post_init__(self) -> None:
        """Refuses a URL as the cache, a cache without space, and no rows."""
        at_least(self, 1, "evaluation_rows")
        on_disk(self, "cache_dir")
        Cache(self.cache_dir or default_directory(), self.cache_gigabytes)

    def open(self, seed: int, **stages: Any) -> Union[ShardSet, Mixture]:
        """Opens the dataset or the mixture; the seed decides the order of a mixture.

        `stages` are arguments of `open_shards` on stages.
        """
        names = ("verify", "order", "cache_dir", "cache_gigabytes", "follow_links")
        opening = {name: getattr(self, name) for name in names}
        return open_shards(self.shards, seed=seed, **opening, **stages)


@dataclass(frozen=True)
class LengthFlags:
    """How long the run is, its stages, and when it evaluates and writes checkpoints."""

    steps: Optional[int] = None
    """Optimizer steps. Default: those of --epochs."""
    epochs: float = 1.0
    """Passes over the training split, or over all rows of a mixture. --steps replaces it."""
    tokens: Optional[float] = None
    """Tokens without padding to train on, such as 1e9; replaces --epochs, too. The steps are
    rounded up, by the mean of a row in the dataset's statistics."""
    stages: Annotated[
        Optional[Stages],
        spelled(
            Stages,
            "0:SET=SHARE,SET=SHARE;90%:SET=SHARE",
            none=NONE,
            of_list=Stages.of_list,
            of_mapping=Stages.of_mapping,
        ),
    ] = None
    """Shares of the datasets of --shards, which change at a step, at a part of the run (90%) or
    after a number of tokens (10B): 0:web=0.8,code=0.2;90%:web=0.3,math=0.7."""
    stage_shares: Literal["tokens", "rows"] = "tokens"
    """Whether shares of --stages are of the tokens without padding, by the mean of a row in each
    dataset's statistics, or of the rows."""
    stop_after: Optional[int] = field(default=None, metadata=OF_THIS_RUN)
    """Stop after this step, with a checkpoint. The learning rate still follows the schedule of all
    steps, so a resumed run ends as an unbroken one."""
    evaluate_every: int = 500
    """Steps between evaluations. Every stage and every run ends with one."""
    checkpoint_every: int = 500
    """Steps between checkpoints. Every run ends with one."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep."""

    def __post_init__(self) -> None:
        """Refuses counts below 1, and two lengths."""
        at_least(self, 1, "steps", "stop_after", "evaluate_every", "checkpoint_every")
        at_least(self, 1, "keep_checkpoints")
        above_0(self, "epochs", *["tokens"] * (self.tokens is not None))
        if self.steps is not None and self.tokens is not None:
            raise UsageError(
                f"{flag('steps', self.steps)} {flag('tokens', f'{self.tokens:g}')}: "
                "give one of them"
            )


@dataclass(frozen=True)
class OptimizationFlags:
    """How a step changes the weights."""

    optimizer: Literal["adamw", "sgd_momentum"] = "adamw"
    """Optimizer, of the framework. sgd_momentum needs a higher learning rate."""
    learning_rate: float = 5e-5
    """Highest learning rate, reached after the warm-up."""
    warmup_steps: Optional[int] = None
    """Steps of linear warm-up. Default: a tenth of the steps."""
    schedule: Literal["linear", "cosine", "wsd"] = "linear"
    """How the learning rate falls after the warm-up: linearly, as a cosine, or linearly during the
    last --decay_steps only (warmup, stable, decay)."""
    min_lr_ratio: float = 0.0
    """Share of the highest learning rate that the last step has; with 0, the step after it."""
    decay_steps: Optional[int] = None
    """Steps of decay of --schedule=wsd. Default: a tenth of the steps."""
    weight_decay: float = 0.01
    """Weight decay, multiplied by the learning rate. It applies only to matrices."""
    beta1: float = 0.9
    """First beta of the optimizer, or the momentum of sgd_momentum."""
    beta2: float = 0.999
    """Second beta of the optimizer."""
    epsilon: float = 1e-8
    """Epsilon of adamw."""
    clip_norm: float = 1.0
    """Largest global norm of the gradient. 0 turns clipping off."""
    dropout: Optional[float] = None
    """Dropout rate on embeddings, attention probabilities and residual branches, and before a
    classifier. Default: the rate of --init_from if that is an encoder, else 0.1."""

    def __post_init__(self) -> None:
        """Refuses negative and infinite rates."""
        above_0(self, "learning_rate", "epsilon")
        at_least(self, 0, "warmup_steps", "decay_steps", "weight_decay", "clip_norm")
        if (self.warmup_steps or 0) >= 1 << 31:
            raise UsageError(f"{flag('warmup_steps', self.warmup_steps)}: must be below 2**31")
        if not 0 <= self.min_lr_ratio <= 1:
            raise UsageError(
                f"{flag('min_lr_ratio', self.min_lr_ratio)}: must be a share, from 0 to 1"
            )
        if self.decay_steps is not None and self.schedule != "wsd":
            raise UsageError(
                f"{flag('decay_steps', self.decay_steps)} needs {flag('schedule', 'wsd')}"
            )
        share(self, "beta1", "beta2", "dropout")


@dataclass(frozen=True)
class PretrainingFlags(OptimizationFlags):
    """How a step changes the weights."""

    optimizer: Literal["adamw", "muon", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """Optimizer. muon updates the matrices of layers, adamw the other weights beside it, both at
    one learning rate. sgd_momentum needs a higher rate, lion one about 5 times lower."""
    learning_rate: float = 5e-4
    beta2: float = 0.98
    epsilon: float = 1e-6
    dropout: Optional[float] = 0.0
    """Dropout rate on embeddings, attention probabilities and residual branches, and before a
    classifier."""


@dataclass(frozen=True)
class ModelFlags:
    """Which model to train."""

    family: Optional[str] = None
    """Architecture of a new model. With --init_from, config.json sets it and all flags below.
    Default: that of a published --model, else the first of these."""
    model: str = "small"
    """Named size of a new model. Each flag below replaces one of its dimensions."""
    layers: Optional[int] = None
    """Number of layers. Default: that of --model."""
    hidden_size: Optional[int] = None
    """Width of the hidden states. Default: that of --model."""
    heads: Optional[int] = None
    """Number of attention heads, a divisor of hidden_size. Default: that of --model."""
    intermediate_size: Optional[int] = None
    """Width of the feed-forward block. Default: that of --model."""
    embedding_size: Optional[int] = None
    """Width of the embeddings, only for electra and opt. Default: hidden_size, or 128 for electra
    with a hidden_size of at most 256."""
    max_positions: Optional[int] = None
    """Number of positions, at least the length of the rows. Default: the length of the rows."""
    activation: Optional[str] = None
    """Activation of the feed-forward block, by its name at Hugging Face. Default: that of the
    family's published models."""

    def __post_init__(self) -> None:
        """Refuses dimensions below 1."""
        at_least(self, 1, *DIMENSIONS)


@dataclass(frozen=True)
class EncoderFlags(ModelFlags):
    """Which encoder to train."""

    family: Optional[Literal["roberta", "bert", "electra", "modernbert"]] = None
    model: Literal[
        "tiny", "small", "base", "electra_small", "modernbert_base", "modernbert_large"
    ] = "small"  # fmt: skip


@dataclass(frozen=True)
class ClassifierFlags(EncoderFlags):
    """Which encoder to train."""

    family: Optional[Literal["bert", "roberta", "electra"]] = None
    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"


@dataclass(frozen=True)
class DecoderFlags(ModelFlags):
    """Which decoder to train."""

    family: Optional[Literal[
        "gpt2", "opt", "llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma2", "gemma3_text"
    ]] = None  # fmt: skip
    model: Literal[
        "tiny", "small", "base", "medium", "gpt2", "smollm_135m", "smollm_360m", "smollm_1.7b",
        "llama_1b", "llama_3b", "llama_8b", "mistral_7b", "qwen2_0.5b", "qwen3_0.6b", "qwen3_1.7b",
        "olmo2_1b", "gemma2_2b", "gemma3_270m", "gemma3_1b",
    ] = "small"  # fmt: skip
    norm: Optional[Literal["pre", "post"]] = None
    """LayerNorm before each block, or after it as in OPT-350m (opt only). Default: pre."""
    tied: bool = True
    """Share the weights of the embedding and the output layer. With --init_from, config.json
    decides."""
    kv_heads: Optional[int] = None
    """Number of key and value heads, a divisor of heads (not gpt2 and opt). Default: that of
    --model, else heads."""
    head_size: Optional[int] = None
    """Width of a head (not gpt2 and opt). Default: that of --model, else hidden_size / heads."""
    rope_theta: Optional[float] = None
    """Base of the wavelengths of rotary positions (not gpt2 and opt). Default: that of --model."""
    window: Optional[int] = None
    """Tokens that a token attends to in layers with local attention (mistral, gemma2 and
    gemma3_text only). 0 removes the limit of mistral. Default: that of --model, else 4096."""

    def __post_init__(self) -> None:
        """Refuses dimensions below 1."""
        super().__post_init__()
        at_least(self, 1, "kv_heads", "head_size")
        at_least(self, 0, "window")


@dataclass(frozen=True)
class ComputeFlags:
    """How the devices compute a step."""

    batch_size: int = 32
    """Rows of a step, over all devices and microbatches."""
    gradient_accumulation_steps: Optional[int] = None
    """Microbatches of a step, whose gradients are summed in float32. More of them need less memory.
    Default: as few as the devices allow."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the computation; checkpoints stay float32. auto is bfloat16 on accelerators and
    float32 on CPUs."""
    seed: int = 0
    """Seed of new weights, row order, dropout and dynamic masks."""

    def __post_init__(self) -> None:
        """Refuses batches that microbatches cannot share equally."""
        at_least(self, 1, "batch_size", "gradient_accumulation_steps")
        at_least(self, 0, "seed")
        if self.seed >= 1 << 31:
            raise UsageError(f"{flag('seed', self.seed)}: must be below 2**31")
        steps = self.gradient_accumulation_steps
        if steps and self.batch_size % steps:
            raise UsageError(
                f"{flag('batch_size', self.batch_size)} is not a multiple of "
                f"{flag('gradient_accumulation_steps', steps)}: microbatches have equal sizes"
            )

    def check_share(self, count: int, what: str) -> None:
        """Refuses a batch that `count` devices or processes cannot share in equal microbatches."""
        microbatches = self.gradient_accumulation_steps or 1
        multiple = count * microbatches
        if self.batch_size % multiple:
            raise UsageError(
                f"{flag('batch_size', self.batch_size)} cannot be shared by {count} {what} in "
                f"{microbatches} microbatches: give a multiple of {multiple}"
            )

    @property
    def exports_program(self) -> bool:
        """Whether the run writes files that only the framework can, see `Program.export`."""
        return False


@dataclass(frozen=True)
class TaskFlags:
    """The task's settings, and the metric that chooses the best weights."""

    rows: ClassVar[str]
    """Task of the rows: mlm."""
    same_settings: ClassVar[Tuple[str, ...]] = ()
    """The flags of this group that a resumed run may not change."""

    best_metric: Literal["none", "loss"] = "none"
    """Metric of the validation split that chooses the best weights, kept besides the newest."""
    patience: Optional[int] = None
    """Stop after this many evaluations in a row without a better --best_metric. Default: never."""

    def __post_init__(self) -> None:
        """Refuses patience without a metric."""
        at_least(self, 1, "patience")
        if self.patience is not None and self.best_metric == "none":
            raise UsageError(
                f"{flag('patience', self.patience)} needs a metric: give {flag('best_metric')}"
            )

    @property
    def measure(self) -> Optional[str]:
        """The metric that chooses the best weights."""
        return None if self.best_metric == "none" else self.best_metric

    def check_rows(self, schema: Schema, shards: str) -> None:
        """Raises a UsageError if the dataset's task is not the trainer's."""
        if ROWS_OF.get(schema.task, schema.task) != self.rows:
            raise UsageError(
                f"{shards} holds rows of {flag('task', schema.task)}, and this trainer needs "
                f"{self.rows}: build a dataset with build_shards {flag('task', self.rows)}, or use "
                "another trainer"
            )


@dataclass(frozen=True)
class FileFlags:
    """Where the run starts, and what it writes."""

    output: Optional[str] = field(default=None, metadata=OF_THIS_RUN)
    """Directory of checkpoints, metrics and the loss curve. Default: runs/SHARDS-MODEL."""
    resume: bool = field(default=False, metadata=OF_THIS_RUN)
    """Resume from the newest checkpoint in --output."""
    dry_run: bool = field(default=False, metadata=OF_THIS_RUN)
    """Check the flags and print what the run would read, then stop: no file is written."""
    init_from: Optional[str] = None
    """Start from published weights: a directory with config.json and model.safetensors, or a name
    on the Hugging Face Hub."""
    export: Optional[str] = None
    """At the end, write the weights as a directory for transformers. These are the best weights
    with --best_metric, else the last. trainers.export_model exports others later."""
    log_to: str = ""
    """Also log metrics to tensorboard, wandb, or both as tensorboard,wandb. Default:
    only metrics.jsonl."""

    def __post_init__(self) -> None:
        """Refuses directories that cannot be written to, before anything is read."""
        on_disk(self, "output", "init_from", "export")
        parse_log_to(self.log_to)
        if self.export is not None:
            refuse_existing(self.export)


def parse_log_to(text: str) -> Tuple[str, ...]:
    """The names in `--log_to`: "tensorboard,wandb" -> ("tensorboard", "wandb"); "" -> ().

    Raises:
      UsageError: a name is unknown, or its package is not installed.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        package = _LOG_PACKAGES.get(name)
        if package is None:
            raise UsageError(
                f"{flag('log_to', text)}: {name!r} is unknown; give {' or '.join(_LOG_PACKAGES)}, "
                "or both separated by a comma (metrics.jsonl is always written)"
            )
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{flag('log_to', text)}: the package {package} is not installed: pip install "
                f"{package}"
            )
    return names


@dataclass(frozen=True)
class RunFlags:
    """Trains on a dataset."""

    entry: ClassVar[str]
    """Name of the trainer: flax_mlm."""

    data: DataFlags = DataFlags()
    length: LengthFlags = LengthFlags()
    optimization: OptimizationFlags = OptimizationFlags()
    architecture: ModelFlags = ModelFlags()
    compute: ComputeFlags = ComputeFlags()
    task: TaskFlags = TaskFlags()
    files: FileFlags = FileFlags()

    @property
    def same_settings(self) -> Tuple[str, ...]:
        """The flags that a resumed run may not change."""
        always = ("batch_size", "seed", "order", "train_split", "clip_norm", "optimizer")
        of_stages = ("stage_shares",) if self.length.stages is not None else ()
        return (*always, "init_from", "best_metric", *of_stages, *self.task.same_settings)

    def open(self) -> Union[ShardSet, Mixture]:
        """Opens what the run trains on: --shards, in the stages of --stages.

        Raises:
          DataError: one is not a finished dataset.
          UsageError: a flag is wrong, or the datasets cannot be mixed so.
        """
        length, data = self.length, self.data
        check_shares(data.shards, length.stages)
        shards = data.open(
            self.compute.seed,
            stages=length.stages,
            batch_size=self.compute.batch_size,
            steps=length.steps,
            tokens=length.tokens,
            split=data.train_split,
            stage_shares=length.stage_shares,
        )
        if shards.stages is not None and length.stages is not None:
            shards.stages.check_end(self.plan_steps(shards), length.stages)
        return shards

    def check_splits(self, shards: BatchReader) -> None:
        """Refuses a --validation_split that the dataset lacks; a dataset may have no default one.

        Raises:
          UsageError: names the splits that there are.
        """
        split = self.data.validation_split
        if split not in (DataFlags.validation_split, *shards.splits):
            raise shards.no_split(split)

    def plan_steps(self, shards: BatchReader) -> int:
        """Optimizer steps of the whole schedule.

        Raises:
          DataError: the training split is empty.
          UsageError: there are 2**31 steps or more, which frameworks cannot count.
        """
        rows = shards.rows(self.data.train_split)
        if not rows:
            raise shards.no_rows(self.data.train_split, field="train_split")
        # Exact: 1.1 x 3,200 rows are 3520.0000000000005 as floating numbers.
        passed = rows * Fraction(str(self.length.epochs))
        if self.length.tokens is not None:
            tokens = Fraction(str(self.length.tokens))
            passed = shards.rows_of_tokens(self.data.train_split, tokens)
        steps = self.length.steps or passed / self.compute.batch_size
        if steps > (1 << 31) - 1:
            raise UsageError(
                f"the run has {float(min(steps, 1e300)):.3g} steps: must be below 2**31; lower "
                f"{flag('steps')}, {flag('epochs')} or {flag('tokens')}"
            )
        return math.ceil(steps)

    @property
    def output(self) -> Path:
        """The run's directory: `--output`, or a name made from the dataset's and the model's."""
        model = self.architecture.model
        if self.files.init_from is not None:
            model = os.path.basename(os.path.realpath(self.files.init_from))
        name = f"{shards_name(self.data.shards)}-{model}"
        return Path(self.files.output or Path("runs") / name)
