"""Prints tables of a dataset, a row, its tokens, or rows that contain a text."""

from itertools import groupby

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from textmill.pipelines.encoding.tokenizer import tokenizer_of_json
from textmill.pipelines.inspection.options import InspectOptions
from textmill.pipelines.inspection.read_rows import (
    find_split,
    read_row_documents,
    read_rows,
    sequences,
)
from textmill.pipelines.inspection.row_text import (
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
)
from textmill.pipelines.inspection.search_rows import search_rows
from textmill.pipelines.inspection.set_tables import set_tables, token_tables
from textmill.pipelines.runners.console import Console, columns_table
from textmill.pipelines.writers.token_counts import read_token_counts
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.cache import Cache, default_directory
from textmill.schemas.files.finished import DatasetInfo, read_dataset
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.row_documents import RowDocuments

_NOTHING_FOUND = 1  # exit code, as grep's
_SEGMENT_STYLES = ("cyan", "green")  # neighbours differ
_STYLES = {SPECIAL: "dim", REPLACED: "bold red", RANDOM: "bold magenta", KEPT: "bold yellow"}
_MARK_STYLES = {LOSS: "underline", PREFIX: "italic"}
_OTHER_MARK = "reverse"


def show_sets(options: InspectOptions) -> int:
    """Prints what the options request; returns the exit code."""
    cache = Cache(options.cache_dir or default_directory(), options.cache_gigabytes)
    info = read_dataset(options.directory, cache, follow_links=options.follow_links)
    console = Console()
    if options.search is not None:
        return _print_search(info, options.search, options, console)
    if options.stats:
        shown = token_tables(read_token_counts(info), token_texts(info))
    else:
        shown = show_row(info, options.split, options.row or 0)
    for renderable in (*set_tables(info), *shown):
        console.print(renderable)
    return 0


def _print_search(info: DatasetInfo, search: str, options: InspectOptions, console: Console) -> int:
    """Prints rows that contain a text as they are found; returns the exit code of grep."""
    splits = sorted(info.schema.splits)
    if options.split is not None:
        splits = [find_split(info, options.split)]
    texts, found, times = token_texts(info), 0, 0
    for split in splits:
        for hit in search_rows(info, split, search, texts):
            if found == options.limit > 0:
                console.print(f"more rows match; {flag('limit', 0)} shows all")
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
    console.print(f"{found:,} of {number_of(rows, 'row')}, {number_of(times, 'time')}")
    return 0 if found else _NOTHING_FOUND


def token_texts(info: DatasetInfo) -> TokenTexts:
    """Loads the texts of a dataset's tokens."""
    with open(info.locate("tokenizer.json"), "rb") as tokenizer:
        return TokenTexts(tokenizer_of_json(tokenizer.read()))


def show_row(info: DatasetInfo, split: str | None, row: int) -> list[RenderableType]:
    """Shows a row as text with its features; the default split is the first that has rows."""
    split = find_split(info, split)
    file, number = _find(info, split, row)
    [(_, columns)] = read_rows(info, file, range(number, number + 1), keep=True)
    texts = token_texts(info)
    values = {name: column[0] for name, column in columns.items()}
    title = f"{split} row {row:,} (row {number:,} of {file.path})"
    shown: list[RenderableType] = ["", Text(title, "bold")]
    for name, value in row_facts(values, info.schema).items():
        shown.append(Text(f"{name}: {value}"))
    streams = list(sequences(info.schema))
    for name in streams:
        pieces = row_pieces(values, info.schema, texts, name)
        if len(streams) > 1:
            shown += ["", Text(name, "bold")]
        shown += [_summary(pieces), *_marks(pieces), "", _text(pieces), *_masked_table(pieces)]
    return [*shown, "", _documents_table(read_row_documents(info, file), number)]


def _find(info: DatasetInfo, split: str, row: int) -> tuple[ManifestFile, int]:
    """Returns the shard of a row of the split, and the row's index in it."""
    files = info.manifest.shards(split, info.schema.read_ending)
    ends = np.cumsum([file.rows or 0 for file in files])
    if not 0 <= row < ends[-1]:
        there = f"rows 0 to {ends[-1] - 1:,}" if ends[-1] else "no rows"
        raise UsageError(f"{flag('row', row)}: split {split} of {info.directory} has {there}")
    shard = int(np.searchsorted(ends, row, side="right"))
    return files[shard], row - int(ends[shard] - (files[shard].rows or 0))


def _documents_table(documents: RowDocuments, row: int) -> Table:
    """Returns the document of each segment, and the document's token with which it begins."""
    own = columns_table("segment", "document", "from token")
    own.columns[0].justify = own.columns[2].justify = "right"
    _, document_S, first_S = documents.documents_of(np.array([row]))
    for segment, (document, first) in enumerate(zip(document_S, first_S, strict=True), start=1):
        own.add_row(str(segment), documents.digests[document].tobytes().hex(), f"{first:,}")
    return own


def _summary(pieces: list[Piece]) -> str:
    tokens = {kind: 0 for kind in (TEXT, SPECIAL, PADDING, REPLACED, RANDOM, KEPT)}
    for piece in pieces:
        tokens[piece.kind] += piece.tokens
    positions = sum(tokens.values())
    segments = max((piece.segment for piece in pieces), default=0)
    masked = sum(tokens[kind] for kind in (REPLACED, RANDOM, KEPT))
    summary = (
        f"{positions} positions: {positions - tokens[PADDING]} tokens in "
        f"{number_of(segments, 'segment')}, {tokens[PADDING]} padding"
    )
    return summary + (
        f"; {masked} masked ({tokens[REPLACED]} mask token, {tokens[RANDOM]} random token, "
        f"{tokens[KEPT]} kept)"
        if masked
        else ""
    )


def _marks(pieces: list[Piece]) -> list[RenderableType]:
    """Counts the positions that each feature marks, in the style used below."""
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
    """Returns numbered segments; a masked token is {was→now}, or {was=} if it was kept."""
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


def _masked_table(pieces: list[Piece]) -> list[RenderableType]:
    """Returns the table of masked tokens; nothing if there are none."""
    masked = [piece for piece in pieces if piece.kind in (REPLACED, RANDOM, KEPT)]
    if not masked:
        return []
    own = columns_table("position", "segment", "was", "became", "how")
    own.columns[0].justify = own.columns[1].justify = "right"
    for piece in masked:
        texts = (Text(f"'{text}'") for text in (piece.text, piece.now))
        how = Text(piece.kind, _STYLES[piece.kind])
        own.add_row(str(piece.position), str(piece.segment), *texts, how)
    return ["", "{was→now} is a masked token, {was=} a masked token that was kept:", own]
