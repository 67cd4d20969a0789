"""The command line of describe -> frozen configuration that refuses bad values."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from textmill.schemas.commands.help import Help
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.store import is_url

HELP = Help(
    module="pipelines.describe",
    about="Describes a corpus or a dataset from its counts: Croissant metadata (croissant.json), a "
    "dataset card for the Hugging Face Hub (README.md), and a draft of the summary of training "
    "content that the EU's AI Act requires (training_content.md).",
    usage="DIRECTORY --to=DIR",
    example="corpus --to=papers",
    page="docs/describe.md",
)
_Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class DescribeOptions:
    """The flags of describe."""

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIRECTORY")]
    """Directory or URL of a corpus or a dataset."""
    to: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Directory of the three files, on a local disk."""
    corpus: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="DIR")] = ()
    """Corpus that the dataset was built from, which has the counts of sources, languages and
    filters; repeatable."""
    overwrite: _Switch = False
    """Replace the three files in a directory that has files."""
    follow_links: _Switch = False
    """Open files that are links out of the directory. Use it only if you trust what it holds."""

    def __post_init__(self) -> None:
        """Rejects an output that is not local."""
        if not self.to:
            raise UsageError(f"{flag('to')} is empty: give the directory of the description")
        if is_url(self.to):
            raise UsageError(
                f"{flag('to', self.to)}: a description is written to a disk; give a local "
                "directory, and copy it"
            )
