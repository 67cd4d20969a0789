"""Writes docs/commands.md, the reference of all commands and flags, from what --help shows.

    python -m tests.tools.command_reference

A test fails if the page differs from the flags.
"""

import re
from importlib import import_module
from typing import NamedTuple
from unittest import mock

from tests.tools.places import ROOT
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.completion import INSTALL
from textmill.schemas.commands.help import Flag, Help, _groups_of, flags_of
from textmill.schemas.commands.textmill import GROUPS
from textmill.schemas.format.features import TASKS

PAGE = ROOT / "docs/commands.md"
_SHARED = "trainers.flax_clm"  # whose table other trainers refer to
_HEAD = ("| flag | meaning | default |", "|---|---|---|")
_INTRODUCTION = """# All commands and flags

This page is made from the commands' own help: `--help` prints the common flags, `--help=all`
every flag, `--help=GROUP` those of a group. `textmill build-corpus` is short for `python -m
pipelines.build_corpus`, and so for each command. Flags may stand in a
[file](inputs.md#flags-from-a-file) (`--config`), and most are [keywords in Python](python.md).
`build_corpus`, `train_tokenizer` and `build_shards` also take flags of Apache Beam, such as
`--runner`.
"""


_PROGRESS = """## Progress

`build_corpus`, `train_tokenizer` and `build_shards` show the phase of a run, its share, bytes of
the inputs per second, and the time left in the phase: a bar on a terminal, elsewhere a line every
5 s at most.

```
build_corpus: reading: 1.2 GB of 3.0 GB, 61.2 MB/s, 29 s left
build_corpus: near-duplicates, step 4 of 9 (comparing): 24 of 64, 88.0 MB/s, 21 s left
build_corpus: writing documents: 60 of 64, 120.4 MB/s, 512,004 documents written, 2 s left
build_corpus: writing the report, and publishing, 512,004 documents written, 96 s
train_tokenizer: merging: 12,000 of 32,000 tokens, 8 s left
```

After reading, a part of a phase counts as its share of the inputs. Without an estimate the line has
the seconds since the start. Workers on other machines without a shared disk report nothing: the
command then counts finished shards, and the runner's own pages show its steps.
"""
_COMPLETION = """## Completion in shells

`textmill completion bash|zsh|fish` prints a script that completes commands, flags, their choices
and files. New shells load it from these places (zsh, if `fpath` has `~/.zfunc` before `compinit`).
The script lists the flags of this version, so that TAB starts no Python: write it again after an
upgrade.
"""


class Row(NamedTuple):
    """A flag in a table."""

    flag: str
    meaning: str
    default: str

    def __str__(self) -> str:
        return f"| {self.flag} | {self.meaning} | {self.default} |"


class Shown(NamedTuple):
    """What a command shows: its help without flags, and rows by the title of their group."""

    page: Help
    groups: dict[str, list[Row]]


def row_of(flag: Flag) -> Row:
    """`--rate=X` | Share of tokens. | 0.5 |"""
    sentences = list(flag.sentences)
    default = sentences.pop().removeprefix("Default: ").rstrip(".") if _has_default(flag) else ""
    typed = f"`{flag.typed}`".replace("|", "\\|")
    return Row(typed, _as_text(" ".join(sentences)), _as_text(default))


def _as_text(words: str) -> str:
    """Words of a cell: <email> would be HTML, and [:SPLIT] a link."""
    return re.sub(r"([|*\[])", r"\\\1", words).replace("<", "&lt;")


def _has_default(flag: Flag) -> bool:
    return bool(flag.sentences) and flag.sentences[-1].startswith("Default: ")


def shown_by(entry: str) -> Shown:
    """The help of a command, as `--help=all` collects it."""
    seen: list[tuple] = []
    lines = "textmill.schemas.commands.help.help_lines"
    with mock.patch(lines, lambda *of: seen.append(of) or [""]), mock.patch("builtins.print"):
        try:
            import_module(entry).main(["--help=all"])
        except SystemExit:
            pass
    _, page, flags = seen[0]
    groups = _groups_of(page, flags)
    return Shown(page, {title: [*map(row_of, some)] for title, some in groups.items() if some})


def tables(groups: dict[str, list[Row]], skipped: set[Row]) -> list[str]:
    """Lines of the tables of groups, without some rows."""
    lines = []
    for title, rows in groups.items():
        if some := [row for row in rows if row not in skipped]:
            lines += [f"**{title}**", "", *_HEAD, *map(str, some), ""]
    return lines


def section(entry: str, shared: Shown) -> list[str]:
    """The lines of a command."""
    shown = shown_by(entry)
    name = entry.partition(".")[2]
    lines = [f"## {name}", "", shown.page.about, ""]
    lines += ["```", f"python -m {entry} {shown.page.usage}".rstrip(), "```", ""]
    skipped: set[Row] = set()
    if entry.startswith("trainers.") and entry != _SHARED and len(shown.groups) > 5:
        ours = {row for rows in shown.groups.values() for row in rows}
        theirs = {row for rows in shared.groups.values() for row in rows}
        skipped = ours & theirs
        names = {row.flag for row in ours}
        without = sorted(row.flag for row in theirs if row.flag.split("=")[0] not in _names(names))
        lines += [f"The flags of [flax_clm](#flax_clm), except {', '.join(without)}; and:", ""]
    lines += tables(shown.groups, skipped)
    if entry == "pipelines.build_shards":
        for task in TASKS:
            rows = [row_of(flag) for flag in flags_of(task_class(task))]
            rows = [row for row in rows if row not in {r for g in shown.groups.values() for r in g}]
            if rows:
                lines += [f"**With `--task={task}`**", "", *_HEAD, *map(str, rows), ""]
    return lines


def _names(flags: set[str]) -> set[str]:
    return {flag.split("=")[0] for flag in flags}


def reference() -> str:
    """The page."""
    lines = _INTRODUCTION.splitlines()
    for title, group in GROUPS.items():
        lines += ["", f"| {title} | what it does |", "|---|---|"]
        for entry, about in group.items():
            name = entry.partition(".")[2]
            lines.append(f"| [{name}](#{name}) | {about} |")
    lines += ["", *_PROGRESS.splitlines(), "", *_COMPLETION.splitlines()]
    lines += ["", "```", *INSTALL.values(), "```", ""]
    entries = [module for group in GROUPS.values() for module in group]
    shared = shown_by(_SHARED)
    for entry in entries:
        lines += section(entry, shared)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
