"""Blocks of code of README, docs/ and examples/. Each has a mark, a comment in the line above it:

    <!-- run -->                            in a directory with what pages name: texts, corpus, ...
    <!-- run: slow steps=2 model=tiny -->   in the slow tests, with other values for these names
    <!-- run: then -->                      in the directory that the block before has left
    <!-- run: demo -->                      commands of the demo; `...` stands for the rest of one
    <!-- shown -->                          what the block above prints
    <!-- file: my_filters.py -->            a file in the directory in which the next block runs
    <!-- message -->                        errors and warnings, whose texts are in the sources
    <!-- tested by: tests/test_x.py -->     another test reads the page
    <!-- not run: needs a bucket -->        the reason

Generated pages, of which other tests check each line, need none.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.tools.places import ROOT

GENERATED = {"commands.md", "troubleshooting.md"}
PAGES = [
    page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*.md")),
    )
    if page.name not in GENERATED
]
KINDS = {"run", "shown", "file", "message", "tested by", "not run"}
_BLOCK = re.compile(
    r"^( *)(?:<!-- ([^>\n]*) -->\n+ *)?```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A block of code.

    Attributes:
      place: docs/stores.md:57.
      kind: of KINDS, or another word of a comment, or "" without one.
      about: the rest of the mark: words, the name of a file, a reason.
      language: python, or "" for commands.
      code: as it runs.
      shown: lines of a block behind <!-- shown -->.
      files: names and contents of blocks behind <!-- file: NAME -->.
    """

    place: str
    kind: str
    about: str
    language: str
    code: str
    shown: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> list[str]:
        """Of the mark `run`."""
        return shlex.split(self.about)


def read_blocks(page: Path) -> list[Block]:
    """All blocks of a page; `shown` is joined to what prints it, `file` to the next that runs."""
    text, found = page.read_text(encoding="utf-8"), []
    files: tuple[tuple[str, str], ...] = ()
    for match in _BLOCK.finditer(text):
        indent, mark, language, code = match.groups()
        kind, _, about = (mark or "").partition(": ")
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        line = text[: match.start()].count("\n") + 1 + bool(mark)
        place = f"{page.relative_to(ROOT).as_posix()}:{line}"
        block = Block(place, kind, about, language, code)
        if kind == "run":
            block, files = _substitute(block)._replace(files=files), ()
        elif kind == "file":
            files += ((about, code),)
        elif kind == "shown":
            found[-1] = found[-1]._replace(shown=tuple(code.splitlines()))
            continue
        found.append(block)
    return found


def _substitute(block: Block) -> Block:
    """The block with the values that its mark has for some names."""
    code = block.code
    for name, equals, value in (word.partition("=") for word in block.words):
        if equals:
            code, changed = re.subn(rf"\b{name}=('[^']*'|[^\s,)]+)", f"{name}={value}", code)
            assert changed, f"{block.place} has no {name}="
    return block._replace(code=code)


def groups_of(page: Path) -> list[list[Block]]:
    """The blocks of a page that run; each list in one directory."""
    groups: list[list[Block]] = []
    for block in read_blocks(page):
        if block.kind == "run":
            if "then" not in block.words:
                groups.append([])
            groups[-1].append(block)
    return groups
