"""The command lines of inspect_shards, verify and export -> frozen configurations that refuse."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from textmill.schemas.commands.help import Help
from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.cache import CACHE_GIGABYTES
from textmill.schemas.files.store import is_url

Format = Literal["parquet", "jsonl", "arrow", "mds"]
Layout = Literal["huggingface", "llm_foundry", "maxtext"]
_Directory = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
_Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]

INSPECT_HELP = Help(
    module="pipelines.inspect_shards",
    about="Shows a row of a dataset as text, the dataset's counts, or the rows that hold a text. "
    "The exit code is 1 if --search finds nothing.",
    usage="DATASET",
    example="shards --split=train --row=3",
    page="docs/build_shards.md",
)
VERIFY_HELP = Help(
    module="pipelines.verify",
    about="Reads datasets, corpora and tokenizers in full, and checks them against their metadata: "
    "sha256 of every file, counts, rows, and ids. The exit code is 1 if anything differs.",
    usage="DATASET",
    example="shards corpus",
    page="docs/reliability.md",
)
EXPORT_HELP = Help(
    module="pipelines.export",
    about="Converts a dataset to files for tools that do not read tf.train.Example: one file for "
    "each shard, with the rows in the same order.",
    usage="DATASET --to=parquet|jsonl|arrow|mds --output=DIR",
    example="shards --to=parquet --layout=huggingface --output=exported",
    page="docs/readers.md",
)


@dataclass(frozen=True)
class InspectOptions:
    """The flags of inspect_shards."""

    directory: _Directory
    """Directory or URL of a dataset."""
    split: str | None = None
    """Split to show or to search. Default: the first with rows; --search searches all."""
    row: int | None = None
    """Index of the row in its split, from 0. Default: 0."""
    stats: _Switch = False
    """Show the tables of counts only, and how often tokens occur."""
    search: str | None = None
    """Show the rows that hold this text, before masking; upper and lower case differ."""
    limit: int = 20
    """Largest number of rows that --search shows; 0 for all."""
    cache_dir: str | None = None
    """Directory that caches files of gs:// and s3://. Default: ~/.cache/textmill."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """Size of that cache in GB (1e9 bytes), for all datasets in it; the least recently used files
    are deleted first."""
    follow_links: _Switch = False
    """Open files that are links out of the dataset's directory. Use it only if you trust the
    dataset."""

    def __post_init__(self) -> None:
        """Refuses flags that exclude each other, and an empty search."""
        given = {"row": self.row, "stats": self.stats or None, "search": self.search}
        one, *more = [name for name, value in given.items() if value is not None] or [""]
        if more:
            raise UsageError(f"{flag(one)}, {flag(more[0])}: give one of them")
        if self.stats and self.split is not None:
            raise UsageError(
                f"{flag('split', self.split)}: {flag('stats', True)} counts all "
                f"splits; omit {flag('split')}"
            )
        if self.search == "":
            raise UsageError(
                f"{flag('search')}: give a text to look for; every row holds the empty one"
            )
        if self.limit < 0:
            raise UsageError(f"{flag('limit', self.limit)}: 0 or more, where 0 shows all")


@dataclass(frozen=True)
class VerifyOptions:
    """The flags of verify."""

    directories: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Directories or URLs of datasets, corpora and tokenizers, one or more."""
    follow_links: _Switch = False
    """Open files that are links out of a dataset's directory. Use it only if you trust the
    dataset."""
    absent: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Also check that no shard, corpus, or cached file of this host holds the documents whose
    digests this file lists, one of 32 hexadecimal digits in each line; # begins a comment."""
    cache_dir: str | None = None
    """Directory of cached files that --absent searches. Default: ~/.cache/textmill."""

    def __post_init__(self) -> None:
        """Refuses a command line without a directory, and a cache that is not searched."""
        if not self.directories:
            command = command_in_message("pipelines.verify")
            raise UsageError(f"give the directory of a dataset: {command} DATASET")
        if self.cache_dir is not None and self.absent is None:
            raise UsageError(f"{flag('cache_dir', self.cache_dir)} needs {flag('absent', 'FILE')}")
        if self.cache_dir is not None and not os.path.isdir(self.cache_dir):
            raise UsageError(f"{flag('cache_dir', self.cache_dir)} is not a directory of this host")


@dataclass(frozen=True)
class ExportOptions:
    """The flags of export."""

    directory: _Directory
    """Directory or URL of a dataset."""
    to: Format
    """Format of the files: parquet (for tools that read tables); jsonl (a line of lists for each
    row); arrow (Arrow's stream, which datasets.Dataset.from_file maps); mds (MosaicML's, a folder
    for each split, which StreamingDataset reads)."""
    output: str
    """Directory of the export, on a local disk."""
    layout: Layout | None = None
    """Columns of the export: huggingface (input_ids, labels and what else a model of transformers
    takes); llm_foundry (tokens, of rows that were packed by concat); maxtext (inputs and targets,
    with their _position and _segmentation). Default: the features as the dataset stores them."""
    split: str | None = None
    """Split to export. Default: all of them."""
    unmask: _Switch = False
    """Undo static masking: input_ids hold the original tokens, and no masked_* columns are
    written."""
    text: _Switch = False
    """Add a column `text`: for each row a list of its segments, decoded before masking and without
    special tokens."""
    overwrite: _Switch = False
    """Replace another export."""
    follow_links: _Switch = False
    """Open files that are links out of the dataset's directory. Use it only if you trust the
    dataset."""

    def __post_init__(self) -> None:
        """Refuses an output that is not local."""
        if not self.output:
            raise UsageError(f"{flag('output')} is empty: give the directory of the export")
        if is_url(self.output):
            raise UsageError(
                f"{flag('output', self.output)}: exports are written to a disk; give a local "
                "directory, and copy it"
            )
