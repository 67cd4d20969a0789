"""The command lines of inspect_shards, verify and export -> frozen configurations that refuse."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from schemas.errors import UsageError
from schemas.stores.set_files import CACHE_GIGABYTES
from schemas.stores.store import is_url

# Name of an export's format, which is a module of `pipelines.inspection.export_formats` -> help.
EXPORT_FORMATS = {
    "parquet": "for anything that reads tables",
    "jsonl": "numbers in lists, a row a line",
    "arrow": "Arrow's stream, which datasets.Dataset.from_file maps",
    "mds": "Mosaic's, a folder a split, which StreamingDataset reads",
}
# Name of a layout, which is in `schemas.layouts.LAYOUTS` -> help.
EXPORT_LAYOUTS = {
    "huggingface": "input_ids, labels and what else a model of transformers takes",
    "maxtext": "inputs and targets, their _position and _segmentation",
}


@dataclass(frozen=True)
class InspectOptions:
    """Shows a row of a shard set as text, and the set's counts.

    Exit code 1 if --search finds nothing, as grep has it.

    Attributes:
      directory: of the set, with a MANIFEST.json; or its URL: gs://bucket/set.
      split: whose row to show, the first that has rows by default; or to search, by default all.
      row: index in the split, from 0 on.
      stats: show the tables only, no row, and how often tokens occur.
      search: show the rows that hold this text, masks taken off; upper and lower case differ.
      limit: show at most so many rows that --search finds; 0 for all.
      cache_dir: where what is fetched from a store is kept; by default textmill in ~/.cache.
      cache_gigabytes: that all sets in it may take.
      follow_links: open files that are links out of the set's directory, too.
    """

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    split: str | None = None
    row: int = 0
    stats: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    search: str | None = None
    limit: int = 20
    cache_dir: str | None = None
    cache_gigabytes: float = CACHE_GIGABYTES
    follow_links: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False

    def __post_init__(self) -> None:
        """Refuses what asks for two things, or for nothing."""
        if self.stats and self.search is not None:
            raise UsageError("--stats, --search: give one of them")
        if self.search == "":
            raise UsageError("--search: give a text to look for; every row holds the empty one")
        if self.limit < 0:
            raise UsageError(f"--limit={self.limit}: 0 or more, where 0 shows all")


@dataclass(frozen=True)
class VerifyOptions:
    """Re-reads finished shard sets and checks all that they say of themselves.

    Attributes:
      directories: of the sets, each with a MANIFEST.json; or URLs: gs://bucket/set.
      follow_links: open files that are links out of the set's directory, too.
    """

    directories: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")
    ]
    follow_links: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False

    def __post_init__(self) -> None:
        """Refuses a command line without a directory."""
        if not self.directories:
            raise UsageError("give the directory of a shard set: python -m pipelines.verify DIR")


@dataclass(frozen=True)
class ExportOptions:
    """Writes the rows of a shard set in the files of another format.

    Attributes:
      directory: of the set, with a MANIFEST.json; or its URL: gs://bucket/set.
      to: the format, one of EXPORT_FORMATS.
      output: directory of the export.
      layout: the columns, one of EXPORT_LAYOUTS; by default the features as they are stored.
      split: export this one only.
      unmask: input_ids as they were before static masking, and no masked_* columns.
      text: beside the ids a column `text`, a list of strings: each segment decoded, as it was
        before masking, without special tokens.
      overwrite: replace another export in the output directory.
      follow_links: open files that are links out of the set's directory, too.
    """

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    to: Annotated[
        str,
        tyro.conf.arg(
            metavar=f"{{{','.join(EXPORT_FORMATS)}}}",
            help="; ".join(f"{name}: {told}" for name, told in EXPORT_FORMATS.items()),
        ),
    ]
    output: str
    layout: Annotated[
        str | None,
        tyro.conf.arg(
            metavar=f"{{{','.join(EXPORT_LAYOUTS)}}}",
            help="; ".join(f"{name}: {told}" for name, told in EXPORT_LAYOUTS.items())
            + ". By default the features as they are stored",
        ),
    ] = None
    split: str | None = None
    unmask: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    text: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    follow_links: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False

    def __post_init__(self) -> None:
        """Refuses a format or layout that there is not, and an output that is not local."""
        if self.to not in EXPORT_FORMATS:
            raise UsageError(f"--to={self.to}: one of {', '.join(EXPORT_FORMATS)}")
        if self.layout not in (None, *EXPORT_LAYOUTS):
            raise UsageError(f"--layout={self.layout}: one of {', '.join(EXPORT_LAYOUTS)}")
        if is_url(self.output):
            raise UsageError(
                f"--output={self.output}: exports are written to a disk; give a local directory, "
                "and copy it"
            )
