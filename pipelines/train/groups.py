"""Which group of the text a document is in, for the table of fertility. Pure."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipelines.readers.documents import Role
from pipelines.readers.sources import Block
from pipelines.readers.stored import Part

MOST_GROUPS = 1000
ALL = "all"


def group_role(field: str | None) -> tuple[Role, ...]:
    """What is read for --group_field: names, which a document may lack; nothing without the flag.

    An id is no part of a document's content: filters and hashes pass it by.
    """
    return (Role("group", "id", field, optional=True),) if field else ()


@dataclass(frozen=True)
class FileGroups:
    """How files make groups where no field says it.

    Attributes:
      by: "input", the --input that names the file; "folder", the folder below `root` that it lies
        in; or "all", one group.
      root: what all inputs or paths begin with, up to a slash; left out of names.
    """

    by: str = ALL
    root: str = ""

    def name(self, part: Part) -> str:
        """The group of a part of a file."""
        if self.by == "input":
            return part.input.removeprefix(self.root) or part.input
        return _folder(part, self.root) if self.by == "folder" else ALL

    def split(self, block: Block) -> list[tuple[str, Block]]:
        """The neighbouring parts of a block that are of one group, each as a block of its own."""
        return [
            (name, Block(block.index, tuple(parts), block.split))
            for name, parts in groupby(block.parts, self.name)
        ]


def file_groups(blocks: Sequence[Block]) -> FileGroups:
    """Each --input is a group; if only one is given, each folder below the one all files share.

    More than MOST_GROUPS are no groups that anybody would look at: all files are then one.
    """
    parts = [part for block in blocks for part in block.parts]
    inputs = {part.input for part in parts}
    if 1 < len(inputs) <= MOST_GROUPS:
        return FileGroups("input", _shared_folder(inputs))
    root = _shared_folder({part.path for part in parts})
    if 1 < len({_folder(part, root) for part in parts}) <= MOST_GROUPS:
        return FileGroups("folder", root)
    return FileGroups()


def _folder(part: Part, root: str) -> str:
    """`corpus/no/a.txt` below `corpus/` is in `no`; `corpus/a.txt` in the folder itself, `.`."""
    first, slash, _ = part.path.removeprefix(root).partition("/")
    return first if slash else "."


def _shared_folder(paths: Iterable[str]) -> str:
    prefix = os.path.commonprefix(list(paths))
    return prefix[: prefix.rfind("/") + 1]
