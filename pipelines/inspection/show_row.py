"""A row of a set for people: its text with masks and marks, and what its features say."""

from itertools import groupby

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.inspection.read_rows import read_rows
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
from pipelines.inspection.set_tables import table
from schemas.commands.terminal import number_of
from schemas.errors import UsageError
from schemas.manifest import ManifestFile
from schemas.sidecar import SetInfo

SEGMENT_STYLES = ("cyan", "green")  # neighbours differ
_STYLES = {SPECIAL: "dim", REPLACED: "bold red", RANDOM: "bold magenta", KEPT: "bold yellow"}
_MARK_STYLES = {LOSS: "underline", PREFIX: "italic"}
_OTHER_MARK = "reverse"


def show_row(info: SetInfo, split: str | None, row: int) -> list[RenderableType]:
    """Shows a row of a split as text, with what each of its features says.

    Args:
      info: the set.
      split: None for the first that has rows.
      row: index in the split, from 0 on.
    """
    split = find_split(info, split)
    file, number = _find(info, split, row)
    [(_, columns)] = read_rows(info, file, range(number, number + 1), keep=True)
    texts = token_texts(info)
    values = {name: column[0] for name, column in columns.items()}
    title = f"{split} row {row:,}, which is row {number:,} of {file.path}"
    shown: list[RenderableType] = ["", Text(title, "bold")]
    for name, value in row_facts(values, info.schema).items():
        shown.append(Text(f"{name}: {value}"))
    streams = list(sequences(info.schema))
    for name in streams:
        pieces = row_pieces(values, info.schema, texts, name)
        if len(streams) > 1:
            shown += ["", Text(name, "bold")]
        shown += [_summary(pieces), *_marks(pieces), "", _text(pieces), *_masked_table(pieces)]
    return shown


def _find(info: SetInfo, split: str, row: int) -> tuple[ManifestFile, int]:
    """The shard that holds a row of the split, and the row's index in it."""
    files = info.manifest.shards(split, info.schema.read_ending)
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
        f"{number_of(segments, 'segment')}, {tokens[PADDING]} padding"
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
        style = SEGMENT_STYLES[segment % len(SEGMENT_STYLES)]
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
    """The masked tokens in a table; nothing if there are none."""
    masked = [piece for piece in pieces if piece.kind in (REPLACED, RANDOM, KEPT)]
    if not masked:
        return []
    own = table("place", "segment", "was", "became", "how")
    own.columns[0].justify = own.columns[1].justify = "right"
    for piece in masked:
        texts = (Text(f"'{text}'") for text in (piece.text, piece.now))
        how = Text(piece.kind, _STYLES[piece.kind])
        own.add_row(str(piece.place), str(piece.segment), *texts, how)
    return ["", "{was→now} is a masked token, {was=} one that was kept:", own]


def find_split(info: SetInfo, wanted: str | None) -> str:
    """Gives the split that is meant; by default the first that has rows."""
    rows = {split: info.stats.split(split).rows for split in sorted(info.schema.splits)}
    if wanted is None:
        # "train" comes before "validation", and so does whatever has rows.
        return next((split for split, count in rows.items() if count), next(iter(rows)))
    if wanted not in rows:
        raise UsageError(
            f"--split={wanted}: {info.directory} has no such split, only {', '.join(rows)}"
        )
    return wanted


def token_texts(info: SetInfo) -> TokenTexts:
    """Loads what turns the ids of a set into text."""
    with open(info.locate("tokenizer.json"), "rb") as tokenizer:
        return TokenTexts.from_json(tokenizer.read())
