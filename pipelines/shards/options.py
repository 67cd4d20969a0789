"""The command line of build_shards -> frozen configuration that refuses bad values."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Generic, Literal, TypeVar

import tyro

from textmill.pipelines.input_options import AssumedBytes, InputFlags, Reading, assumed_bytes
from textmill.pipelines.readers.sources import Block, Source, plan_blocks
from textmill.pipelines.tasks.task import Task, task_class
from textmill.pipelines.user_filter import FilterFlag, check_name
from textmill.schemas.commands.help import (
    BEAM_NOTE,
    CONFIG_NOTE,
    Help,
    report_parse_errors,
    show_help,
)
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import UsageError
from textmill.schemas.features import MAX_TOKENS, TASKS, is_training
from textmill.schemas.records import DOCUMENT_FORMATS, FORMATS

N = TypeVar("N", int, float)
T = TypeVar("T", bound=Task)
_SHARD_BYTES = 32 << 20  # of input for each shard: a second of work
_FORMATS_HELP = (
    "File format of the shards: array_record (random access), tfrecord (tf.data) or both. For "
    f"--task=tokens one or more of {', '.join(DOCUMENT_FORMATS)}, separated by commas."
)
_SplitInput = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH")]
_DECODER_LENGTH = 1024  # of rows by default; other tasks' is that of BuildOptions
_MOST_SHARDS_BITS = 16  # 65,536: 10 TB in shards of 160 MB

HELP = Help(
    module="pipelines.build_shards",
    about="Tokenizes documents and packs them into rows: a dataset for trainers.",
    usage="--input=PATH --tokenizer=PATH|NAME --output=DIR",
    example="--task=clm --input=corpus --tokenizer=tokenizer --output=shards --max_length=1024",
    page="docs/build_shards.md",
    common="document task max_length splits num_shards overwrite resume dry_run "
    "text_field packing static_masking mask_rate bos eos messages_field chat_template train_on "
    "label_field classes class_names truncation question_field context_field answers_field "
    "noise_density mean_span_length",
    groups={
        "Input: documents": "reading filter",
        "Output: the dataset": "tokenizer output task max_length file_format encoding seed",
        "Task: flags of the chosen --task": "settings",
        "Splits: their shares and shards": "splitting",
        "Run: how the command runs": "run",
    },
    note=f"{CONFIG_NOTE} {BEAM_NOTE}",
)


@dataclass(frozen=True)
class SplitFlags:
    """Which documents each split gets, and its number of shards."""

    splits: Annotated[str, tyro.conf.arg(metavar="NAME:SHARE,...")] = "train:0.98,validation:0.02"
    """Names of the splits and their shares. The hash of a document's text decides its split, so
    equal documents never end up in two."""
    num_shards: Annotated[str, tyro.conf.arg(metavar="N|NAME:N,...")] = "auto"
    """Number of shards of the largest split, or of each. The default is one for each 32 MiB of
    input, rounded up to a power of two."""
    train_input: _SplitInput = ()
    """Files of the training split, in place of --input and --splits; repeatable. Documents that
    another split holds too are removed from it."""
    validation_input: _SplitInput = ()
    """Files of the validation split; repeatable."""
    test_input: _SplitInput = ()
    """Files of the test split; repeatable."""

    def given(self) -> dict[str, tuple[str, ...]]:
        """Inputs by split, where each split has its own."""
        given = {"test": self.test_input, "train": self.train_input}
        given["validation"] = self.validation_input
        return {split: patterns for split, patterns in given.items() if patterns}

    def shares(self) -> dict[str, float]:
        """--splits, parsed: {"train": 0.98, "validation": 0.02}; 0 if splits have own inputs."""
        flag = self.splits
        if given := self.given():
            return dict.fromkeys(given, 0.0)
        shares = _numbers(float, "--splits", flag, SplitFlags.splits)
        for name, share in shares.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise UsageError(f"--splits={flag}: the name {name!r} must look like train_2")
            if not share > 0:  # nan is not
                raise UsageError(f"--splits={flag}: the share of {name} must be above 0")
        if not abs(sum(shares.values()) - 1) < 1e-9:
            raise UsageError(
                f"--splits={flag}: the shares add up to {sum(shares.values()):g}, not to 1"
            )
        return dict(sorted(shares.items()))  # the order in the flag has no effect

    def shards(self, bytes_of: dict[str, int]) -> dict[str, int]:
        """Number of shards of each split.

        Args:
          bytes_of: bytes of the inputs, by split ("" if hashes assign documents to splits). They
            decide --num_shards=auto.
        """
        shares, flag = self.shares(), self.num_shards
        total_bytes = max(bytes_of.values(), default=0)
        example = ",".join(f"{split}:{16 if is_training(split) else 1}" for split in shares)
        if ":" in flag:
            counts = _numbers(int, "--num_shards", flag, example)
            if set(counts) != set(shares):
                raise UsageError(
                    f"--num_shards={flag} names {', '.join(counts)}, but the splits "
                    f"are {', '.join(shares)}"
                )
        else:
            if self.given():
                shares = {split: max(1, bytes_of.get(split, 0)) for split in shares}
            largest = max(shares.values())
            most = (
                _auto_shards(total_bytes)
                if flag == "auto"
                else _number(
                    int, "--num_shards", flag, flag, f"16 for the largest split, or {example}"
                )
            )
            counts = {
                name: max(1, round(most * share / largest)) if most > 0 else most
                for name, share in shares.items()
            }
        if not all(1 <= count <= 99_999 for count in counts.values()):
            raise UsageError(f"--num_shards={flag}: from 1 to 99999")
        return counts


@dataclass(frozen=True)
class RunFlags:
    """How the command runs; none of these flags changes a byte of the dataset."""

    shuffle_by: Literal["auto", "files", "runner"] = "auto"
    """How tokens get from the workers that read to those that write: scratch files on one machine,
    or the runner's shuffle on a cluster. auto chooses."""
    overwrite: bool = False
    """Replace the output of another run."""
    resume: bool = False
    """Keep finished shards if the run dies, and reuse those that an earlier run with --resume
    left."""
    dry_run: bool = False
    """Print the plan (documents, tokens, shards, disk, memory, time) and stop."""
    assume_bytes: AssumedBytes = None
    """Size of the whole input that --dry_run plans for, such as 500GB or 2TB. The given files are
    taken as a sample of it."""
    preflight: bool = False
    """Check what could fail on the runner (flags, buckets, packages, keys, memory) and stop."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions(Generic[T]):
    """The flags of build_shards: T is the class of the task's own."""

    tokenizer: Annotated[str, tyro.conf.arg(metavar="PATH|NAME")]
    """A directory of a tokenizer (tokenizer.json, vocab.json and merges.txt, or vocab.txt), or a
    name on the Hugging Face Hub, such as gpt2. A dataset is such a directory; NAME@REVISION pins a
    version."""
    output: str
    """Directory or URL of the dataset."""
    task: Annotated[str, tyro.conf.arg(metavar="|".join(TASKS))] = "mlm"
    """Training task that the rows are for. Each task has flags of its own: --task=clm --help."""
    max_length: int = 128
    """Tokens of a row, at most 65,535. The cost of attention grows with its square, but longer rows
    cut fewer documents. Default: 1024 for clm and chat, 128 for other tasks."""
    filter: FilterFlag = ""
    seed: int = 0
    """Seed of every random choice. Another one gives other masks and another order of rows."""
    file_format: Annotated[str, tyro.conf.arg(metavar="FORMAT,...", help=_FORMATS_HELP)] = (
        "array_record"
    )
    encoding: Literal["bytes", "int64_list"] = "bytes"
    """How tf.train.Example holds a feature: a blob of bytes, or the classic list of integers, which
    any reader of TFRecord decodes but which is larger."""
    reading: Reading = InputFlags()
    splitting: tyro.conf.OmitArgPrefixes[SplitFlags] = SplitFlags()
    run: tyro.conf.OmitArgPrefixes[RunFlags] = RunFlags()
    settings: tyro.conf.OmitArgPrefixes[T]
    """The flags of the task."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not self.output:
            raise UsageError("--output is empty: give the directory of the dataset")
        if not 1 <= self.max_length < MAX_TOKENS:
            raise UsageError(f"--max_length={self.max_length}: from 1 to {MAX_TOKENS - 1}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"--seed={self.seed}: from 0 to 2**64 - 1")
        if self.splitting.given() and self.reading.input:
            raise UsageError(
                "--input is divided into splits by hash, and --train_input, --validation_input and "
                "--test_input are splits already: give --input or these"
            )
        if self.splitting.given() and self.splitting.splits != SplitFlags.splits:
            raise UsageError(
                f"--splits={self.splitting.splits} divides --input, and --train_input, "
                "--validation_input and --test_input are splits already: give --splits or these"
            )
        if self.settings.holds_documents and self.encoding != "bytes":
            raise UsageError(
                f"--encoding={self.encoding} is for rows: omit it with --task={self.task}"
            )
        check_name(self.filter)
        assumed_bytes(self.run.assume_bytes, dry_run=self.run.dry_run)
        self.sources()
        self.splitting.shards({})
        self.formats()

    def sources(self) -> dict[str, Source]:
        """The input of each split; {"": source} if hashes assign documents to splits."""
        patterns = self.splitting.given() or {"": self.reading.input}
        roles = self.settings.roles()
        return {split: self.reading.source(roles, some) for split, some in patterns.items()}

    @property
    def source(self) -> Source:
        """How the inputs of all splits are read; its patterns are those of one split."""
        return next(iter(self.sources().values()))

    def blocks(self) -> list[Block]:
        """All blocks of all inputs.

        Raises:
          DataError: as `plan_blocks`.
        """
        blocks = [
            block.of_split(split)
            for split, source in self.sources().items()
            for block in plan_blocks(source)
        ]
        return [replace(block, index=index) for index, block in enumerate(blocks)]

    def formats(self) -> tuple[str, ...]:
        """--file_format, parsed: ("array_record", "tfrecord")."""
        known = DOCUMENT_FORMATS if self.settings.holds_documents else FORMATS
        names = self.file_format.split(",")
        if names == ["both"] and known is FORMATS:
            return FORMATS
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise UsageError(
                f"--file_format={self.file_format}: one or more of {', '.join(known)} for "
                f"--task={self.task}, each once, separated by commas"
            )
        return tuple(sorted(names))


def parse_options(argv: list[str]) -> tuple[BuildOptions[Task], list[str]]:
    """The options of a command line, and the arguments that are Beam's.

    Raises:
      UsageError: a value cannot work, or a flag belongs to another task.
    """
    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names.add_argument("--task", default="mlm")
    chosen = names.parse_known_args(argv)[0].task
    of_chosen = task_class(chosen)
    show_help(argv, HELP, BuildOptions, settings=of_chosen)
    report_parse_errors(argv, BuildOptions, settings=of_chosen)
    has_length = any(word.replace("-", "_").startswith("__max_length") for word in argv)
    if of_chosen.trainer == "flax_clm" and not has_length:
        argv = [f"--max_length={_DECODER_LENGTH}", *argv]
    options, others = tyro.cli(
        BuildOptions[of_chosen],
        prog=command_name(HELP.module),
        args=argv,
        return_unknown_args=True,
        use_underscores=True,
    )
    flags = {other.partition("=")[0].removeprefix("--").removeprefix("no_") for other in others}
    of_task = {task: {f.name for f in fields(task_class(task))} if flags else () for task in TASKS}
    for flag in sorted(flags):
        if having := [task for task in TASKS if flag in of_task[task]]:
            raise UsageError(f"--{flag} is a flag of --task={'|'.join(having)}, not of {chosen}")
    return options, others


def _auto_shards(total_bytes: int) -> int:
    """A power of two, which stays the same if inputs gain or lose a line end."""
    wanted = max(0, total_bytes - 1) // _SHARD_BYTES
    return 1 << min(wanted.bit_length(), _MOST_SHARDS_BITS)


def _numbers(kind: Callable[[str], N], flag: str, text: str, example: str) -> dict[str, N]:
    """`a:1,b:2` -> {"a": 1, "b": 2}."""
    numbers: dict[str, N] = {}
    for item in text.split(","):
        name, _, value = item.strip().partition(":")
        if not name or not value:
            raise UsageError(f"{flag}={text}: {item!r} is not NAME:NUMBER; give {example}")
        if name in numbers:
            raise UsageError(f"{flag}={text}: {name} is given twice")
        numbers[name] = _number(kind, flag, text, value, example)
    return numbers


def _number(kind: Callable[[str], N], flag: str, text: str, value: str, example: str) -> N:
    try:
        return kind(value)
    except ValueError as error:
        raise UsageError(f"{flag}={text}: {value!r} is not a number; give {example}") from error
