"""The command line of publish -> a frozen configuration that refuses bad values."""

import re
from dataclasses import dataclass
from typing import Annotated

import tyro

from textmill.schemas.commands.help import Help
from textmill.schemas.errors import UsageError, flag

# Rules of the Hub.
_NAME = re.compile(r"(?!.*(--|\.\.|\.git$))\w([\w.-]*\w)?/\w([\w.-]{0,94}\w)?", re.ASCII)
_ADDRESS = re.compile(r"(https?://[^/]+/|hf://)?datasets/")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]

PUBLISH_HELP = Help(
    module="pipelines.publish",
    about="Uploads a corpus or a dataset to the Hugging Face Hub, with its card and metadata. It "
    "verifies the directory first, uploads only files that the repository lacks, and compares the "
    "size and hash of every file afterwards. Run it again after an interruption.",
    usage="DIRECTORY --repo=USER/NAME",
    example="shards --repo=me/shards --private",
    page="docs/publishing.md",
)


@dataclass(frozen=True)
class PublishOptions:
    """The flags of publish."""

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIRECTORY")]
    """Directory or URL of a corpus or a dataset."""
    repo: Annotated[str, tyro.conf.arg(metavar="USER/NAME")]
    """Dataset repository, USER/NAME or ORGANIZATION/NAME. It is created if it does not exist."""
    revision: str | None = None
    """Branch to upload to. If it does not exist, it is created from the first commit of the
    repository. Default: main."""
    papers: str | None = None
    """Directory with README.md (the card), croissant.json and other files to upload, as describe
    writes it. Default: drafts of README.md and croissant.json, unless DIRECTORY has your own."""
    private: _Switch = False
    """Create a private repository, and refuse one that is public."""
    overwrite: _Switch = False
    """Replace the other content of a repository: delete all files that do not belong to DIRECTORY,
    except LICENSE and Git's own. Its history keeps them."""
    dry_run: _Switch = False
    """List what would be uploaded and deleted, and change nothing."""
    follow_links: _Switch = False
    """Upload files that are links to outside the directory. Use it only if you trust the
    directory."""

    def __post_init__(self) -> None:
        """Refuses names that the Hub cannot have."""
        if not _NAME.fullmatch(self.repo):
            raise UsageError(
                f"{flag('repo', self.repo)}: give USER/NAME of a dataset repository{self._remedy}"
            )
        if self.revision is not None and (not self.revision or _COMMIT.fullmatch(self.revision)):
            raise UsageError(f"{flag('revision', self.revision)}: give the name of a branch")

    @property
    def _remedy(self) -> str:
        """USER/NAME of an address; else the rules for names."""
        name = _ADDRESS.sub("", self.repo, count=1)
        if name != self.repo and _NAME.fullmatch(name):
            return f": {flag('repo', name)}"
        return (
            "; a name has at most 96 ASCII letters, digits, -, _ and ., no -- or .., no - or . at "
            "either end, and does not end with .git"
        )
