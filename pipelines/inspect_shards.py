"""Shows a row of a shard set as text, its counts, rows that hold a text, what differs from another.

`python -m pipelines.inspect_shards DIR`; see --help.
"""

import sys
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import numpy as np
import tyro
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.host.console import Console
from pipelines.inspection.row_search import search_rows
from pipelines.inspection.row_text import (
    KEPT,
    LOSS,
    PADDING,
    PREFIX,
    RANDOM,
    REPLACED,
    SPECIAL,
    TEXT,
    Piece,
    TokenTexts,
    row_facts,
    row_pieces,
    sequences,
)
from pipelines.inspection.set_diff import set_differences, token_differences
from pipelines.inspection.set_tables import (
    difference_tables,
    number_of,
    set_tables,
    table,
    token_tables,
)
from pipelines.writers.token_counts import read_token_counts
from schemas.errors import UsageError, run_entry
from schemas.manifest import ManifestFile, check_unchanged
from schemas.records import open_rows
from schemas.set_cache import CACHE_GIGABYTES, Cache, default_directory
from schemas.sidecar import SetInfo, read_set

_SEGMENT_STYLES = ("cyan", "green")  # neighbours differ
_STYLES = {SPECIAL: "dim", REPLACED: "bold red", RANDOM: "bold magenta", KEPT: "bold yellow"}
_MARK_STYLES = {LOSS: "underline", PREFIX: "italic"}
_OTHER_MARK = "reverse"
_NOTHING_FOUND = _DIFFERENT = 1  # exit codes, as grep's and diff's


@dataclass(frozen=True)
class InspectOptions:
    """Shows a row of a shard set as text, and the set's counts.

    Exit code 1 if --search finds nothing or --diff finds a difference, as grep and diff have it.

    Attributes:
      directory: of the set, with a MANIFEST.json; or its URL: gs://bucket/set.
      split: whose row to show, the first that has rows by default; or to search, by default all.
      row: index in the split, from 0 on.
      stats: show the tables only, no row, and how often tokens occur.
      search: show the rows that hold this text, masks taken off; upper and lower case differ.
      limit: show at most so many rows that --search finds; 0 for all.
      diff: another set: show what differs, in contract, inputs, counts, tokens and rows.
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
    diff: Annotated[str | None, tyro.conf.arg(metavar="OTHER_DIR")] = None
    cache_dir: str | None = None
    cache_gigabytes: float = CACHE_GIGABYTES
    follow_links: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False

    def __post_init__(self) -> None:
        """Refuses what asks for two things, or for nothing."""
        if self.stats + (self.search is not None) + (self.diff is not None) > 1:
            raise UsageError("--stats, --search and --diff: give one of them")
        if self.search == "":
            raise UsageError("--search: give a text to look for; every row holds the empty one")
        if self.limit < 0:
            raise UsageError(f"--limit={self.limit}: 0 or more, where 0 shows all")


def main(argv: list[str]) -> None:
    """Shows what a command line asks for."""
    options = tyro.cli(
        InspectOptions, prog="python -m pipelines.inspect_shards", args=argv, use_underscores=True
    )
    cache = Cache(options.cache_dir or default_directory(), options.cache_gigabytes)
    links = options.follow_links
    info = read_set(options.directory, cache, follow_links=links)
    console = Console()
    if options.search is not None:
        sys.exit(_search(info, options, console))
    if options.diff is not None:
        sys.exit(_diff(info, read_set(options.diff, cache, follow_links=links), console))
    for renderable in (
        *set_tables(info),
        *(_tokens(info) if options.stats else _row(info, options)),
    ):
        console.print(renderable)


def _tokens(info: SetInfo) -> list[RenderableType]:
    counts = read_token_counts(info)
    return [] if counts is None else token_tables(counts, _texts(info))


def _texts(info: SetInfo) -> TokenTexts:
    with open(info.locate("tokenizer.json"), "rb") as tokenizer:
        return TokenTexts.from_json(tokenizer.read())


# Searching and comparing


def _search(info: SetInfo, options: InspectOptions, console: Console) -> int:
    """Prints rows as they are found; gives the exit code."""
    assert options.search is not None
    splits = sorted(info.schema.splits)
    if options.split is not None:
        splits = [_split(info, options.split)]
    texts, found, times = _texts(info), 0, 0
    for split in splits:
        for hit in search_rows(info, split, options.search, texts):
            if found == options.limit > 0:
                console.print(f"and more: these are the first {found:,}, --limit=0 shows all")
                return 0
            line = Text(f"{hit.split} {hit.row:,} ", "bold")
            line.append(f"[{hit.segment}] ", _SEGMENT_STYLES[hit.segment % 2])
            line.append(hit.before, "not bold").append(hit.found, "bold red")
            line.append(hit.after, "not bold")
            if hit.times > 1:
                line.append(f" ({hit.times} times)", "dim")
            console.print(line, soft_wrap=True)
            found, times = found + 1, times + hit.times
    rows = sum(info.stats.split(split).rows for split in splits)
    console.print(
        f"{found:,} of {number_of(rows, 'row', 'rows')}, {number_of(times, 'time', 'times')}"
    )
    return 0 if found else _NOTHING_FOUND


def _diff(here: SetInfo, there: SetInfo, console: Console) -> int:
    """Prints what differs; gives the exit code."""
    differences = set_differences(here, there)
    if here.schema.tokenizer_sha256 == there.schema.tokenizer_sha256:
        counts = read_token_counts(here), read_token_counts(there)
        if counts[0] is not None and counts[1] is not None and (counts[0] != counts[1]).any():
            differences += token_differences(counts[0], counts[1], _texts(here))
    if not differences:
        rows = number_of(here.stats.total().rows, "row", "rows")
        console.print(f"equal: contract, inputs, counts, and the bytes of {rows}")
        return 0
    for renderable in difference_tables(differences):
        console.print(renderable)
    return _DIFFERENT


# A row


def _row(info: SetInfo, options: InspectOptions) -> list[RenderableType]:
    split = _split(info, options.split)
    file, number = _find(info, split, options.row)
    codec = info.schema.codec()
    path = info.locate(file.path)
    with closing(open_rows(path, codec.stride)) as reader:
        check_unchanged(path, file)
        columns = codec.decode(reader.read_range(number, number + 1), first_row=number)
    texts = _texts(info)
    row = {name: column[0] for name, column in columns.items()}
    title = f"{split} row {options.row:,}, which is row {number:,} of {file.path}"
    shown: list[RenderableType] = ["", Text(title, "bold")]
    for name, value in row_facts(row, info.schema).items():
        shown.append(Text(f"{name}: {value}"))
    streams = list(sequences(info.schema))
    for name in streams:
        pieces = row_pieces(row, info.schema, texts, name)
        if len(streams) > 1:
            shown += ["", Text(name, "bold")]
        shown += [_summary(pieces), *_marks(pieces), "", _text(pieces), *_masked(pieces)]
    return shown


def _split(info: SetInfo, wanted: str | None) -> str:
    rows = {split: info.stats.split(split).rows for split in sorted(info.schema.splits)}
    if wanted is None:
        # "train" comes before "validation", and so does whatever has rows.
        return next((split for split, count in rows.items() if count), next(iter(rows)))
    if wanted not in rows:
        raise UsageError(
            f"--split={wanted}: {info.directory} has no such split, only {', '.join(rows)}"
        )
    return wanted


def _find(info: SetInfo, split: str, row: int) -> tuple[ManifestFile, int]:
    """The shard that holds a row of the split, and the row's index in it."""
    files = info.manifest.shards(split, sorted(info.schema.file_formats)[0])
    ends = np.cumsum([file.rows or 0 for file in files])
    if not 0 <= row < ends[-1]:
        there = f"rows 0 to {ends[-1] - 1:,}" if ends[-1] else "no rows"
        raise UsageError(f"--row={row}: split {split} of {info.directory} has {there}")
    shard = int(np.searchsorted(ends, row, side="right"))
    return files[shard], row - int(ends[shard] - (files[shard].rows or 0))


def _summary(pieces: list[Piece]) -> str:
    tokens = {kind: 0 for kind in (TEXT, SPECIAL, PADDING, REPLACED, RANDOM, KEPT)}
    for piece in pieces:
        tokens[piece.kind] += piece.tokens
    places = sum(tokens.values())
    segments = max((piece.segment for piece in pieces), default=0)
    masked = sum(tokens[kind] for kind in (REPLACED, RANDOM, KEPT))
    told = (
        f"{places} places: {places - tokens[PADDING]} tokens in "
        f"{number_of(segments, 'segment', 'segments')}, {tokens[PADDING]} padding"
    )
    return told + (
        f"; {masked} masked ({tokens[REPLACED]} by the mask token, {tokens[RANDOM]} by a random "
        f"one, {tokens[KEPT]} kept)"
        if masked
        else ""
    )


def _marks(pieces: list[Piece]) -> list[RenderableType]:
    """How many places each feature marks, in the style that they have below."""
    counts: dict[str, int] = {}
    for piece in pieces:
        for mark in piece.marks:
            counts[mark] = counts.get(mark, 0) + piece.tokens
    shown = []
    for mark, count in sorted(counts.items()):
        style = _MARK_STYLES.get(mark, _OTHER_MARK)
        shown.append(Text(f"{mark}: {count}, ").append(style, style))
    return shown


def _text(pieces: list[Piece]) -> Table:
    """Each segment behind its number; a masked token as {was→now}, or {was=} if it was kept."""
    own = Table.grid(padding=(0, 1))
    own.add_column(justify="right", no_wrap=True)
    own.add_column()
    for segment, group in groupby(pieces, key=lambda piece: piece.segment):
        text = Text()
        style = _SEGMENT_STYLES[segment % len(_SEGMENT_STYLES)]
        for piece in group:
            marks = "".join(f" {_MARK_STYLES.get(mark, _OTHER_MARK)}" for mark in piece.marks)
            if piece.kind == PADDING:
                text.append(f"{piece.tokens} x padding", "dim")
            elif piece.kind in (TEXT, SPECIAL):
                text.append(piece.text, _STYLES.get(piece.kind, style) + marks)
            else:
                was, now = piece.text.lstrip(" "), piece.now.lstrip(" ")
                text.append(" " * (len(piece.text) - len(was)))
                changed = "=" if piece.kind == KEPT else f"→{now}"
                text.append(f"{{{was}{changed}}}", _STYLES[piece.kind] + marks)
        own.add_row(Text(f"[{segment or '-'}]", f"bold {style}"), text)
    return own


def _masked(pieces: list[Piece]) -> list[RenderableType]:
    """The masked tokens in a table; nothing if there are none."""
    masked = [piece for piece in pieces if piece.kind in (REPLACED, RANDOM, KEPT)]
    if not masked:
        return []
    own = table(header=True)
    for name in ("place", "segment", "was", "became", "how"):
        own.add_column(name, justify="right" if name in ("place", "segment") else "left")
    for piece in masked:
        texts = (Text(f"'{text}'") for text in (piece.text, piece.now))
        how = Text(piece.kind, _STYLES[piece.kind])
        own.add_row(str(piece.place), str(piece.segment), *texts, how)
    return ["", "{was→now} is a masked token, {was=} one that was kept:", own]


if __name__ == "__main__":
    run_entry(main)
