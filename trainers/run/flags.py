"""Flags that every trainer has and that mean the same in all: checked, and read from files too."""

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, List, Literal, Optional, Tuple, Type, TypeVar, Union

import tyro

from schemas.commands.flag_file import is_word, with_config
from schemas.errors import DataError, UsageError
from schemas.features import ROWS_OF
from schemas.sidecar import Schema
from schemas.stores.set_files import CACHE_GIGABYTES, Cache, default_directory
from trainers.data.flag_values import above_0, at_least, on_disk, shards_name, share
from trainers.data.mixture import Mixture, open_shards
from trainers.data.shard_set import ShardSet
from trainers.models.hf_files import refuse_existing
from trainers.run.metric_sinks import parse_log_to

ALL, BEST, LAST = "all", "best", "last"  # of --checkpoint


@dataclass(frozen=True)
class RunFlags:
    """Where data comes from and results go, and how weights are changed in between."""

    entry: ClassVar[str]
    """Name of the trainer: flax_mlm."""
    task: ClassVar[str]
    """Task of the rows that it takes: mlm."""
    same_settings: ClassVar[Tuple[str, ...]] = (
        *("batch_size", "seed", "train_split", "clip_norm", "optimizer", "init_from", "best_by"),
    )
    """What a resumed run has in common with its first part: else it would be another run."""

    shards: str = ""
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""
    output: Optional[str] = None
    """Where checkpoints, metrics and the loss curve go. None: runs/SHARDS-MODEL."""
    resume: bool = False
    """Go on from the newest checkpoint in the output directory."""
    verify: bool = True
    """Check the sha256 of every file of the set before it is read."""
    follow_links: bool = False
    """Open files of the set that are links out of its directory, too."""
    cache_dir: Optional[str] = None
    """Where files of sets on gs:// or s3:// are kept. None: textmill in ~/.cache."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """That all sets in it may take; the least recently used files go first."""
    init_from: Optional[str] = None
    """Begin with published weights: a directory of config.json and model.safetensors."""
    export: Optional[str] = None
    """Write the weights as a directory that transformers opens: at the end of a run, or without
    --shards those of the run in --output. --checkpoint says which."""
    log_to: str = ""
    """Besides metrics.jsonl: tensorboard, wandb, or both as tensorboard,wandb."""

    steps: Optional[int] = None
    """Optimizer steps. None: as many as the epochs take."""
    epochs: float = 1.0
    """Passes over the training split, where steps is not given; of a mixture, over all its rows."""
    stop_after: Optional[int] = None
    """Stop after this step with a checkpoint; the schedule stays that of all steps."""
    batch_size: int = 32
    """Rows a step, over all devices and microbatches."""
    accumulation: Optional[int] = None
    """Microbatches a step; gradients are added up in f32. None: as few as the devices ask for."""
    optimizer: Literal["adamw", "adafactor", "sgd_momentum", "lion"] = "adamw"
    """The framework's own. lion wants a learning rate some 5 times lower, sgd_momentum a higher."""
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
    seed: int = 0
    """Of new weights, row order, dropout and masks made while training."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation; weights are float32. auto: bfloat16 on accelerators, float32 on CPU."""

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
    best_by: Literal["none", "loss"] = "none"
    """What the best weights, kept besides the newest, are best in on the validation split."""
    patience: Optional[int] = None
    """Stop after so many evaluations in a row without a better one by --best_by. None: never."""

    checkpoint: Optional[str] = None
    """Which weights to use and export: best, last, or a step's number; all, to evaluate every one.
    Or a directory: a run's, OUTPUT/checkpoints/N, or an exported or published one. None: best where
    --best_by keeps one, else last, of the run in --output."""
    evaluate_only: bool = False
    """Do not train: measure --checkpoint on --validation_split of --shards, or of the set that the
    run was trained on. What people look at goes to OUTPUT/evaluation."""
    report: Optional[str] = None
    """With --evaluate_only: a file that gets the measures as one more line of JSON."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        counts = ("batch_size", "evaluate_every", "checkpoint_every", "keep_checkpoints")
        for name in (*counts, "steps", "stop_after", "accumulation", "patience"):
            at_least(self, name, 1)
        for name in ("epochs", "learning_rate", "epsilon"):
            above_0(self, name)
        for name in ("warmup_steps", "weight_decay", "clip_norm", "seed"):
            at_least(self, name, 0)
        if self.seed >= 1 << 31:
            raise UsageError(f"--seed={self.seed}: must be below 2**31")
        for name in ("beta1", "beta2"):
            share(self, name)
        if self.accumulation and self.batch_size % self.accumulation:
            raise UsageError(
                f"--batch_size={self.batch_size} is no multiple of "
                f"--accumulation={self.accumulation}: microbatches are of one size"
            )
        if self.patience is not None and self.best_by == "none":
            raise UsageError(f"--patience={self.patience} needs --best_by: better in what?")
        parse_log_to(self.log_to)
        for name in ("output", "init_from", "export", "cache_dir"):
            on_disk(self, name)
        Cache(self.cache_dir or default_directory(), self.cache_gigabytes)  # refuses a size
        if self.export is not None:
            refuse_existing(self.export)
        self._check_use()

    def _check_use(self) -> None:
        """Refuses flags that train nothing and use nothing."""
        if self.report is not None and not self.evaluate_only:
            raise UsageError(f"--report={self.report} needs --evaluate_only")
        if self.checkpoint == ALL and (self.uses_run or not self.evaluate_only):
            raise UsageError("--checkpoint=all is for --evaluate_only alone: give one checkpoint")
        if self.trains:
            if self.checkpoint_path is not None:
                raise UsageError(
                    f"--checkpoint={self.checkpoint}: with --shards a run is trained, and its own "
                    "weights are exported: give best, last or the number of a step"
                )
            return
        if not (self.evaluate_only or self.uses_run):
            raise UsageError("give the directory of a shard set with --shards")
        if self.output is None and self.checkpoint_path is None:
            raise UsageError("without training there must be a run to use: give --output")

    @property
    def uses_run(self) -> bool:
        """Whether something is asked of a run that can be done without a set."""
        return self.export is not None or self.exports_program

    @property
    def exports_program(self) -> bool:
        """Whether something is to be written that only the framework can, see `Program.export`."""
        return False

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return bool(self.shards) and not self.evaluate_only

    @property
    def checkpoint_path(self) -> Optional[str]:
        """What --checkpoint names, if it is a directory and not one of a run's checkpoints."""
        named = self.checkpoint in (None, ALL, BEST, LAST)
        return None if named or str(self.checkpoint).isdecimal() else self.checkpoint

    def command(self, **changes: object) -> str:
        """The command line that gives these settings, with some of them changed."""
        words = ["python", "-m", f"trainers.{self.entry}"]
        for field in dataclasses.fields(self):
            value = changes.get(field.name, getattr(self, field.name))
            if value == field.default or value is None and not is_word(field, value):
                continue
            if isinstance(value, bool) and not is_word(field, value):
                words.append(f"--{field.name}" if value else f"--no_{field.name}")
            else:
                words.append(f"--{field.name}={value}")
        return " ".join(shlex.quote(word) for word in words)

    def check_exported_step(self, steps: int) -> None:
        """Refuses a step to export of which a run of so many steps keeps no checkpoint.

        Raises:
          UsageError: names those that it keeps.
        """
        which, last = str(self.checkpoint), min(steps, self.stop_after or steps)
        if not which.isdecimal() or self.best_by != "none":  # the best step is not known yet
            return
        kept = [*range(0, last, self.checkpoint_every)[1:], last][-self.keep_checkpoints :]
        if int(which) not in kept:
            raise UsageError(
                f"--checkpoint={which}: of this run the checkpoints after steps "
                f"{', '.join(map(str, kept))} are left at its end, by --checkpoint_every and "
                "--keep_checkpoints"
            )

    def planned_steps(self, train_rows: int) -> int:
        """Optimizer steps of the whole schedule; a DataError if there are no rows to train on."""
        if not train_rows:
            raise DataError(
                f"{self.shards}: split {self.train_split!r} has no rows; build the set from more "
                "text or with other --splits"
            )
        return self.steps or math.ceil(self.epochs * train_rows / self.batch_size)

    def output_directory(self, model: str) -> Path:
        """Where a run goes: `--output`, or a name made of the set's and the model's."""
        if self.init_from is not None:
            model = os.path.basename(os.path.realpath(self.init_from))
        return Path(self.output or Path("runs") / f"{shards_name(self.shards)}-{model}")


def check_task(task: str, schema: Schema, place: str) -> None:
    """Refuses with a UsageError the set at `place` if its rows are not the trainer's."""
    if ROWS_OF.get(schema.task, schema.task) != task:
        raise UsageError(
            f"{place} holds rows for task {schema.task!r}; this trainer takes {task!r}. Build a "
            f"set with build_shards --task={task}, or use that task's trainer"
        )


Flags = TypeVar("Flags", bound=RunFlags)


def parse_flags(argv: List[str], kind: Type[Flags]) -> Flags:
    """The flags of a command line and of the file that its --config names.

    Raises:
      UsageError: they make no sense.
      SystemExit: after --help, and with 2 where there is no such flag.
    """
    argv = with_config(argv, kind.entry, lambda: (kind,))
    return tyro.cli(kind, args=argv, prog=f"trainers.{kind.entry}", use_underscores=True)


def open_set(flags: RunFlags, place: str) -> Union[ShardSet, Mixture]:
    """Opens a set, or a mixture, as the flags say."""
    names = ("seed", "verify", "cache_dir", "cache_gigabytes", "follow_links")
    return open_shards(place, **{name: getattr(flags, name) for name in names})
