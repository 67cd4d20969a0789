"""The command line of build_shards -> frozen configuration that refuses bad values."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Generic, Literal, TypeVar

import tyro

from textmill.pipelines.input_options import AssumedBytes, InputFlags, Reading, assumed_bytes
from textmill.pipelines.readers.forget import ForgetFlag
from textmill.pipelines.readers.sources import Block, Source, plan_blocks
from textmill.pipelines.shards.values import MOST_SHARDS, ShardCounts, Splits, parse_num_shards
from textmill.pipelines.tasks.task import Task, task_class
from textmill.pipelines.user_filter import FilterFlag, check_name
from textmill.schemas.commands.help import BEAM_NOTE, CONFIG_NOTE, Help
from textmill.schemas.commands.options import (
    Check,
    Given,
    fields_of,
    parse_known,
)
from textmill.schemas.commands.values import (
    OF_THIS_RUN,
    join_list,
    spelled,
    spelled_list,
    take_values,
    written,
)
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.features import MAX_TOKENS, TASKS
from textmill.schemas.format.records import DOCUMENT_FORMATS, FORMATS

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
        "Input: documents": "reading filter forget",
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

    splits: Annotated[Splits, spelled(Splits, "NAME:SHARE,...")] = Splits.parse(Splits.EXAMPLE)
    """Names of the splits and their shares. The hash of a document's text decides its split, so
    equal documents never end up in two."""
    num_shards: Annotated[
        int | ShardCounts | None,
        spelled((int, ShardCounts), "N|NAME:N,...", none="auto", parse=parse_num_shards),
    ] = None
    """Number of shards of the largest split, or of each. The default is one for each 32 MiB of
    input, rounded up to a power of two."""
    train_input: _SplitInput = ()
    """Files of the training split, in place of --input and --splits; repeatable. Documents that
    another split holds too are removed from it."""
    validation_input: _SplitInput = ()
    """Files of the validation split; repeatable."""
    test_input: _SplitInput = ()
    """Files of the test split; repeatable."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        take_values(self)
        counts = self.num_shards
        if isinstance(counts, ShardCounts) and set(counts) != set(self.shares):
            reason = f"names {', '.join(counts)}, but the splits are {', '.join(self.shares)}"
            raise FieldError("num_shards", counts, reason)
        if isinstance(counts, int) and not 1 <= counts <= MOST_SHARDS:
            raise FieldError("num_shards", counts, f"from 1 to {MOST_SHARDS}")

    @cached_property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Inputs by split, where each split has its own."""
        inputs = {"test": self.test_input, "train": self.train_input}
        inputs["validation"] = self.validation_input
        return {split: patterns for split, patterns in inputs.items() if patterns}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of the splits by name, sorted; 0 if splits have inputs of their own."""
        return dict.fromkeys(self.inputs, 0.0) if self.inputs else dict(sorted(self.splits.items()))

    def shards(self, bytes_of: dict[str, int]) -> dict[str, int]:
        """Number of shards of each split.

        Args:
          bytes_of: bytes of the inputs, by split ("" if hashes assign documents to splits). They
            decide where no number is given.
        """
        if isinstance(self.num_shards, ShardCounts):
            return dict(self.num_shards)
        shares = self.shares
        if self.inputs:
            shares = {split: max(1, bytes_of.get(split, 0)) for split in shares}
        most = self.num_shards or _auto_shards(max(bytes_of.values(), default=0))
        largest = max(shares.values())
        return {name: max(1, round(most * share / largest)) for name, share in shares.items()}


@dataclass(frozen=True)
class ExecutionFlags:
    """How the command runs; none of these flags changes a byte of the dataset."""

    shuffle_by: Literal["auto", "files", "runner"] = field(default="auto", metadata=OF_THIS_RUN)
    """How tokens get from the workers that read to those that write: scratch files on one machine,
    or the runner's shuffle on a cluster. auto chooses."""
    overwrite: bool = field(default=False, metadata=OF_THIS_RUN)
    """Replace the output of another run."""
    resume: bool = field(default=False, metadata=OF_THIS_RUN)
    """Keep finished shards if the run dies, and reuse those that an earlier run with --resume
    left."""
    dry_run: bool = field(default=False, metadata=OF_THIS_RUN)
    """Print the plan (documents, tokens, shards, disk, memory, time) and stop."""
    assume_bytes: AssumedBytes = field(default=None, metadata=OF_THIS_RUN)
    """Size of the whole input that --dry_run plans for, such as 500GB or 2TB. The given files are
    taken as a sample of it."""
    preflight: bool = field(default=False, metadata=OF_THIS_RUN)
    """Check what could fail on the runner (flags, buckets, the job and its pickles) and stop."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work."""
        take_values(self)
        assumed_bytes(self.assume_bytes, dry_run=self.dry_run)


def check_max_length(max_length: int) -> None:
    """Raises FieldError for a number of tokens that no row can have."""
    if not 1 <= max_length < MAX_TOKENS:
        raise FieldError("max_length", max_length, f"from 1 to {MAX_TOKENS - 1}")


@dataclass(frozen=True, kw_only=True)
class BuildOptions(Generic[T]):
    """The flags of build_shards: T is the class of the task's own."""

    tokenizer: Annotated[str, tyro.conf.arg(metavar="PATH|NAME")]
    """A directory of a tokenizer (tokenizer.json, vocab.json and merges.txt, or vocab.txt), or a
    name on the Hugging Face Hub, such as gpt2. A dataset is such a directory; NAME@REVISION pins a
    version."""
    output: str = field(metadata=OF_THIS_RUN)
    """Directory or URL of the dataset."""
    task: Annotated[str, tyro.conf.arg(metavar="|".join(TASKS))] = "mlm"
    """Training task that the rows are for. Each task has flags of its own: --task=clm --help."""
    max_length: int = 128
    """Tokens of a row, at most 65,535. The cost of attention grows with its square, but longer rows
    cut fewer documents. Default: 1024 for clm and chat, 128 for other tasks."""
    filter: FilterFlag = ""
    forget: ForgetFlag = ""
    seed: int = 0
    """Seed of every random choice. With a different seed, masks and the order of rows differ."""
    file_format: Annotated[
        tuple[str, ...], spelled_list(str, "FORMAT,..."), tyro.conf.arg(help=_FORMATS_HELP)
    ] = ("array_record",)
    encoding: Literal["bits", "bytes", "int64_list"] = "bits"
    """How tf.train.Example holds a feature. bits: each value in as few bits as it
    needs, which makes rows half as large. bytes: values as they are, which TensorFlow Datasets
    decodes, too. int64_list: the classic list of integers, which any reader of TFRecord decodes."""
    reading: Reading = InputFlags()
    splitting: tyro.conf.OmitArgPrefixes[SplitFlags] = SplitFlags()
    run: tyro.conf.OmitArgPrefixes[ExecutionFlags] = ExecutionFlags()
    settings: tyro.conf.OmitArgPrefixes[T]
    """The flags of the task."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        take_values(self)
        if not self.output:
            raise FieldError("output", self.output, "give the directory of the dataset")
        check_max_length(self.max_length)
        if not 0 <= self.seed < 1 << 64:
            raise FieldError("seed", self.seed, "from 0 to 2**64 - 1")
        if self.splitting.inputs:
            self._refuse_splitting()
        if self.settings.holds_documents and self.encoding != "bits":
            reason = f"it is for rows: omit it with the task {self.task}"
            raise FieldError("encoding", self.encoding, reason)
        check_name(self.filter)
        _ = self.sources, self.formats

    @property
    def dry_run(self) -> bool:
        """Whether the command only prints the plan."""
        return self.run.dry_run

    @property
    def preflight(self) -> bool:
        """Whether the command only checks the runner."""
        return self.run.preflight

    def _refuse_splitting(self) -> None:
        """Refuses an input that hashes split, beside inputs that are splits."""
        also = "train_input, validation_input and test_input are splits already"
        if self.reading.input:
            inputs = " ".join(self.reading.input)
            raise FieldError("input", inputs, f"it is split by hash, and {also}: give one of both")
        if self.splitting.splits != SplitFlags.splits:
            reason = f"these are shares of input, and {also}: give one of both"
            raise FieldError("splits", self.splitting.splits, reason)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The input of each split; {"": source} if hashes assign documents to splits."""
        patterns = self.splitting.inputs or {"": self.reading.input}
        roles = self.settings.roles()
        return {
            split: self.reading.source(
                roles, field=f"{split}_input" if split else "input", patterns=some
            )
            for split, some in patterns.items()
        }

    @property
    def source(self) -> Source:
        """How the inputs of all splits are read; its patterns are those of one split."""
        return next(iter(self.sources.values()))

    @cached_property
    def formats(self) -> tuple[str, ...]:
        """The file formats by their names, sorted: ("array_record", "tfrecord") for both."""
        known = DOCUMENT_FORMATS if self.settings.holds_documents else FORMATS
        names = self.file_format
        if names == ("both",) and known is FORMATS:
            return FORMATS
        if not names or not set(names) <= set(known) or len(set(names)) < len(names):
            reason = f"one or more of {', '.join(known)} for the task {self.task}, each once"
            raise FieldError("file_format", join_list(names), reason)
        return tuple(sorted(names))

    def blocks(self) -> list[Block]:
        """All blocks of all inputs.

        Raises:
          DataError: as `plan_blocks`.
        """
        blocks = [
            block.of_split(split)
            for split, source in self.sources.items()
            for block in plan_blocks(source)
        ]
        return [replace(block, index=index) for index, block in enumerate(blocks)]


def parse_of_task(
    argv: list[str],
    page: Help,
    options: type[BuildOptions],
    given: Mapping[str, Given],
    *,
    check_others: Check,
) -> tuple[BuildOptions[Task], list[str]]:
    """The options of a command line for its --task; arguments as of `parse_known`.

    Raises:
      UsageError: a value cannot work, or a flag belongs to a different task.
    """
    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names.add_argument("--task")
    typed = names.parse_known_args(argv)[0].task
    task = given.get("task", Given(BuildOptions.task if typed is None else typed))
    try:
        of_chosen = task_class(written(task.value))
    except FieldError as error:
        raise task.error(error, "task") from error

    def check(arguments: list[str], names: Iterable[str]) -> None:
        _refuse_other_tasks(arguments, of_chosen)
        check_others(arguments, names)

    if of_chosen.trainer == "flax_clm":
        given = {"max_length": Given(_DECODER_LENGTH), **given}
    return parse_known(argv, page, options, given, check_others=check, settings=of_chosen)


def _refuse_other_tasks(arguments: list[str], chosen: type[Task]) -> None:
    """Raises UsageError for flags that other tasks than the chosen one have."""
    names = {argument.partition("=")[0].removeprefix("--") for argument in arguments}
    for name in sorted(name.removeprefix("no_") for name in names):
        having = [task for task in TASKS if name in fields_of(task_class(task))]
        if having:
            [task] = [task for task in TASKS if task_class(task) is chosen]
            raise UsageError(
                f"{flag(name)} is a flag of {flag('task', '|'.join(having))}, not of {task}"
            )


def _auto_shards(total_bytes: int) -> int:
    """A power of two, which stays the same if inputs gain or lose a line end."""
    wanted = max(0, total_bytes - 1) // _SHARD_BYTES
    return 1 << min(wanted.bit_length(), _MOST_SHARDS_BITS)
