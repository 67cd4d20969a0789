"""Shows a row of a shard set as text, and the set's counts.

`python -m pipelines.inspect_shards DIR`; see --help.
"""

import os
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from pipelines.row_text import (
    KEPT,
    PADDING,
    RANDOM,
    REPLACED,
    SPECIAL,
    TEXT,
    Piece,
    TokenTexts,
    row_pieces,
)
from schemas.errors import UsageError, run_entry
from schemas.records import open_rows
from schemas.sidecar import ManifestFile, Schema, SetInfo, read_set
from schemas.statistics import Statistics

_SEGMENT_STYLES = ("cyan", "green")  # neighbours differ
_STYLES = {SPECIAL: "dim", REPLACED: "bold red", RANDOM: "bold magenta", KEPT: "bold yellow"}
_BAR = 40  # characters of the longest bar


@dataclass(frozen=True)
class InspectOptions:
    """Shows a row of a shard set as text, and the set's counts.

    Attributes:
      directory: of the set, with a MANIFEST.json.
      split: whose row to show; the first that has rows by default.
      row: index in the split, from 0 on.
      stats: show the tables only, no row.
    """

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    split: str | None = None
    row: int = 0
    stats: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False


def main(argv: list[str]) -> None:
    """Shows what a command line asks for."""
    options = tyro.cli(
        InspectOptions, prog="python -m pipelines.inspect_shards", args=argv, use_underscores=True
    )
    info = read_set(options.directory)
    shown = [] if options.stats else _row(info, options)
    console = Console(highlight=False)
    for renderable in (*_tables(info), *shown):
        console.print(renderable)


# The row


def _row(info: SetInfo, options: InspectOptions) -> list[RenderableType]:
    split = _split(info, options.split)
    file, number = _find(info, split, options.row)
    codec = info.schema.codec()
    reader = open_rows(os.path.join(info.directory, file.path), codec.stride)
    try:
        columns = codec.decode(reader.read_range(number, number + 1), first_row=number)
    finally:
        reader.close()
    with open(os.path.join(info.directory, "tokenizer.json"), "rb") as tokenizer:
        texts = TokenTexts(tokenizer.read())
    row = {name: column[0] for name, column in columns.items()}
    pieces = row_pieces(row, info.schema, texts)
    title = f"{split} row {options.row:,}, which is row {number:,} of {file.path}"
    return ["", Text(title, "bold"), _summary(pieces), "", _text(pieces), *_masked(pieces)]


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
    return (
        f"{places} places: {places - tokens[PADDING]} tokens in "
        f"{_number(segments, 'segment', 'segments')}, {tokens[PADDING]} padding; {masked} masked "
        f"({tokens[REPLACED]} by the mask token, {tokens[RANDOM]} by a random one, {tokens[KEPT]} "
        "kept)"
    )


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _text(pieces: list[Piece]) -> Table:
    """Each segment behind its number; a masked token as {was→now}, or {was=} if it was kept."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for segment, group in groupby(pieces, key=lambda piece: piece.segment):
        text = Text()
        style = _SEGMENT_STYLES[segment % len(_SEGMENT_STYLES)]
        for piece in group:
            if piece.kind == PADDING:
                text.append(f"{piece.tokens} x padding", "dim")
            elif piece.kind in (TEXT, SPECIAL):
                text.append(piece.text, _STYLES.get(piece.kind, style))
            else:
                was, now = piece.text.lstrip(" "), piece.now.lstrip(" ")
                text.append(" " * (len(piece.text) - len(was)))
                changed = "=" if piece.kind == KEPT else f"→{now}"
                text.append(f"{{{was}{changed}}}", _STYLES[piece.kind])
        table.add_row(Text(f"[{segment or '-'}]", f"bold {style}"), text)
    return table


def _masked(pieces: list[Piece]) -> list[RenderableType]:
    """The masked tokens in a table; nothing if there are none."""
    masked = [piece for piece in pieces if piece.kind in (REPLACED, RANDOM, KEPT)]
    if not masked:
        return []
    table = _table()
    for name in ("place", "segment", "was", "became", "how"):
        table.add_column(name, justify="right" if name in ("place", "segment") else "left")
    for piece in masked:
        texts = (Text(f"'{text}'") for text in (piece.text, piece.now))
        how = Text(piece.kind, _STYLES[piece.kind])
        table.add_row(str(piece.place), str(piece.segment), *texts, how)
    return ["", "{was→now} is a masked token, {was=} one that was kept:", table]


# The tables


def _tables(info: SetInfo) -> list[RenderableType]:
    titled = {
        info.directory: _schema(info),
        "documents": _documents(info.stats),
        "splits": _splits(info.stats, info.schema),
        "tokens of a document": _lengths(info.stats),
    }
    shown: list[RenderableType] = []
    for title, table in titled.items():
        shown += [*([""] if shown else []), Text(title, "bold"), table]
    return shown


def _table(*, show_header: bool = True) -> Table:
    return Table(box=None, show_header=show_header)


def _facts(facts: dict[str, str]) -> Table:
    table = _table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(value))
    return table


def _schema(info: SetInfo) -> Table:
    schema = info.schema
    masking = "none; rows are as they were"
    if schema.static_masking:
        words = "whole words, " if schema.whole_word_masking else ""
        masking = (
            f"static, {words}{schema.mask_rate:g} of the tokens, at most {schema.max_masked} a "
            f"row, {_number(schema.mask_copies, 'copy', 'copies')}"
        )
    facts = {
        "task": f"{schema.task}, rows of {schema.max_length} tokens",
        "vocabulary": f"{schema.vocab_size:,} ids; "
        + ", ".join(f"{role} {i}" for role, i in schema.special_ids.items()),
        "packing": schema.packing,
        "masking": masking,
        "seed": str(schema.seed),
        "files": f"{', '.join(schema.file_formats)}; values as {schema.encoding}",
        "inputs": f"{_number(len(info.inputs.files), 'file', 'files')}, "
        + decimal(sum(file.bytes for file in info.inputs.files)),
        "size": decimal(sum(file.bytes for file in info.manifest.files)),
        "written by": f"Textmill {schema.code_version}",
        "fingerprint": schema.fingerprint,
    }
    for feature in schema.codec().features:
        facts[feature.name] = f"{feature.dtype}{list(feature.shape)}: {feature.meaning}"
    return _facts(facts)


def _documents(stats: Statistics) -> Table:
    total = stats.total()
    facts = {
        "read": f"{stats.documents_read:,} of {decimal(stats.source_bytes)}",
        "kept": f"{total.documents:,} of {decimal(total.text_bytes)}",
        "duplicates": f"{total.duplicates:,}",
    }
    for reason, number in sorted(stats.documents_rejected.items()):
        facts[f"rejected: {reason}"] = f"{number:,}"
    if not stats.documents_rejected:
        facts["rejected"] = "0"
    facts["guarded"] = f"{stats.documents_guarded:,} encoded by the reference tokenizer"
    return _facts(facts)


def _splits(stats: Statistics, schema: Schema) -> Table:
    table = _table()
    table.add_column("")
    splits = {**stats.splits(), "all": stats.total()}
    for name in splits:
        table.add_column(name, justify="right")
    shards = {**schema.shards, "all": sum(schema.shards.values())}
    table.add_row("shards", *(f"{shards[name]:,}" for name in splits))
    for label, name in {
        "documents": "documents",
        "tokens of text": "tokens",
        "special tokens": "specials_added",
        "truncated": "tokens_truncated",
        "rows": "rows",
        "segments": "segments",
        "tokens in rows": "tokens_in_rows",
        "masked": "masked",
    }.items():
        table.add_row(label, *(f"{getattr(counts, name):,}" for counts in splits.values()))
    densities = (counts.density(schema.row_tokens) for counts in splits.values())
    table.add_row("density", *(f"{density:.2%}" for density in densities))
    return table


def _lengths(stats: Statistics) -> Table:
    """Documents by their number of tokens: 1, 2-3, 4-7, 8-15 ..."""
    table = _table(show_header=False)
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    histogram = stats.total().length_histogram
    used = [bin_ for bin_, count in enumerate(histogram) if count]
    for bin_ in range(used[0], used[-1] + 1) if used else ():
        low, high = (1 << bin_) >> 1, (1 << bin_) - 1
        count = histogram[bin_]
        bar = "█" * round(_BAR * count / max(histogram))
        table.add_row(f"{low:,}" if low >= high else f"{low:,}-{high:,}", f"{count:,}", bar)
    return table


if __name__ == "__main__":
    run_entry(main)
