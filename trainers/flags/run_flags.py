"""The flags of a trainer, in the groups that --help shows.

    @dataclass(frozen=True)
    class FlaxMlmFlags(RunFlags):
        entry: ClassVar[str] = "flax_mlm"
        task: MlmFlags = MlmFlags()

    flags.data.shards, flags.task.masking       # --shards, --masking

A trainer that has more flags, other choices or other defaults replaces a group by a subclass of it.
A flag means the same in all trainers, and its name is in one group only.
"""

import importlib.util
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Optional, Tuple, Union

from schemas.errors import UsageError
from schemas.features import ROWS_OF
from schemas.metadata import Schema
from schemas.stores.set_files import CACHE_GIGABYTES, Cache, default_directory
from schemas.stores.store import is_url
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture, open_shards, shards_name
from trainers.data.shard_set import ShardSet


def at_least(config: object, least: int, *names: str) -> None:
    """Refuses flags below `least`, or that are no numbers; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise UsageError(f"--{name}={value}: must be at least {least}")


def above_0(config: object, *names: str) -> None:
    """Refuses flags that are no finite numbers above 0."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            raise UsageError(f"--{name}={value}: must be above 0")


def share(config: object, *names: str) -> None:
    """Refuses flags that are no share from 0 to below 1; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise UsageError(f"--{name}={value}: a share from 0 to below 1")


def on_disk(config: object, *names: str) -> None:
    """Refuses URLs where directories are meant; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and is_url(value):
            raise UsageError(
                f"--{name}={value}: give a directory on this machine; only --shards may be on a "
                "store"
            )


def refuse_existing(path: str, *, flag: str = "--export") -> None:
    """Refuses to export over what is there, before hours of training rather than after."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{flag}={path} is there already: give another directory or remove it")


_LOG_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by the name in --log_to
DIMENSIONS = (
    *("max_positions", "layers", "hidden_size", "heads"),
    *("intermediate_size", "embedding_size"),
)


@dataclass(frozen=True)
class DataFlags:
    """Which rows are read."""

    shards: str = ""
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""
    train_split: str = "train"
    """Split to train on."""
    validation_split: str = "validation"
    """Split to evaluate on, if the set has it."""
    verify: bool = True
    """Check the sha256 of every file of the set before it is read."""
    follow_links: bool = False
    """Open files of the set that are links out of its directory, too."""
    cache_dir: Optional[str] = None
    """Where files of sets on gs:// or s3:// are kept. None: textmill in ~/.cache."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """That all sets in it may take; the least recently used files go first."""

    def __post_init__(self) -> None:
        """Refuses a cache on a store or of no size."""
        on_disk(self, "cache_dir")
        Cache(self.cache_dir or default_directory(), self.cache_gigabytes)

    def open(self, seed: int) -> Union[ShardSet, Mixture]:
        """Opens the set, or the mixture, whose order the seed decides."""
        names = ("verify", "cache_dir", "cache_gigabytes", "follow_links")
        opening = {name: getattr(self, name) for name in names}
        return open_shards(self.shards, seed=seed, **opening)


@dataclass(frozen=True)
class LengthFlags:
    """How long a run is, and what happens on its way."""

    steps: Optional[int] = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given; of a mixture, over all its rows."""
    stop_after: Optional[int] = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    evaluate_every: int = 500
    """Steps between evaluations; there is one at the end in any case."""
    checkpoint_every: int = 500
    """Steps between checkpoints; there is one at the end in any case."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""

    def __post_init__(self) -> None:
        """Refuses counts below 1."""
        at_least(self, 1, "steps", "stop_after", "evaluate_every", "checkpoint_every")
        at_least(self, 1, "keep_checkpoints")
        above_0(self, "epochs")


@dataclass(frozen=True)
class OptimizationFlags:
    """How weights change in a step."""

    optimizer: Literal["adamw", "sgd_momentum"] = "adamw"
    """The framework's own. sgd_momentum wants a higher learning rate."""
    learning_rate: float = 5e-5
    """Highest learning rate."""
    warmup_steps: Optional[int] = None
    """Linear warm-up, then linear decay to 0. None: a tenth of the steps."""
    weight_decay: float = 0.01
    """Times the learning rate, on matrices only."""
    beta1: float = 0.9
    """Of adamw and lion; the momentum of sgd_momentum."""
    beta2: float = 0.999
    """Of adamw and lion."""
    epsilon: float = 1e-8
    """Of adamw."""
    clip_norm: float = 1.0
    """Largest global norm of a gradient; 0 does not clip."""
    dropout: Optional[float] = None
    """On embeddings, attention probabilities, residual branches and before a classifier. None: as
    published encoders have it, 0.1 for other models."""

    def __post_init__(self) -> None:
        """Refuses rates below 0 or without end."""
        above_0(self, "learning_rate", "epsilon")
        at_least(self, 0, "warmup_steps", "weight_decay", "clip_norm")
        share(self, "beta1", "beta2", "dropout")


@dataclass(frozen=True)
class PretrainingFlags(OptimizationFlags):
    """How weights change in a step."""

    optimizer: Literal["adamw", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """The framework's own. sgd_momentum wants a higher learning rate, lion one some 5 times
    lower."""
    learning_rate: float = 5e-4
    beta2: float = 0.98
    epsilon: float = 1e-6
    dropout: Optional[float] = 0.0


@dataclass(frozen=True)
class ModelFlags:
    """Which model."""

    family: str = ""
    """Whose architecture; with --init_from its config.json says it, and all that follows."""
    model: str = "small"
    """Dimensions to start from; each flag below replaces one of them."""
    layers: Optional[int] = None
    """Layers of attention and feed-forward block."""
    hidden_size: Optional[int] = None
    """Width of the hidden states."""
    heads: Optional[int] = None
    """Attention heads; divides hidden_size."""
    intermediate_size: Optional[int] = None
    """Width of the feed-forward block."""
    embedding_size: Optional[int] = None
    """Width of the embeddings, electra and opt only. None: hidden_size; of electra 128 up to
    hidden states of 256."""
    max_positions: Optional[int] = None
    """Longest segment the model can place, at least the rows' length. None: that length."""
    activation: Optional[str] = None
    """Of the feed-forward blocks, by Hugging Face's name. None: gelu; gelu_new for gpt2, relu for
    opt."""

    def __post_init__(self) -> None:
        """Refuses dimensions below 1."""
        at_least(self, 1, *DIMENSIONS)


@dataclass(frozen=True)
class EncoderFlags(ModelFlags):
    """Which encoder."""

    family: Literal["roberta", "bert", "electra"] = "roberta"
    model: Literal["tiny", "small", "base", "electra_small"] = "small"


@dataclass(frozen=True)
class ClassifierFlags(EncoderFlags):
    """Which encoder."""

    family: Literal["bert", "roberta", "electra"] = "bert"
    model: Literal["tiny", "small", "base", "electra_small"] = "tiny"


@dataclass(frozen=True)
class DecoderFlags(ModelFlags):
    """Which decoder."""

    family: Literal["gpt2", "opt"] = "gpt2"
    model: Literal["tiny", "small", "base", "medium", "gpt2"] = "small"
    norm: Optional[Literal["pre", "post"]] = None
    """LayerNorm before each block, or after it (opt only, as OPT-350m). None: pre."""
    tied: bool = True
    """Use the embedding as the output layer, too. --init_from decides for published weights."""


@dataclass(frozen=True)
class ComputeFlags:
    """How a step is computed."""

    batch_size: int = 32
    """Rows a step, over all devices and microbatches."""
    accumulation: Optional[int] = None
    """Microbatches a step; gradients are added up in f32. None: as few as the devices ask for."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""
    seed: int = 0
    """Of new weights, row order, dropout and masks made while training."""

    def __post_init__(self) -> None:
        """Refuses batches that cannot be cut."""
        at_least(self, 1, "batch_size", "accumulation")
        at_least(self, 0, "seed")
        if self.seed >= 1 << 31:
            raise UsageError(f"--seed={self.seed}: must be below 2**31")
        if self.accumulation and self.batch_size % self.accumulation:
            raise UsageError(
                f"--batch_size={self.batch_size} is no multiple of "
                f"--accumulation={self.accumulation}: microbatches are of one size"
            )

    @property
    def exports_program(self) -> bool:
        """Whether something is to be written that only the framework can, see `Program.export`."""
        return False


@dataclass(frozen=True)
class TaskFlags:
    """What is learned and measured."""

    rows: ClassVar[str]
    """Task of the rows: mlm."""
    same_settings: ClassVar[Tuple[str, ...]] = ()
    """Of these flags, what a resumed run has in common with its first part."""

    best_by: Literal["none", "loss"] = "none"
    """What the best weights, kept besides the newest, are best in on the validation split."""
    patience: Optional[int] = None
    """Stop after so many evaluations in a row without a better one by --best_by. None: never."""

    def __post_init__(self) -> None:
        """Refuses patience without a measure."""
        at_least(self, 1, "patience")
        if self.patience is not None and self.best_by == "none":
            raise UsageError(f"--patience={self.patience} needs --best_by: better in what?")

    @property
    def measure(self) -> Optional[str]:
        """The measure that the best weights are chosen by."""
        return None if self.best_by == "none" else self.best_by

    def check_rows(self, schema: Schema, shards: str) -> None:
        """Refuses with a UsageError a set whose rows are not the trainer's."""
        if ROWS_OF.get(schema.task, schema.task) != self.rows:
            raise UsageError(
                f"{shards} holds rows for task {schema.task!r}; this trainer takes {self.rows!r}. "
                f"Build a set with build_shards --task={self.rows}, or use that task's trainer"
            )


@dataclass(frozen=True)
class FileFlags:
    """Where a run begins, and what it writes."""

    output: Optional[str] = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    init_from: Optional[str] = None
    """Begin with published weights: a directory of config.json and model.safetensors."""
    export: Optional[str] = None
    """At the end, write the weights as a directory that transformers opens: the best where
    --best_by keeps them, else the last. trainers.use_model exports others, and later."""
    log_to: str = ""
    """Besides metrics.jsonl: tensorboard, wandb, or both as tensorboard,wandb."""

    def __post_init__(self) -> None:
        """Refuses places that cannot be written to, before anything is read."""
        on_disk(self, "output", "init_from", "export")
        parse_log_to(self.log_to)
        if self.export is not None:
            refuse_existing(self.export)


def parse_log_to(text: str) -> Tuple[str, ...]:
    """What `--log_to` means: "tensorboard,wandb" -> ("tensorboard", "wandb"); "" -> ().

    Raises:
      UsageError: a name is unknown or comes twice, or its package is not installed.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        package = _LOG_PACKAGES.get(name)
        if package is None:
            raise UsageError(
                f"--log_to={text}: there is no {name!r}; give {' or '.join(_LOG_PACKAGES)}, or "
                "both with a comma between (metrics.jsonl is written in any case)"
            )
        if names.count(name) > 1:
            raise UsageError(f"--log_to={text}: {name} comes twice")
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--log_to={text}: the package {package} is not installed: pip install {package}"
            )
    return names


@dataclass(frozen=True)
class RunFlags:
    """Trains on a shard set."""

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
        """What a resumed run has in common with its first part: else it would be another run."""
        always = ("batch_size", "seed", "train_split", "clip_norm", "optimizer", "init_from")
        return (*always, "best_by", *self.task.same_settings)

    def plan_steps(self, shards: BatchReader) -> int:
        """Optimizer steps of the whole schedule; a DataError if there are no rows to train on."""
        rows = shards.rows(self.data.train_split)
        if not rows:
            raise shards.no_rows(self.data.train_split)
        return self.length.steps or math.ceil(self.length.epochs * rows / self.compute.batch_size)

    @property
    def output(self) -> Path:
        """Where a run goes: `--output`, or a name made of the set's and the model's."""
        model = self.architecture.model
        if self.files.init_from is not None:
            model = os.path.basename(os.path.realpath(self.files.init_from))
        name = f"{shards_name(self.data.shards)}-{model}"
        return Path(self.files.output or Path("runs") / name)
